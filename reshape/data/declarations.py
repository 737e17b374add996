"""Declarations of registered data: what an array is, and how it is divided at every size.

A program makes the same declarations in each of its processes. They are compared when a group
joins, and restart points and checkpoints contain them.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import index
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.lib.format import descr_to_dtype
from numpy.typing import DTypeLike

from redistribution import BlockCyclic, Blocks, Cuts, Dealt, Layout, Replicated, balanced_grid
from redistribution.axes import Cut, checked_cut, even_offsets, fitted_offsets
from redistribution.layout import MemoryOrder
from reshape.errors import ReshapeError

Kind = Literal[
    "block_cyclic",
    "blocks",
    "rows",
    "replicated",
    "csr",
    "items",
    "particles",
    "entries",
    "streams",
]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # it becomes part of a file name


class RaggedCuts(NamedTuple):
    """Boundaries of the parts of a ragged array.

    Attributes
    ----------
    rows, entries : (parts + 1,) first row and first entry of each part; the last value is the end.
    owners : (parts,) process of each part; empty: part k is that of process k.
    """

    rows: tuple[int, ...]
    entries: tuple[int, ...]
    owners: tuple[int, ...] = ()


AllCuts: TypeAlias = Mapping[str, RaggedCuts]
_NO_CUTS: AllCuts = MappingProxyType({})


class ArrayDivision(NamedTuple):
    """Which axes of an array are divided over which process grid, at every size.

    A value of `Declaration` has empty fields for what is so by default.

    Attributes
    ----------
    cut : the axis that each dimension of the grid divides; None: the processes along it hold
        copies. Default: all axes in order.
    grid : processes along each dimension; 0: chosen at each size, which is the default.
    extents : points that are divided evenly along each dimension. Default: those of the axis. A
        staggered field has one more or less.
    by : name of the ragged array whose cuts determine the layout; empty if there is none.
    """

    cut: Cut = ()
    grid: tuple[int, ...] = ()
    extents: tuple[int, ...] = ()
    by: str = ""


EVEN = ArrayDivision()


class Declaration(NamedTuple):
    """The declaration of a registered array, which holds at every size.

    Attributes
    ----------
    kind : "csr", "items" and "particles" are ragged: they consist of arrays of kind "rows" and
        "entries"; see `reshape.data.ragged`. The shape of particles is that of their cells.
    detail : "block_cyclic": extents of a block; "blocks": widths of the halo, then whether each
        axis is periodic; "rows": the axis that is cut; "csr": whether it is
        balanced by entries; "streams": the seed; otherwise empty.
    dtype : text of the element type; see `element_text`.
    by, cut, grid, extents : as in `ArrayDivision`; only "blocks", "block_cyclic" and
        "particles" have `cut` and `grid`.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...]
    detail: tuple[int, ...]
    dtype: str
    order: MemoryOrder
    by: str = ""
    cut: Cut = ()
    grid: tuple[int, ...] = ()
    extents: tuple[int, ...] = ()

    @property
    def element_type(self) -> np.dtype[Any]:
        """Element type."""
        return element_type(self.dtype)

    @property
    def division(self) -> ArrayDivision:
        """How the array is divided, defaults written out; without a cut if it is not."""
        if self.kind in ("rows", "csr", "streams"):
            cut = checked_cut(self.detail if self.kind == "rows" else (0,), self.shape)
        elif self.kind in ("blocks", "block_cyclic", "particles"):
            cut = self.cut or tuple(range(len(self.shape)))
        else:
            return ArrayDivision()
        extents = tuple(0 if axis is None else self.shape[axis] for axis in cut)
        by = self.name if self.kind == "csr" else self.by
        return ArrayDivision(cut, self.grid or (0,) * len(cut), self.extents or extents, by)

    def layout(self, size: int, cuts: AllCuts = _NO_CUTS) -> Layout:
        """Return the layout on `size` processes, given the cuts of the ragged arrays.

        Raises
        ------
        ReshapeError : so many processes do not form the grid.
        """
        if self.by and cuts[self.by].owners:
            rows, entries, owners = cuts[self.by]
            offsets = entries if self.kind == "entries" else rows
            return Dealt(offsets[-1:], offsets, owners, size)
        if self.kind == "entries":
            entries = cuts[self.by].entries
            return Cuts(entries[-1:], entries)
        cut, _, extents, _ = self.division
        if not cut:
            return Replicated(self.shape, size)
        grid = self._grid(size)
        if self.kind == "block_cyclic":
            return BlockCyclic(self.shape, self.detail, grid, cut)
        shape = list(self.shape)
        along: list[tuple[int, ...] | None] = [None] * len(shape)
        for axis, extent, parts in zip(cut, extents, grid, strict=True):
            if axis is None:
                continue
            own = cuts[self.by].rows if self.by else even_offsets(extent, parts)
            if self.by and not self.extents:
                shape[axis] = own[-1]  # parts of ragged arrays do not declare their rows
            along[axis] = fitted_offsets(own, shape[axis])
        if self.kind in ("blocks", "particles"):
            return Blocks(tuple(shape), grid, cut, tuple(along))
        (axis,) = cut
        assert axis is not None
        return Cuts(tuple(shape), along[axis] or (), axis)

    def _grid(self, size: int) -> tuple[int, ...]:
        """Process grid of `size` processes; `MPI_Dims_create` treats dimensions of 0 likewise."""
        grid = self.division.grid
        fixed = math.prod(filter(None, grid))
        if size % fixed or (0 not in grid and size != fixed):
            multiple = "a multiple of " if 0 in grid else ""
            raise ReshapeError(
                f"array {self.name!r} has grid={grid}, which needs {multiple}{fixed} processes, "
                f"not {size}: name the valid sizes by reshape.application(topology=...)"
            )
        if 0 not in grid:
            return grid
        free_sizes = balanced_grid(size // fixed, grid.count(0))
        left = iter(free_sizes[::-1] if self.kind == "block_cyclic" else free_sizes)
        return tuple(count or next(left) for count in grid)

    def __str__(self) -> str:
        """Describe the declaration, for errors."""
        ndim = len(self.shape)
        names = {
            "blocks": f", halo={self.detail[:ndim]}, periodic={self.detail[ndim:]}",
            "block_cyclic": f", block={self.detail}",
            "rows": f", axis={self.detail}",
            "streams": f", seed={self.detail}",
            "csr": f", balance={'entries' if any(self.detail) else 'rows'}",
        }
        detail = names.get(self.kind, "") + (f", like={self.by}" if self.by else "")
        for field in ("cut", "grid", "extents"):
            detail += f", {field}={value}" if (value := getattr(self, field)) else ""
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
    order: MemoryOrder,
    division: ArrayDivision = EVEN,
) -> Declaration:
    """Check a declaration.

    Raises
    ------
    ReshapeError : the name cannot be part of a file name, the element type is refused, the order
        is unknown, or there is no layout of this shape and block.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ReshapeError(
            f"array name {name!r}: use 1 to 64 letters, digits, '_' and '-', as it names a file"
        )
    if order not in ("C", "F"):
        raise ReshapeError(f"array {name!r}: order must be 'C' or 'F', got {order!r}")
    try:
        axes, along = tuple(map(index, shape)), tuple(map(index, detail))
    except TypeError:
        keywords = f"shape={shape!r}" + (f" and block={detail!r}" if kind == "block_cyclic" else "")
        keywords += f" and axis={detail[0]!r}" if kind == "rows" and detail[0] != 0 else ""
        raise ReshapeError(
            f"array {name!r}: {keywords} must be whole numbers in tuples, such as (600,)"
        ) from None
    if kind in ("block_cyclic", "blocks") and not axes:
        raise ReshapeError(f"array {name!r} has no axes to distribute: use app.replicated")
    if kind == "replicated" and not axes:
        raise ReshapeError(
            f"array {name!r} is a single value: keep it in app.state, or give it an axis, as [3.5]"
        )
    cut, grid, extents, by = division
    text = element_text(name, dtype)
    checked = Declaration(name, kind, axes, along, text, order, by, cut, grid, extents)
    try:
        checked._replace(by="").layout(math.prod(filter(None, grid)))
    except ValueError as error:
        raise ReshapeError(f"array {name!r}: {error}") from None
    return checked


def declare_cyclic(
    name: str,
    shape: Sequence[int],
    block: Sequence[int] | None,
    dtype: Any,
    order: MemoryOrder,
    cut: Sequence[int | None] | None,
    grid: Sequence[int] | None,
    like: Declaration | None,
) -> Declaration:
    """Check the declaration of a block-cyclic array; parameters as of `Registrations.block_cyclic`.

    Raises
    ------
    ReshapeError : an error of `declare` or `divide`, or not one extent of a block for each axis
        that is divided.
    """
    division = divide(name, "block_cyclic", shape, cut, grid, like)
    detail: Sequence[int] = block or ()
    if isinstance(shape, Sequence) and (block is None or isinstance(block, Sequence)):
        cut_axes = division.cut or tuple(range(len(shape)))
        if block is None and like is not None:
            block = [1 if axis is None else like.detail[axis] for axis in like.division.cut]
            block = [own for own, axis in zip(block, cut_axes, strict=True) if axis is not None]
        divided = [axis for axis in cut_axes if axis is not None]
        if block is None or len(block) != len(divided):
            raise ReshapeError(
                f"array {name!r}: block={block} must have one entry for each of the axes "
                f"{tuple(divided)} of shape={tuple(shape)} that are divided"
            )
        blocks = dict(zip(divided, block, strict=True))
        detail = [blocks.get(axis, 1) for axis in range(len(shape))]
    return declare(name, "block_cyclic", shape, detail, dtype, order, division)


def divide(
    name: str,
    kind: Literal["block_cyclic", "blocks", "rows"],
    shape: Sequence[int],
    cut: Sequence[int | None] | None,
    grid: Sequence[int] | None = None,
    like: Declaration | None = None,
) -> ArrayDivision:
    """Check how an array is to be divided; parameters as of `Registrations.blocks`.

    Raises
    ------
    ReshapeError : the axes, the grid and the other array do not match.
    """
    if like is None and cut is None and grid is None:
        return ArrayDivision()
    why = f"array {name!r}, cut={cut}, grid={grid}"
    try:
        axes = tuple(map(index, shape))
        dimensions = None if cut is None else checked_cut(cut, axes)
        counts = None if grid is None else tuple(map(index, grid))
    except (TypeError, ValueError) as error:
        raise ReshapeError(
            f"{why}: needs an axis of shape={shape!r} for each dimension of the process grid, such "
            f"as cut=(1, 2), and numbers of processes, such as grid=(0, 2): {error}"
        ) from None
    if like is not None:
        return _divide_like(name, kind, axes, dimensions, counts, like)
    dimensions = dimensions or tuple(range(len(axes)))
    if not any(axis is not None for axis in dimensions):
        raise ReshapeError(f"{why}: divides no axis: use app.replicated")
    if counts is not None and (len(counts) != len(dimensions) or min(counts) < 0):
        raise ReshapeError(
            f"{why}: grid needs {len(dimensions)} numbers of processes, 0 for those that are "
            "chosen at each size"
        )
    return _without_defaults(axes, ArrayDivision(dimensions, counts or ()))


def _divide_like(
    name: str,
    kind: Literal["block_cyclic", "blocks", "rows"],
    shape: tuple[int, ...],
    cut: Cut | None,
    grid: tuple[int, ...] | None,
    like: Declaration,
) -> ArrayDivision:
    """Divide an array over the grid of another one, at most one point longer or shorter."""
    why = f"array {name!r}, like={like.name}"
    theirs = like.division
    if not theirs.cut:
        raise ReshapeError(
            f"{why}: {like} is not divided along its axes; expected an array of app.blocks, "
            "app.rows, app.block_cyclic or app.csr"
        )
    if (kind == "block_cyclic") != (like.kind == "block_cyclic"):
        method = "blocks" if kind == "block_cyclic" else "block_cyclic"
        raise ReshapeError(f"{why}: {like} is not {kind}: use app.{method}")
    if grid is not None:
        raise ReshapeError(f"{why}: the process grid is that of {like.name!r}: leave grid out")
    if kind == "rows" and len(theirs.cut) > 1:
        raise ReshapeError(
            f"{why}: {like} is divided over a grid of {len(theirs.cut)} dimensions: use app.blocks"
        )
    if cut is None and len(shape) != len(like.shape):
        raise ReshapeError(
            f"{why}: has {len(shape)} axes, {like.name!r} has {len(like.shape)}: name those that "
            f"are divided as the axes {theirs.cut} of {like.name!r}, such as cut="
            f"{tuple(range(1, len(theirs.cut) + 1))}; None for one that {name!r} lacks"
        )
    own = theirs.cut if cut is None else cut
    if len(own) != len(theirs.cut) or not any(axis is not None for axis in own):
        raise ReshapeError(
            f"{why}, cut={own}: needs {len(theirs.cut)} entries, one for each of the axes "
            f"{theirs.cut} of {like.name!r} that are divided, and at least one axis"
        )
    extents = list(theirs.extents)
    for k, axis in enumerate(own):
        if axis is None:
            extents[k] = 0
        elif theirs.cut[k] is None:
            extents[k] = shape[axis]
        elif abs(shape[axis] - extents[k]) > 1:
            raise ReshapeError(
                f"{why}: axis {axis} has {shape[axis]} points, expected {extents[k]} as "
                f"{like.name!r}, or one more or less (a staggered field)"
            )
    return _without_defaults(shape, ArrayDivision(own, theirs.grid, tuple(extents), theirs.by))


def _without_defaults(shape: tuple[int, ...], division: ArrayDivision) -> ArrayDivision:
    """Leave out what is so by default, so that equal declarations are equal values."""
    cut, grid, extents, by = division
    plain = tuple(0 if axis is None else shape[axis] for axis in cut)
    return ArrayDivision(
        () if cut == tuple(range(len(shape))) else cut,
        grid if any(grid) else (),
        () if extents == plain else extents,
        by,
    )


# ---------------------------------------------------------------- element types, as texts


def element_text(array: str, dtype: DTypeLike) -> str:
    """Describe an element type by a text from which `element_type` makes an equal one.

    `numpy.dtype.str` loses the fields of a structured type and the shape of a sub-array. The text
    of a structured type is therefore its list of fields, padding included, as in the header of a
    .npy file. A type that its text would not give back is refused.

    Parameters
    ----------
    array : name of the array, for errors.

    Raises
    ------
    ReshapeError : NumPy has no such type, or arrays of it cannot be registered.
    """
    try:
        element = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise ReshapeError(f"array {array!r}: NumPy has no dtype {dtype!r}: {error}") from None
    if why := _objection(element):
        raise ReshapeError(f"array {array!r} has dtype {element}: {why}")
    return _text(element)


@lru_cache(maxsize=256)
def element_type(text: str) -> np.dtype[Any]:
    """Return the element type that a text of `element_text` describes."""
    return descr_to_dtype(ast.literal_eval(text)) if text.startswith("[") else np.dtype(text)


def _text(dtype: np.dtype[Any]) -> str:
    return dtype.str if dtype.names is None else repr(dtype.descr)


def _objection(dtype: np.dtype[Any]) -> str:
    """Why arrays of this type cannot be registered, and what to do; empty if they can."""
    if dtype.hasobject:
        return (
            "Python objects cannot be moved between processes as raw memory; use app.items, or "
            "app.state for small ones"
        )
    if dtype.subdtype is not None:
        base, extents = dtype.subdtype
        return f"an element is an array; register dtype {base} and add axes {extents} to the shape"
    if dtype.itemsize == 0:
        return "its elements have no bytes; give their length, as in 'S8' or 'U8'"
    if issubclass(dtype.type, np.record):
        return (
            "the type numpy.record is not kept; register numpy.dtype((numpy.void, dtype)), and use "
            "local.view(numpy.recarray)"
        )
    try:
        is_kept = element_type(_text(dtype)) == dtype
    except (TypeError, ValueError):
        is_kept = False
    if is_kept:
        return ""
    if dtype.names is not None:
        return (
            "its fields overlap, are not in the order of their offsets, or have a type of another "
            "library; register fields of NumPy's types in order"
        )
    return f"the type is of another library; register dtype 'V{dtype.itemsize}', and use local.view"
