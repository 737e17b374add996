"""One block for each process of a process grid, and the points around it that a stencil reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import msgspec
import numpy as np

from redistribution.axes import Cut, CutAxis, checked_axis, checked_offsets, even_offsets
from redistribution.layout import Layout, set_fields, set_grid


@lru_cache(maxsize=1024)
def balanced_grid(nprocs: int, ndim: int) -> tuple[int, ...]:
    """Process grid whose dimensions are as equal as possible, the largest first.

    It is the grid of MPI_Dims_create, but does not depend on the MPI library: of all grids with
    descending dimensions, the first in lexicographic order.

    Raises
    ------
    ValueError : nprocs or ndim is < 1.

    Examples
    --------
    >>> balanced_grid(12, 2), balanced_grid(12, 3), balanced_grid(7, 2)
    ((4, 3), (3, 2, 2), (7, 1))
    """
    if nprocs < 1 or ndim < 1:
        raise ValueError(f"nprocs and ndim must be >= 1, got {nprocs} and {ndim}")
    small = [d for d in range(1, math.isqrt(nprocs) + 1) if nprocs % d == 0]
    divisors = sorted({*small, *(nprocs // d for d in small)})
    return min(_grids(nprocs, ndim, divisors))


def _grids(nprocs: int, ndim: int, divisors: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all grids of `ndim` descending dimensions."""
    if ndim == 1:
        yield (nprocs,)
        return
    for largest in divisors:
        if nprocs % largest == 0 and largest**ndim >= nprocs:
            for rest in _grids(nprocs // largest, ndim - 1, divisors):
                if rest[0] <= largest:
                    yield (largest, *rest)


class Blocks(Layout, msgspec.Struct, frozen=True):
    """Contiguous parts on every divided axis over a process grid, by default even ones.

    Parameters
    ----------
    shape : global extents.
    grid : number of processes along each dimension of the grid; processes are numbered row-major.
    cut : the axis that each dimension of the grid divides, or None if the processes along it hold
        copies; default: all axes in order.
    offsets : for each axis the ascending cuts from 0 to its extent, one more than it has parts, or
        None for even parts. These differ by at most 1, larger ones first; a part is empty if the
        axis is shorter than its dimension of the grid.

    Raises
    ------
    ValueError : lengths differ, an extent is negative, a grid entry is < 1, an entry of ``cut`` is
        no axis or occurs twice, or offsets do not ascend from 0 to the extent of their axis.

    Examples
    --------
    >>> Blocks(shape=(10, 7), grid=(2, 2)).local_shape(1)
    (5, 3)

    Five fields on a grid of points, a vector along the first axis of that grid, and a field with
    one more point on this axis:

    >>> Blocks((5, 10, 7), grid=(2, 2), cut=(1, 2)).local_shape(1)
    (5, 5, 3)
    >>> Blocks((10,), grid=(2, 2), cut=(0, None)).local_shape(1)
    (5,)
    >>> Blocks((11, 7), grid=(2, 2), offsets=((0, 5, 11), None)).local_shape(2)
    (6, 4)
    """

    shape: tuple[int, ...]
    grid: tuple[int, ...]
    cut: Cut = ()
    offsets: tuple[tuple[int, ...] | None, ...] = ()

    def __post_init__(self) -> None:
        """Check and normalise the arguments."""
        parts = set_grid(self)
        per_axis = self.offsets or (None,) * len(self.shape)
        if len(per_axis) != len(self.shape):
            raise ValueError(
                f"offsets must have one entry for each axis of shape {self.shape}, got {per_axis}"
            )
        offsets = []
        for axis, (own, extent, count) in enumerate(zip(per_axis, self.shape, parts, strict=True)):
            cuts = even_offsets(extent, count) if own is None else own
            offsets.append(checked_offsets(cuts, axis, extent))
            if len(offsets[-1]) != count + 1:
                raise ValueError(
                    f"offsets of axis {axis} must have {count + 1} entries for {count} parts, "
                    f"got {offsets[-1]}"
                )
        set_fields(self, offsets=tuple(offsets), axes=tuple(map(CutAxis, offsets)))

    def neighbours(
        self, process: int, axis: int, periodic: bool = False
    ) -> tuple[int | None, int | None]:
        """Processes with the points before the first and after the last ones along an axis.

        None at an end of an axis that is not periodic, and on both sides if the block is empty.

        Raises
        ------
        ValueError : there is no such process or axis.

        Examples
        --------
        >>> Blocks((9, 9), grid=(3, 2)).neighbours(3, axis=0)
        (1, 5)
        """
        axis = checked_axis(axis, self.shape)
        if 0 in self.local_shape(process):
            return None, None
        parts = {
            ghost.position < 0: ghost.part for ghost in self.ghosts(process, axis, 1, periodic)
        }
        before, after = (
            None if part is None else self.process_at(process, axis, part)
            for part in (parts.get(True), parts.get(False))
        )
        return before, after

    def process_at(self, process: int, axis: int, part: int) -> int:
        """Process with the place of ``process`` in the grid, but another coordinate on one axis."""
        stride = self.nprocs
        for extent, divided in zip(self.grid, self.cut, strict=True):
            stride //= extent
            if divided == axis:
                process += (part - process // stride % extent) * stride
        return process

    def ghosts(self, process: int, axis: int, width: int, periodic: bool) -> list[Ghosts]:
        """Points of other parts, or of the own one, within `width` of a part along an axis.

        A part that is narrower than `width` is one of several that the points belong to. There are
        none beyond the edges of an axis that is not periodic, and none around an empty part.
        """
        cuts = cast(CutAxis, self.axes[axis])
        return _ghosts(cuts, self.coordinates(process)[axis], width, periodic)


class Ghosts(NamedTuple):
    """Consecutive points near a part of an axis, all of one part.

    Attributes
    ----------
    part : the part that they belong to.
    start : local index there of the first one.
    position : index of the first one relative to the first point of the part that they are near.
    length : number of points.
    """

    part: int
    start: int
    position: int
    length: int


@lru_cache(maxsize=1024)
def _ghosts(cut: CutAxis, part: int, width: int, periodic: bool) -> list[Ghosts]:
    low, high = cut.offsets[part : part + 2]
    if low == high:
        return []
    positions = np.concatenate([np.arange(-width, 0), high - low + np.arange(width)])
    indices = low + positions
    if periodic:
        indices %= cut.extent
    else:
        inside = (indices >= 0) & (indices < cut.extent)
        positions, indices = positions[inside], indices[inside]
    parts, local = cut.locate(indices)
    begins = np.ones(len(indices), bool)
    begins[1:] = (np.diff(positions) != 1) | (np.diff(local) != 1) | (np.diff(parts) != 0)
    first = np.flatnonzero(begins)
    lengths = np.diff(np.append(first, len(indices)))
    columns = (parts[first], local[first], positions[first], lengths)
    return [Ghosts(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
