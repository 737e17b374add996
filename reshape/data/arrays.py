"""Registered arrays, which resizes redistribute."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import msgspec
import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike, DTypeLike, NDArray

from redistribution import Cuts, Layout
from reshape.data.declarations import Declaration
from reshape.data.segments import RankMemory, Segment
from reshape.data.spares import Spares
from reshape.data.whole import Savable, Saved, load
from reshape.errors import ReshapeError


class Processes(msgspec.Struct, eq=False):
    """The processes of a job and their memory, as registered data sees them.

    Attributes
    ----------
    comm : communicator of all processes; COMM_NULL once this process has left the job.
    group : group of this process.
    folder : shared-memory folder of the job; None: private memory, and no restart point.
    groups : group of each rank of `comm`.
    epoch : serial number of the last committed resize.
    done : iterations finished in all loops.
    spares : memory for the next local parts of this process.
    """

    comm: MPI.Intracomm
    group: int
    folder: Path | None
    groups: tuple[int, ...]
    epoch: int = 0
    done: int = 0
    spares: Spares = msgspec.field(default_factory=Spares)

    @property
    def memory(self) -> RankMemory:
        """Where the local parts of this rank lie."""
        return RankMemory(self.folder, self.epoch, self.comm.rank)


class Registered:
    """Registered data of a program, which stands for its local part.

    Parameters
    ----------
    declaration : what the program has declared.
    job : the processes that hold it.
    """

    _absent = ""  # message of the error at an access without data

    def __init__(self, declaration: Declaration, job: Processes) -> None:
        self.declaration, self.job = declaration, job

    @property
    def name(self) -> str:
        """Name in the program."""
        return self.declaration.name

    @property
    def local(self) -> Any:
        """Data of this process."""
        raise NotImplementedError

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the local part, so that functions of NumPy take the data in its place.

        Raises
        ------
        ReshapeError : it is no array; NumPy would take the whole of it as one object.
        """
        if not isinstance(self.local, np.ndarray):
            raise ReshapeError(
                f"{self.declaration.kind} {self.name!r} is no array of NumPy: use its local part, "
                f"{self.name}.local, which is {type(self.local).__name__}"
            )
        return np.array(self.local, dtype, copy=copy)

    def __getitem__(self, key: Any) -> Any:
        """Return elements of the local part, by local index: a view where NumPy returns one."""
        return self.local[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        """Set elements of the local part, by local index."""
        self.local[key] = value

    def __len__(self) -> int:
        """Length of the local part, of its first axis if it has several."""
        return len(self.local)

    def __bool__(self) -> bool:
        """Be true, with or without local elements."""
        return True

    def __repr__(self) -> str:
        """Show the declaration."""
        return f"<{type(self).__name__} {self.declaration}>"


class Array(Registered, Savable):
    """A registered array: the local part of this process, and the layout.

    `local` is another array after each resize. The previous one is then read-only and out of date.
    Views of it are not protected: create views again in each iteration.

    Parameters
    ----------
    declaration : name, kind, global shape, dtype and memory order.
    job : the processes that hold it.
    absent : message of the error at an access before there is data.

    Attributes
    ----------
    segment : the local part.
    total_bytes : of all local parts together, every copy counted; 0 if there is no layout.
    """

    def __init__(self, declaration: Declaration, job: Processes) -> None:
        super().__init__(declaration, job)
        self.segment: Segment | None = None
        self.total_bytes = 0
        self._layout: Layout | None = None
        self._earlier: list[ReferenceType[NDArray[Any]]] = []

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

    def load(self, path: str | os.PathLike[str]) -> None:
        """Collective over app.comm. Read the whole array from a file that `save` has written.

        Parameters
        ----------
        path : file of NumPy, or of HDF5 with a data set of the name of the array, which every
            rank can read. It may come from any program. Element types are converted within their
            kind.

        Raises
        ------
        ReshapeError : on every rank: the file cannot be read, or its array has another shape or
            kind of elements; nothing is changed then. Also if this process has no part of the array
            yet, or no longer.
        """
        load(self.as_saved(), path)

    def as_saved(self) -> Saved:
        """Return what `save` writes."""
        self._check_form()
        return Saved(self.job.comm, self.name, self.layout, self.local, self.declaration.order)

    def _check_form(self) -> None:
        """Check that the local part has the form in which it was given to the program.

        Raises
        ------
        ReshapeError : it has another shape or element type, which NumPy lets a program set.
        """
        local, shape = self.local, self.layout.local_shape(self.job.comm.rank)
        if (local.shape, local.dtype) != (shape, self.dtype):
            raise ReshapeError(
                f"array {self.name!r}: the program has set the shape or dtype of its local part to "
                f"{local.shape} and {local.dtype}, it was {shape} and {self.dtype}: use "
                "local.reshape(...) or local.view(...), which return another array"
            )

    def pack(self) -> None:
        """Write into the local part what belongs to it and is elsewhere, before it is moved.

        Raises
        ------
        ReshapeError : the local part cannot be moved.
        """
        if self.segment is not None:
            self._check_form()

    def _forget(self) -> None:
        """Drop what was made from the local part, in place of which another one comes."""

    def place(self, layout: Layout, segment: Segment) -> Segment | None:
        """Make this segment the data, and return the previous one, which the caller releases."""
        self._forget()
        previous, self.segment = self.segment, segment
        self._layout = layout
        self.total_bytes = math.prod(layout.shape) * layout.copies * self.dtype.itemsize
        if previous is None or previous is segment:
            return None
        self._earlier = [ref(part) for part in (*self.earlier_parts(), previous.array)]
        return previous

    def earlier_parts(self) -> list[NDArray[Any]]:
        """Local parts of before a resize that something still refers to."""
        return [part for reference in self._earlier if (part := reference()) is not None]

    def withdraw(self, why: str) -> Segment | None:
        """Return the segment, which the caller releases; any later access is an error.

        Parameters
        ----------
        why : message of the error.
        """
        self._forget()
        previous, self.segment = self.segment, None
        self._layout, self.total_bytes, self._absent = None, 0, why
        return previous

    def vacate(self, why: str) -> None:
        """Release the memory; any later access raises an error with this reason."""
        if (segment := self.withdraw(why)) is not None:
            segment.discard()
