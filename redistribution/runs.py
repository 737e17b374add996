"""The joint runs of two divisions of one axis, and transfers, which are products of runs.

A run is a sequence of consecutive indices with one owner in the source and one in the target. Runs
must be derived from both divisions at once: if each side grouped its own runs, their orders would
differ whenever the block lengths differ.

Block-cyclic ownership is periodic, so runs are stored in families: the same run, repeated after
each ``period`` of the axis. The cost of a plan is then that of one period and does not depend on
the extent, and a family is one strided view of the local array.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from redistribution.axes import Axis, CutAxis, CyclicAxis, DealtAxis, Indices
from redistribution.layout import MemoryOrder

# Most runs of a message along an axis that are listed singly.
MOST_SINGLE_RUNS = 1024


class Run(NamedTuple):
    """A family: ``repeats`` runs of ``length`` indices that go from one local array to another.

    Repetition k starts at ``source + k * source_step`` in the sender's local index, at
    ``target + k * target_step`` in the receiver's, and at ``message + k * length`` in the message.
    """

    length: int
    repeats: int
    source: int
    source_step: int
    target: int
    target_step: int
    message: int

    @property
    def is_in_place(self) -> bool:
        """Whether all indices of the sender and of the receiver are the same."""
        same_steps = self.repeats == 1 or self.source_step == self.target_step
        return self.source == self.target and same_steps


def extent_of(runs: Sequence[Run]) -> int:
    """Extent of the message that ``runs`` fill."""
    return runs[-1].message + runs[-1].length * runs[-1].repeats


def halve(runs: tuple[Run, ...]) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """Split the runs of a message into those of two non-empty messages.

    The split is near the middle, between two repetitions of a family if possible.
    """
    middle = extent_of(runs) // 2
    assert middle > 0
    at = max(k for k, run in enumerate(runs) if run.message <= middle)
    first, second = runs[:at], runs[at:]
    if middle > runs[at].message:
        before, after = _split_run(runs[at], middle - runs[at].message)
        first, second = (*first, before), (after, *runs[at + 1 :])
    start = second[0].message
    return first, tuple(run._replace(message=run.message - start) for run in second)


def _split_run(run: Run, near: int) -> tuple[Run, Run]:
    """Split one family into two, the first of about ``near`` indices."""
    if run.repeats == 1:
        return run._replace(length=near), run._replace(
            length=run.length - near,
            source=run.source + near,
            target=run.target + near,
            message=run.message + near,
        )
    kept = max(1, near // run.length)
    return run._replace(repeats=kept), run._replace(
        repeats=run.repeats - kept,
        source=run.source + kept * run.source_step,
        target=run.target + kept * run.target_step,
        message=run.message + kept * run.length,
    )


class Transfer(NamedTuple):
    """The elements that go from one source process to one target process: a product of runs.

    Attributes
    ----------
    peer : the other rank of the communicator; the rank itself for elements that stay.
    runs : the families of runs on each axis.
    shape : extents of the message that they fill.
    """

    peer: int
    runs: tuple[tuple[Run, ...], ...]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, peer: int, runs: tuple[tuple[Run, ...], ...]) -> Transfer:
        """Transfer of ``runs``, with its shape."""
        return cls(peer, runs, tuple(extent_of(along) for along in runs))

    @property
    def elements(self) -> int:
        """Number of elements that move."""
        return math.prod(self.shape)


def pieces(transfer: Transfer, limit: int, order: MemoryOrder) -> Iterator[Transfer]:
    """Split a transfer into transfers of at most ``limit`` elements each.

    The splits are made across the axis that is outermost in memory order, which keeps runs long.
    The sender and the receiver of a transfer get the same pieces in the same order.
    """
    if transfer.elements <= limit:
        yield transfer
        return
    axes = range(len(transfer.shape)) if order == "C" else reversed(range(len(transfer.shape)))
    axis = next(axis for axis in axes if transfer.shape[axis] > 1)
    for half in halve(transfer.runs[axis]):
        runs = (*transfer.runs[:axis], half, *transfer.runs[axis + 1 :])
        yield from pieces(Transfer.of(transfer.peer, runs), limit, order)


class JointAxis:
    """All families of runs between two divisions of one axis.

    Attributes
    ----------
    elements : (source.parts, target.parts) int64, number of indices that each pair of coordinates
        shares.
    """

    def __init__(self, source: Axis, target: Axis) -> None:
        table = _families(source, target)
        self.elements = np.zeros((source.parts, target.parts), dtype=np.int64)
        np.add.at(self.elements, (table[:, 0], table[:, 1]), table[:, 2] * table[:, 3])
        # A stable sort gives sender and receiver the families of their pair in the same order.
        self._by_source = table[np.argsort(table[:, 0], kind="stable")]
        self._by_target = table[np.argsort(table[:, 1], kind="stable")]

    def from_source(self, part: int) -> dict[int, tuple[Run, ...]]:
        """Runs that source coordinate ``part`` sends, by target coordinate."""
        return _runs_by_peer(self._by_source, part, own=0, other=1)

    def to_target(self, part: int) -> dict[int, tuple[Run, ...]]:
        """Runs that target coordinate ``part`` receives, by source coordinate."""
        return _runs_by_peer(self._by_target, part, own=1, other=0)


def joint_axis(source: Axis, target: Axis) -> JointAxis:
    """`JointAxis` of two divisions of the same extent, cached unless one is dealt: none recurs."""
    assert source.extent == target.extent
    is_dealt = isinstance(source, DealtAxis) or isinstance(target, DealtAxis)
    return JointAxis(source, target) if is_dealt else cached_joint_axis(source, target)


cached_joint_axis = lru_cache(maxsize=256)(JointAxis)


def _runs_by_peer(
    table: NDArray[np.int64], part: int, own: int, other: int
) -> dict[int, tuple[Run, ...]]:
    """Families of ``part``, grouped by column ``other`` of ``table``, which is sorted by ``own``.

    Runs that are consecutive on both sides are merged, since long runs are copied faster.
    """
    first, last = np.searchsorted(table[:, own], [part, part + 1])
    groups: dict[int, list[Run]] = {}
    for row in table[first:last].tolist():
        runs = groups.setdefault(row[other], [])
        run = Run._make([*row[2:], extent_of(runs) if runs else 0])
        if run.source_step == run.target_step == run.length:
            run = run._replace(length=run.length * run.repeats, repeats=1)
        _append(runs, run)
    return {peer: _in_order(runs) for peer, runs in groups.items()}


def _in_order(runs: list[Run]) -> tuple[Run, ...]:
    """Runs in the order of their indices, as far as these are not too many.

    Families that lie between one another are written out as single runs. A copy then advances
    through memory once, instead of once for each family.
    """
    ends = [run.target + (run.repeats - 1) * run.target_step for run in runs]
    interleaved = any(end > after.target for end, after in zip(ends, runs[1:], strict=False))
    if not interleaved or sum(run.repeats for run in runs) > MOST_SINGLE_RUNS:
        return tuple(runs)
    table = np.array(runs, np.int64)
    repeats = table[:, 1]
    family = np.repeat(np.arange(len(table)), repeats)
    turn = np.arange(len(family)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    length, _, source, source_step, target, target_step, _ = table[family].T
    source, target = source + turn * source_step, target + turn * target_step
    order = np.argsort(target)
    columns = (length[order].tolist(), source[order].tolist(), target[order].tolist())
    single: list[Run] = []
    for size, local, remote in zip(*columns, strict=True):
        message = extent_of(single) if single else 0
        _append(single, Run(size, 1, local, size, remote, size, message))
    return tuple(single)


def _append(runs: list[Run], run: Run) -> None:
    """Append a run, or join it to the last one if it begins where that ends on both sides."""
    last = runs[-1] if runs else None
    if (
        last is not None
        and run.repeats == last.repeats == 1
        and (run.source, run.target) == (last.source + last.length, last.target + last.length)
    ):
        runs[-1] = last._replace(length=last.length + run.length)
    else:
        runs.append(run)


def _ascending(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the different values in ascending order; there is at least one.

    `numpy.unique` would import `numpy.ma` in the first resize of a job, which takes 10 to 30 ms.
    """
    ordered = np.sort(values)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]


def _families(source: Axis, target: Axis) -> NDArray[np.int64]:
    """Table with columns source part, target part, length, repeats, source, step, target, step.

    The axis is cut into zones in which every division either repeats with a common period or has
    a single owner (the division is "fixed"); one period of each zone is listed. Either holds for a
    cyclic division; with very different blocks it is cheaper to make each large block a zone.
    """
    extent = source.extent
    if extent == 0:
        return np.empty((0, 8), dtype=np.int64)
    fixed = min(
        product(_fixed_choices(source), _fixed_choices(target)),
        key=lambda choice: _estimated_families(source, target, *choice),
    )
    cyclic = [
        axis
        for axis, is_fixed in zip((source, target), fixed, strict=True)
        if isinstance(axis, CyclicAxis) and axis.parts > 1 and not is_fixed
    ]
    period = min(extent, math.lcm(*(axis.block * axis.parts for axis in cyclic)))

    zones = _ascending(
        np.concatenate([_zone_edges(source, fixed[0]), _zone_edges(target, fixed[1])])
    )
    low, high = zones[:-1], zones[1:]
    window = np.minimum(low + period, high)
    inner = [_multiples(axis.block, low, window) for axis in cyclic]
    starts = _ascending(np.concatenate([low, *inner]))
    zone = np.searchsorted(low, starts, side="right") - 1
    lengths = np.minimum(np.append(starts[1:], extent), window[zone]) - starts
    # Indices from the start of each run to the end of its zone in the last, partial period.
    periods = ((high - low) // period)[zone]
    left = high[zone] - starts - periods * period
    counts = periods + (left >= lengths)
    cut = (left > 0) & (left < lengths)
    starts = np.concatenate([starts, (starts + periods * period)[cut]])
    lengths = np.concatenate([lengths, left[cut]])
    counts = np.concatenate([counts, np.ones(np.count_nonzero(cut), np.int64)])

    source_part, source_start = source.locate(starts)
    target_part, target_start = target.locate(starts)
    return np.stack(
        [
            source_part,
            target_part,
            lengths,
            counts,
            source_start,
            np.full_like(starts, _local_step(source, fixed[0], period)),
            target_start,
            np.full_like(starts, _local_step(target, fixed[1], period)),
        ],
        axis=1,
    )


def _fixed_choices(axis: Axis) -> tuple[bool, ...]:
    """Whether the division can be treated as not fixed and as fixed within a zone."""
    if isinstance(axis, CutAxis):
        return (True,)
    return (False, True) if axis.parts > 1 else (False,)


def _estimated_families(
    source: Axis, target: Axis, source_fixed: bool, target_fixed: bool
) -> float:
    """Estimate the number of families that `_families` lists for this choice."""
    extent, zones, period, density = source.extent, 1, 1, 0.0
    for axis, fixed in ((source, source_fixed), (target, target_fixed)):
        if isinstance(axis, CutAxis):
            zones += len(axis.offsets) - 2
        elif fixed:
            zones += extent // axis.block
        elif axis.parts > 1:
            period = math.lcm(period, axis.block * axis.parts)
            density += 1 / axis.block
    return zones * (1 + density * min(period, extent / zones))


def _zone_edges(axis: Axis, fixed: bool) -> Indices:
    """Edges of the zones that this division requires, from 0 to the extent."""
    if isinstance(axis, CutAxis):
        return axis.edges
    if fixed:
        return np.append(np.arange(0, axis.extent, axis.block, dtype=np.int64), axis.extent)
    return np.array([0, axis.extent], dtype=np.int64)


def _multiples(block: int, low: Indices, high: Indices) -> Indices:
    """All multiples of ``block`` inside the open intervals (low[k], high[k])."""
    first = low // block + 1
    counts = np.maximum((high - 1) // block - first + 1, 0)
    before = np.cumsum(counts) - counts
    return (np.repeat(first - before, counts) + np.arange(counts.sum())) * block


def _local_step(axis: Axis, fixed: bool, period: int) -> int:
    """Increase of the local index while the global index increases by one period."""
    one_owner = fixed or isinstance(axis, CutAxis) or axis.parts == 1
    return period if one_owner else period // axis.parts
