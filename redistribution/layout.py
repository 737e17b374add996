"""Layouts: which process owns which elements of a global array. Needs no MPI.

A layout places an n-d array of global ``shape`` on ``nprocs`` processes. Every layout here is a
product: process p has a coordinate on each axis and owns the elements whose every index belongs to
that coordinate on its axis. All computations are therefore made for one `Axis` at a time, and cost
the sum, not the product, of the extents. Indices have 64 bits.

Processes form a grid. Each dimension of the grid divides one axis of the array, or none: then the
processes along it hold copies of the same elements. An axis that no dimension divides is whole on
every process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from operator import index
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from msgspec.structs import force_setattr
from numpy.typing import NDArray

from redistribution.axes import (
    Axis,
    Cut,
    CutAxis,
    CyclicAxis,
    DealtAxis,
    Indices,
    checked_axis,
    checked_cut,
    checked_offsets,
    even_offsets,
    owner_coordinates,
)

#: Order of the elements of a local array in memory, as of NumPy.
MemoryOrder: TypeAlias = Literal["C", "F"]


class Layout:
    """Base class of all layouts: a global array on processes 0 .. nprocs - 1.

    Subclasses are frozen, hashable and picklable.

    Attributes
    ----------
    shape : global extents.
    nprocs : number of processes.
    grid : number of processes along each dimension of the process grid; processes are numbered
        row-major.
    cut : the axis that each dimension of the grid divides; None if the processes along it hold
        copies.
    axes : the division of each axis.
    """

    shape: tuple[int, ...]
    nprocs: int
    grid: tuple[int, ...]
    cut: Cut
    axes: tuple[Axis, ...]

    @property
    def parts(self) -> tuple[int, ...]:
        """Number of coordinates on each axis."""
        return tuple(axis.parts for axis in self.axes)

    @property
    def copies(self) -> int:
        """Number of copies of the array."""
        return self.nprocs // math.prod(self.parts)

    @cached_property
    def holders(self) -> tuple[tuple[int, ...], ...]:
        """Processes of each copy, in row-major order of their coordinates."""
        copied = [k for k, axis in enumerate(self.cut) if axis is None]
        divided = sorted((axis, k) for k, axis in enumerate(self.cut) if axis is not None)
        order = [*copied, *(k for _, k in divided)]
        numbers = np.arange(self.nprocs).reshape(self.grid).transpose(order)
        return tuple(map(tuple, numbers.reshape(self.copies, -1).tolist()))

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Copy of each process, and its position in `holders` there."""
        placed = [(0, 0)] * self.nprocs
        for copy, processes in enumerate(self.holders):
            for part, process in enumerate(processes):
                placed[process] = copy, part
        return tuple(placed)

    def coordinates(self, process: int) -> tuple[int, ...]:
        """Coordinate of ``process`` on each axis.

        Raises
        ------
        ValueError : there is no such process.
        """
        if not 0 <= process < self.nprocs:
            raise ValueError(f"process must be in [0, {self.nprocs}), got {process}")
        coordinates = [0] * len(self.shape)
        for extent, axis in zip(reversed(self.grid), reversed(self.cut), strict=True):
            process, coordinate = divmod(process, extent)
            if axis is not None:
                coordinates[axis] = coordinate
        return tuple(coordinates)

    def owners(self, where: Sequence[Indices]) -> Indices:
        """Process that holds each of some elements, in the first copy.

        Parameters
        ----------
        where : (n,) global indices of the elements, for each axis. Those of an axis that is whole
            have no effect.

        Returns
        -------
        (n,) int64

        Examples
        --------
        >>> Cuts((8, 3), offsets=(0, 3, 8)).owners([np.array([2, 3]), np.array([0, 2])])
        array([0, 1])
        """
        parts = [
            owner_coordinates(axis, along) for axis, along in zip(self.axes, where, strict=True)
        ]
        return np.array(self.holders[0])[np.ravel_multi_index(parts, self.parts)]

    def __copy__(self) -> Layout:
        """Return the layout itself, which does not change."""
        return self

    def local_shape(self, process: int) -> tuple[int, ...]:
        """Shape of the local array of ``process``; an extent may be 0.

        Raises
        ------
        ValueError : there is no such process.
        """
        coordinates = self.coordinates(process)
        return tuple(axis.length(c) for axis, c in zip(self.axes, coordinates, strict=True))

    def check_local(self, process: int, local: NDArray[Any], name: str = "process") -> None:
        """Check that an array can be the local array of ``process``.

        Raises
        ------
        ValueError : there is no such process; or the array has another shape, or holds objects,
            and the message begins with ``name`` and the process.
        """
        expected = self.local_shape(process)
        if local.shape != expected:
            raise ValueError(
                f"{name} {process}: expected an array of shape {expected}, got {local.shape}"
            )
        if local.dtype.hasobject:
            raise ValueError(f"{name} {process}: dtype {local.dtype} holds objects")

    def global_indices(self, process: int) -> tuple[Indices, ...]:
        """Global index of each local index of ``process``, one (local extent,) int64 per axis.

        ``global_array[np.ix_(*layout.global_indices(p))]`` is the local array of p.

        Raises
        ------
        ValueError : there is no such process.
        """
        coordinates = self.coordinates(process)
        return tuple(axis.indices(c) for axis, c in zip(self.axes, coordinates, strict=True))


class BlockCyclic(Layout, msgspec.Struct, frozen=True):
    """Block-cyclic on every divided axis over a process grid (ScaLAPACK's layout in n dimensions).

    Parameters
    ----------
    shape : global extents. The last block of an axis may be short.
    block : block extents, one for each axis; that of an axis that is whole has no effect.
    grid : number of processes along each dimension of the grid; processes are numbered row-major.
    cut : the axis that each dimension of the grid divides, or None; default: all axes in order.

    Raises
    ------
    ValueError : lengths differ, an extent is negative, a block or grid entry is < 1, or an entry of
        ``cut`` is no axis or occurs twice.

    Examples
    --------
    >>> BlockCyclic(shape=(10, 7), block=(3, 2), grid=(2, 2)).local_shape(1)
    (6, 3)
    """

    shape: tuple[int, ...]
    block: tuple[int, ...]
    grid: tuple[int, ...]
    cut: Cut = ()

    def __post_init__(self) -> None:
        """Check and normalise the arguments."""
        parts = set_grid(self)
        block = extents("block", self.block, least=1)
        if len(block) != len(self.shape):
            raise ValueError(
                f"shape and block must have one entry for each axis, got shape {self.shape}, "
                f"block {block}"
            )
        set_fields(self, block=block, axes=tuple(map(CyclicAxis, self.shape, block, parts)))


class Cuts(Layout, msgspec.Struct, frozen=True):
    """One axis cut at given indices, the other axes whole.

    Parameters
    ----------
    shape : global extents.
    offsets : nprocs + 1 ascending cuts from 0 to shape[axis]; process p holds
        [offsets[p], offsets[p + 1]), which may be empty.
    axis : the axis that is cut; negative values count from the last axis.

    Raises
    ------
    ValueError : there is no such axis, or the offsets do not ascend from 0 to its extent.
    """

    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    axis: int = 0

    def __post_init__(self) -> None:
        """Check and normalise the arguments."""
        shape = extents("shape", self.shape, least=0)
        axis = checked_axis(self.axis, shape)
        offsets = checked_offsets(self.offsets, axis, shape[axis])
        set_fields(self, shape=shape, axis=axis, offsets=offsets)
        axes = [CutAxis((0, extent)) for extent in shape]
        axes[axis] = CutAxis(offsets)
        set_one_dimension(self, len(offsets) - 1, axis, axes)

    def neighbours(self, process: int) -> tuple[int | None, int | None]:
        """Processes that own the index before the first and after the last one of ``process``.

        These are the partners of a halo exchange. None at the ends of the axis, and on both sides
        if the part is empty; empty parts of other processes are skipped.

        Raises
        ------
        ValueError : there is no such process.

        Examples
        --------
        >>> Cuts((8,), offsets=(0, 3, 3, 8)).neighbours(2)
        (0, None)
        """
        if self.local_shape(process)[self.axis] == 0:
            return None, None
        cut = self.axes[self.axis]
        start, stop = self.offsets[process], self.offsets[process + 1]
        before, after = cut.locate(np.array([start - 1, min(stop, cut.extent - 1)]))[0].tolist()
        return before if start > 0 else None, after if stop < cut.extent else None

    @classmethod
    def even(cls, shape: Sequence[int], nprocs: int, axis: int = 0) -> Cuts:
        """Cut one axis into ``nprocs`` parts whose sizes differ by at most 1, larger ones first.

        Raises
        ------
        ValueError : nprocs < 1, there is no such axis, or a negative extent.
        """
        whole = extents("shape", shape, least=0)
        if nprocs < 1:
            raise ValueError(f"nprocs must be >= 1, got {nprocs}")
        axis = checked_axis(axis, whole)
        return cls(whole, even_offsets(whole[axis], nprocs), axis)

    @classmethod
    def by_weight(cls, weights: Sequence[int] | NDArray[np.int64], nprocs: int) -> Cuts:
        """Cut a sequence of items so that the heaviest part is as light as possible.

        Parameters
        ----------
        weights : (n,) non-negative integers, for example the number of stored entries in each row
            of a sparse matrix; scale measured times to integers. The layout has shape (n,).
        nprocs : number of parts. The last ones may be empty.

        Raises
        ------
        ValueError : nprocs < 1, or weights that are not non-negative integers.

        Examples
        --------
        >>> Cuts.by_weight([1, 1, 1, 1, 8, 1], nprocs=3).offsets
        (0, 4, 5, 6)
        """
        row = np.asarray(weights)
        if row.ndim != 1 or (row.size and row.dtype.kind not in "iu"):
            raise ValueError(f"weights must be a row of integers, got {row.dtype} {row.shape}")
        if row.size and row.min() < 0:
            raise ValueError(f"weights must be >= 0, got {row.min()} at {row.argmin()}")
        if nprocs < 1:
            raise ValueError(f"nprocs must be >= 1, got {nprocs}")
        sums = np.cumsum(row, dtype=np.int64)
        total = int(sums[-1]) if row.size else 0
        # Bisect for the least weight that no part has to exceed.
        low, high = max(-(-total // nprocs), int(row.max(initial=0))), total
        while low < high:
            middle = (low + high) // 2
            if _offsets_within(sums, middle, nprocs)[-1] == row.size:
                high = middle
            else:
                low = middle + 1
        return cls((row.size,), _offsets_within(sums, low, nprocs))


class Dealt(Layout, msgspec.Struct, frozen=True):
    """Intervals of the first axis dealt to processes, the other axes whole.

    Parameters
    ----------
    shape : global extents.
    offsets : ascending cuts from 0 to shape[0]; intervals may be empty.
    owner_of : the process of each interval. It holds its intervals in their order.
    nprocs : number of processes; some may have no interval.

    Raises
    ------
    ValueError : the offsets do not ascend from 0 to the extent, or there is not one owner in
        [0, nprocs) for each interval.

    Examples
    --------
    >>> Dealt((9,), offsets=(0, 2, 3, 9), owner_of=(1, 0, 1), nprocs=3).global_indices(1)
    (array([0, 1, 3, 4, 5, 6, 7, 8]),)
    """

    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    owner_of: tuple[int, ...]
    nprocs: int

    def __post_init__(self) -> None:
        """Check and normalise the arguments."""
        shape = extents("shape", self.shape, least=0)
        offsets = checked_offsets(self.offsets, 0, shape[0])
        owners, owned = tuple(map(index, self.owner_of)), len(offsets) - 1
        if len(owners) != owned or not all(0 <= p < self.nprocs for p in owners):
            raise ValueError(
                f"owner_of must name a process in [0, {self.nprocs}) for each of {owned} "
                f"intervals, got {owners}"
            )
        set_fields(self, shape=shape, offsets=offsets, owner_of=owners)
        whole = (CutAxis((0, extent)) for extent in shape[1:])
        axes = (DealtAxis(offsets, owners, self.nprocs), *whole)
        set_one_dimension(self, self.nprocs, 0, axes)


class Replicated(Layout, msgspec.Struct, frozen=True):
    """Every process holds the whole array.

    Parameters
    ----------
    shape : global extents, which are also the local ones.
    nprocs : number of processes, each with a copy.

    Raises
    ------
    ValueError : nprocs < 1 or a negative extent.
    """

    shape: tuple[int, ...]
    nprocs: int

    def __post_init__(self) -> None:
        """Check and normalise the arguments."""
        set_fields(self, shape=extents("shape", self.shape, least=0))
        if self.nprocs < 1:
            raise ValueError(f"nprocs must be >= 1, got {self.nprocs}")
        axes = [CutAxis((0, extent)) for extent in self.shape]
        set_one_dimension(self, index(self.nprocs), None, axes)


def set_fields(layout: Layout, **values: object) -> None:
    """Set attributes of a layout, which is frozen, in its __post_init__."""
    assert isinstance(layout, msgspec.Struct)
    for name, value in values.items():
        force_setattr(layout, name, value)


def set_one_dimension(layout: Layout, nprocs: int, axis: int | None, axes: Sequence[Axis]) -> None:
    """Set the fields of a layout whose process grid has one dimension, which divides an axis."""
    set_fields(layout, nprocs=nprocs, grid=(nprocs,), cut=(axis,), axes=tuple(axes))


def set_grid(layout: Layout) -> tuple[int, ...]:
    """Check and normalise the shape, grid and cut of a layout, and set the number of processes.

    Returns
    -------
    number of parts of each axis.

    Raises
    ------
    ValueError : as in `BlockCyclic`.
    """
    shape = extents("shape", layout.shape, least=0)
    grid, ndim = extents("grid", layout.grid, least=1), len(shape)
    if not layout.cut and len(grid) != ndim:
        raise ValueError(
            f"shape and grid must have one entry for each axis unless cut is given, got shape "
            f"{shape}, grid {grid}"
        )
    cut = checked_cut(layout.cut or range(ndim), shape)
    if len(cut) != len(grid):
        raise ValueError(
            f"cut must have one entry for each dimension of the grid {grid}, got {cut}"
        )
    set_fields(layout, shape=shape, grid=grid, cut=cut, nprocs=math.prod(grid))
    parts = [1] * ndim
    for axis, count in zip(cut, grid, strict=True):
        if axis is not None:
            parts[axis] = count
    return tuple(parts)


def _offsets_within(sums: Indices, limit: int, nprocs: int) -> tuple[int, ...]:
    """Offsets of parts that are each as long as possible with a weight of at most ``limit``.

    ``sums`` are the running sums of the weights.
    """
    offsets, weight = [0], 0
    for _ in range(nprocs):
        offsets.append(int(np.searchsorted(sums, weight + limit, side="right")))
        weight = int(sums[offsets[-1] - 1]) if offsets[-1] else 0
    return tuple(offsets)


def extents(name: str, values: Sequence[int], least: int) -> tuple[int, ...]:
    """``values`` as a non-empty tuple of Python integers >= ``least``."""
    checked = tuple(index(value) for value in values)
    if not checked:
        raise ValueError(f"{name} must have at least one axis, got {values!r}")
    for value in checked:
        if value < least:
            raise ValueError(f"{name} must have entries >= {least}, got {checked}")
    return checked
