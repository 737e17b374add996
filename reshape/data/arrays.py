"""Registered arrays, which resizes redistribute."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from operator import index
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import ArrayLike, NDArray

from redistribution import BlockCyclic, Blocks, Cuts, Layout, Replicated, balanced_grid
from reshape.data.element_types import element_text, element_type
from reshape.data.mapped_files import Order
from reshape.data.segments import RankMemory, Segment
from reshape.data.whole import gather, save
from reshape.errors import ReshapeError
from reshape.topology import nearly_square

if TYPE_CHECKING:
    from mpi4py import MPI

Kind = Literal["block_cyclic", "blocks", "rows", "replicated", "csr", "items", "entries"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # it becomes part of a file name


def process_grid(size: int, ndim: int) -> tuple[int, ...]:
    """Return the processes along each of `ndim` axes, ascending and as equal as possible.

    Two axes get `reshape.topology.nearly_square`. With more axes the prime factors of `size`,
    largest first, are given to the axis that has the fewest processes.
    """
    if ndim == 2:
        return nearly_square(size)
    grid = [1] * ndim
    for factor in _prime_factors(size):
        grid[grid.index(min(grid))] *= factor
    return tuple(sorted(grid))


def _prime_factors(number: int) -> list[int]:
    """Prime factors, largest first."""
    factors = []
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return sorted([*factors, number] if number > 1 else factors, reverse=True)


class RaggedCuts(NamedTuple):
    """Boundaries of the parts of a ragged array.

    Attributes
    ----------
    rows, entries : (size + 1,) first row and first entry of each process; the last value is the
        end.
    """

    rows: tuple[int, ...]
    entries: tuple[int, ...]


AllCuts: TypeAlias = Mapping[str, RaggedCuts]
_NO_CUTS: AllCuts = MappingProxyType({})


class Declaration(NamedTuple):
    """The declaration of a registered array, which holds at every size.

    Attributes
    ----------
    kind : "csr" and "items" are ragged: they consist of arrays of kind "rows" and "entries"; see
        `reshape.data.ragged`.
    detail : "block_cyclic": extents of a block; "blocks": widths of the halo, then whether each
        axis is periodic; "rows": the axis that is cut; "csr": whether it is
        balanced by entries; otherwise empty.
    dtype : text of the element type; see `reshape.data.element_types`.
    by : name of the ragged array whose cuts determine the layout; empty if there is none.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...]
    detail: tuple[int, ...]
    dtype: str
    order: Order
    by: str = ""

    @property
    def element_type(self) -> np.dtype[Any]:
        """Element type."""
        return element_type(self.dtype)

    def layout(self, size: int, cuts: AllCuts = _NO_CUTS) -> Layout:
        """Return the layout on `size` processes, given the cuts of the ragged arrays."""
        if self.by:
            rows, entries = cuts[self.by]
            if self.kind == "entries":
                return Cuts(entries[-1:], entries)
            return Cuts((rows[-1], *self.shape[1:]), rows)
        if self.kind == "block_cyclic":
            return BlockCyclic(self.shape, self.detail, process_grid(size, len(self.shape)))
        if self.kind == "blocks":
            return Blocks(self.shape, balanced_grid(size, len(self.shape)))
        if self.kind in ("rows", "csr"):
            return Cuts.even(self.shape, size, self.detail[0] if self.kind == "rows" else 0)
        return Replicated(self.shape, size)

    def __str__(self) -> str:
        """Describe the declaration, for errors."""
        ndim = len(self.shape)
        names = {
            "blocks": f", halo={self.detail[:ndim]}, periodic={self.detail[ndim:]}",
            "block_cyclic": f", block={self.detail}",
            "rows": f", axis={self.detail}",
            "csr": f", balance={'entries' if any(self.detail) else 'rows'}",
        }
        detail = names.get(self.kind, "") + (f", like={self.by}" if self.by else "")
        return (
            f"{self.kind} {self.name!r} (shape={self.shape}{detail}, "
            f"dtype={self.dtype}, order={self.order!r})"
        )


def declare(
    name: str,
    kind: Kind,
    shape: Sequence[int],
    detail: Sequence[int],
    dtype: Any,
    order: Order,
    by: str = "",
) -> Declaration:
    """Check a declaration.

    Raises
    ------
    ReshapeError : the name cannot be part of a file name, the element type is refused, the order
        is unknown, or there is no layout of this shape and block.
    """
    if not _NAME.fullmatch(name):
        raise ReshapeError(
            f"array name {name!r}: use 1 to 64 letters, digits, '_' and '-', as it names a file"
        )
    if order not in ("C", "F"):
        raise ReshapeError(f"array {name!r}: order must be 'C' or 'F', got {order!r}")
    if kind in ("block_cyclic", "blocks") and not shape:
        raise ReshapeError(f"array {name!r} has no axes to distribute: use app.replicated")
    try:
        axes, along = tuple(map(index, shape)), tuple(map(index, detail))
    except TypeError:
        given = f"shape={shape!r}" + (f" and block={detail!r}" if kind == "block_cyclic" else "")
        raise ReshapeError(
            f"array {name!r}: {given} must be whole numbers in tuples, such as (600,)"
        ) from None
    checked = Declaration(name, kind, axes, along, element_text(name, dtype), order, by)
    try:
        checked._replace(by="").layout(1)
    except ValueError as error:
        raise ReshapeError(f"array {name!r}: {error}") from None
    return checked


def difference(job: Sequence[Declaration], joiners: Sequence[Declaration]) -> str:
    """Describe the first difference of two programs' registrations; empty if there is none."""
    for ours, theirs in zip_longest(job, joiners):
        if ours != theirs:
            return (
                f"the job has registered {ours or 'nothing more'}, "
                f"the group that joins {theirs or 'nothing more'}"
            )
    return ""


class Processes(Protocol):
    """What registered data has to know of its job; see `reshape.data.job_context`."""

    @property
    def comm(self) -> MPI.Intracomm:
        """Communicator of all processes; another one after each resize."""

    @property
    def memory(self) -> RankMemory:
        """Where the local parts of this rank lie."""


class Array:
    """A registered array: the local part of this process, and the layout.

    `local` is another array after each resize. The previous one is then read-only and out of date.
    Views of it are not protected: create views again in each iteration.

    Parameters
    ----------
    declaration : name, kind, global shape, dtype and memory order.
    job : the processes that hold it.
    absent : message of the error at an access before there is data.
    """

    def __init__(self, declaration: Declaration, job: Processes, absent: str = "") -> None:
        self.declaration, self.job = declaration, job
        self.segment: Segment | None = None
        self._layout: Layout | None = None
        self._absent = absent
        self._earlier: list[ReferenceType[NDArray[Any]]] = []

    @property
    def name(self) -> str:
        """Name in the program."""
        return self.declaration.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Global shape."""
        return self.declaration.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.declaration.element_type

    @property
    def layout(self) -> Layout:
        """Layout of the global array over the ranks of `app.comm` at the present size.

        Raises
        ------
        ReshapeError : this process has no part of it yet, or no longer.
        """
        if self._layout is None:
            raise ReshapeError(self._absent)
        return self._layout

    @property
    def total_bytes(self) -> int:
        """Bytes of all local parts together, every copy counted; 0 if there is no layout."""
        layout = self._layout
        elements = 0 if layout is None else math.prod(layout.shape) * layout.copies
        return elements * self.dtype.itemsize

    @property
    def local(self) -> NDArray[Any]:
        """Local part, shape ``layout.local_shape(app.comm.rank)``, `dtype`; zeros at first.

        Raises
        ------
        ReshapeError : this process has no part of it yet, or no longer.
        """
        if self.segment is None:
            raise ReshapeError(self._absent)
        return self.segment.array

    @local.setter
    def local(self, value: ArrayLike) -> None:
        """Copy a value into the local part, which stays the same array; so ``a.local += 1`` works.

        Raises
        ------
        ReshapeError : it cannot be broadcast to the local part, or has an element type that cannot
            be converted to `dtype` within its kind.
        """
        if value is self.local:  # after an operation in place
            return
        try:
            np.copyto(self.local, value, casting="same_kind")
        except (TypeError, ValueError, OverflowError) as error:
            raise ReshapeError(
                f"array {self.name!r}: its local part, shape {self.local.shape} and dtype "
                f"{self.dtype}, cannot be set to a value of another: {error}; convert it, and "
                "assign to local[...]"
            ) from None

    def neighbours(self, rank: int) -> tuple[int | None, int | None]:
        """Return the ranks of `app.comm` with the rows before and after those of `rank`.

        None at the ends, and on both sides if `rank` has no rows; ranks without rows are skipped.
        A resize changes the neighbours.

        Raises
        ------
        ReshapeError : the array is not cut along one axis, or has no layout; see `layout`.
        """
        layout = self.layout
        if not isinstance(layout, Cuts):
            raise ReshapeError(
                f"{self.declaration} is not cut along one axis: it has no neighbours"
            )
        return layout.neighbours(rank)

    def gather(self) -> NDArray[Any] | None:
        """Collective over app.comm. Return the whole array on rank 0, and None elsewhere.

        Raises
        ------
        ReshapeError : on every rank: rank 0 has no memory for it. Also if this process has no part
            of it yet, or no longer.
        """
        return gather(self.job.comm, self.layout, self.local, self.declaration.order)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Collective over app.comm. Write the whole array to a file that `numpy.load` reads.

        Rank 0 writes the file, and holds no more than 32 MiB of the array at a time beside its
        local part. The file has its name when it is complete and on disk; an existing one is
        replaced.

        Parameters
        ----------
        path : name of the file, usually with the suffix .npy, on the host of rank 0.

        Raises
        ------
        ReshapeError : on every rank: the file cannot be written. There is no part of it then, and
            an existing file is as it was. Also if this process has no part of the array yet, or no
            longer.
        """
        save(self.job.comm, self.layout, self.local, self.declaration.order, path)

    def place(self, layout: Layout, segment: Segment) -> Segment | None:
        """Make this segment the data, and return the previous one, which the caller releases."""
        previous, self.segment = self.segment, segment
        self._layout = layout
        if previous is None or previous is segment:
            return None
        self._earlier = [ref(part) for part in (*self.earlier_parts(), previous.array)]
        return previous

    def earlier_parts(self) -> list[NDArray[Any]]:
        """Local parts of before a resize that something still refers to."""
        return [part for known in self._earlier if (part := known()) is not None]

    def withdraw(self, why: str) -> Segment | None:
        """Return the segment, which the caller releases; any later access is an error.

        Parameters
        ----------
        why : message of the error.
        """
        previous, self.segment = self.segment, None
        self._layout, self._absent = None, why
        return previous

    def vacate(self, why: str) -> None:
        """Release the memory; any later access raises an error with this reason."""
        if (segment := self.withdraw(why)) is not None:
            segment.discard()

    def __repr__(self) -> str:
        """Show the declaration."""
        return f"<Array {self.declaration}>"
