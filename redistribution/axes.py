"""Divisions of one axis among the coordinates of a process grid: in cycles, at cuts, or dealt."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from operator import index
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

Indices: TypeAlias = NDArray[np.int64]


class CyclicAxis(msgspec.Struct, frozen=True):
    """Blocks of ``block`` indices dealt in turn to the coordinates 0 .. parts - 1."""

    extent: int
    block: int
    parts: int

    def length(self, part: int) -> int:
        """Number of indices that coordinate ``part`` owns (ScaLAPACK's numroc)."""
        whole, rest = divmod(self.extent, self.block)
        rounds, extra = divmod(whole, self.parts)
        return rounds * self.block + (self.block if part < extra else rest if part == extra else 0)

    def indices(self, part: int) -> Indices:
        """Global indices of coordinate ``part`` in local order, (length(part),) int64."""
        local = np.arange(self.length(part), dtype=np.int64)
        return (local // self.block * self.parts + part) * self.block + local % self.block

    def locate(self, where: Indices) -> tuple[Indices, Indices]:
        """Owner coordinate and local index of each global index, both shaped like ``where``."""
        block, within = np.divmod(where, self.block)
        return block % self.parts, block // self.parts * self.block + within


class CutAxis(msgspec.Struct, frozen=True, dict=True):
    """Coordinate p owns [offsets[p], offsets[p + 1]); empty parts are allowed."""

    offsets: tuple[int, ...]

    @property
    def extent(self) -> int:
        """Global extent of the axis."""
        return self.offsets[-1]

    @property
    def parts(self) -> int:
        """Number of coordinates along the axis."""
        return len(self.offsets) - 1

    @cached_property
    def edges(self) -> Indices:
        """The offsets as (parts + 1,) int64."""
        return np.array(self.offsets, dtype=np.int64)

    def length(self, part: int) -> int:
        """Number of indices that coordinate ``part`` owns."""
        return self.offsets[part + 1] - self.offsets[part]

    def indices(self, part: int) -> Indices:
        """Global indices of coordinate ``part`` in local order, (length(part),) int64."""
        return np.arange(self.offsets[part], self.offsets[part + 1], dtype=np.int64)

    def locate(self, where: Indices) -> tuple[Indices, Indices]:
        """Owner coordinate and local index of each global index, both shaped like ``where``."""
        part = np.searchsorted(self.edges, where, side="right") - 1
        return part, where - self.edges[part]


class DealtAxis(CutAxis, frozen=True):
    """Interval [offsets[k], offsets[k + 1]) belongs to coordinate owners[k] of ``count``."""

    owners: tuple[int, ...]
    count: int

    @property
    def parts(self) -> int:
        """Number of coordinates along the axis."""
        return self.count

    @cached_property
    def _owner(self) -> Indices:
        """The owners as (intervals,) int64."""
        return np.array(self.owners, dtype=np.int64)

    @cached_property
    def _first(self) -> Indices:
        """Local index of the first index of each interval, (intervals,) int64."""
        lengths = np.diff(self.edges)
        by_owner = np.argsort(self._owner, kind="stable")
        before = np.cumsum(lengths[by_owner]) - lengths[by_owner]
        owned = np.bincount(self._owner, lengths, self.count).astype(np.int64)
        first = np.empty_like(lengths)
        first[by_owner] = before - (np.cumsum(owned) - owned)[self._owner[by_owner]]
        return first

    def length(self, part: int) -> int:
        """Number of indices that coordinate ``part`` owns."""
        return int(np.diff(self.edges)[self._owner == part].sum())

    def indices(self, part: int) -> Indices:
        """Global indices of coordinate ``part`` in local order, (length(part),) int64."""
        own = np.flatnonzero(self._owner == part)
        lengths = np.diff(self.edges)[own]
        starts = np.repeat(self.edges[own] - (np.cumsum(lengths) - lengths), lengths)
        return starts + np.arange(len(starts), dtype=np.int64)

    def locate(self, where: Indices) -> tuple[Indices, Indices]:
        """Owner coordinate and local index of each global index, both shaped like ``where``."""
        interval, within = super().locate(where)
        return self._owner[interval], self._first[interval] + within


Axis: TypeAlias = CyclicAxis | CutAxis


def owner_coordinates(axis: Axis, where: Indices) -> Indices:
    """Owner coordinate of each global index: from a table if there are many."""
    if len(where) <= axis.extent:
        return axis.locate(where)[0]
    return axis.locate(np.arange(axis.extent))[0][where]


#: For each dimension of a process grid, the axis that it divides; None if it divides none.
Cut: TypeAlias = tuple[int | None, ...]


def checked_axis(axis: int, shape: tuple[int, ...]) -> int:
    """``axis`` as a non-negative number.

    Raises
    ------
    ValueError : there is no such axis.
    """
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"axis must name one of the axes of shape {shape}, got {axis}")
    return index(axis) % len(shape)


def checked_cut(cut: Sequence[int | None], shape: tuple[int, ...]) -> Cut:
    """``cut`` with non-negative axes.

    Raises
    ------
    ValueError : an entry is no axis, or an axis occurs twice.
    """
    axes = tuple(None if axis is None else checked_axis(axis, shape) for axis in cut)
    divided = [axis for axis in axes if axis is not None]
    if len(set(divided)) < len(divided):
        raise ValueError(f"cut must name each axis once, got {axes}")
    return axes


def checked_offsets(offsets: Sequence[int], axis: int, extent: int) -> tuple[int, ...]:
    """``offsets`` as a tuple of Python integers.

    Raises
    ------
    ValueError : they do not ascend from 0 to the extent.
    """
    checked = tuple(index(offset) for offset in offsets)
    if len(checked) < 2 or checked[0] != 0 or checked[-1] != extent:
        raise ValueError(
            f"offsets must begin with 0 and end with {extent}, the extent of axis {axis}, "
            f"got {checked}"
        )
    for p, (start, stop) in enumerate(pairwise(checked)):
        if start > stop:
            raise ValueError(f"offsets must not descend, got {start} then {stop} for process {p}")
    return checked


def even_offsets(extent: int, parts: int) -> tuple[int, ...]:
    """Cuts of an axis into parts whose lengths differ by at most 1, larger ones first."""
    share, extra = divmod(extent, parts)
    return tuple(p * share + min(p, extra) for p in range(parts + 1))


def fitted_offsets(offsets: Sequence[int], extent: int) -> tuple[int, ...]:
    """Cuts of another axis, for one that has more or fewer indices at its end.

    Further indices belong to the last part that is not empty.

    Examples
    --------
    >>> fitted_offsets((0, 2, 4, 4), extent=5)
    (0, 2, 5, 5)
    """
    cuts = [min(offset, extent) for offset in offsets]
    last = max((p for p, (low, high) in enumerate(pairwise(cuts)) if low < high), default=0)
    return tuple(cut if p <= last else extent for p, cut in enumerate(cuts))
