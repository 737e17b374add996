"""Slow twin of the reservation table and its searches: a list of uses for each processor."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from scheduler.model.procset import ProcSet
from scheduler.model.sharing import Demand, SharedCapacity, summed, times
from scheduler.state.reservation_table import Allocation, Request


class Bucket(NamedTuple):
    """Interval in which a processor is free, s."""

    begin: float
    processor: int
    end: float


class SlowReservationTable:
    """Uses of each processor over time, as a list.

    Parameters
    ----------
    processors : that are up.
    capacity : shared resources of the nodes; None: no penalties.
    """

    def __init__(self, processors: ProcSet, capacity: SharedCapacity | None = None) -> None:
        self.processors = processors
        self.capacity = capacity
        self._per_node = 1 if capacity is None else capacity.processors_per_node
        self._busy: dict[int, list[tuple[float, float]]] = {}
        self._uses: dict[int, list[tuple[float, float, Demand]]] = {}  # by node

    def node(self, processor: int) -> int:
        """Node of a processor; without shared resources, each is a node of its own."""
        return processor // self._per_node

    def put(self, processors: ProcSet, begin: float, end: float, demand: Demand = ()) -> None:
        """Let a job use processors, which are free, from `begin` to `end` (s).

        Parameters
        ----------
        demand : of each process.
        """
        counts: dict[int, int] = {}
        for processor in processors:
            insort(self._busy.setdefault(processor, []), (begin, end))
            node = self.node(processor)
            counts[node] = counts.get(node, 0) + 1
        if self.capacity is not None and any(demand):
            for node, count in counts.items():
                self._uses.setdefault(node, []).append((begin, end, times(count, demand)))

    def buckets(self, after: float, length_s: float) -> list[Bucket]:
        """First bucket of each processor that is long enough, ascending in begin and number."""
        found: list[Bucket] = []
        for processor in self.processors:
            begin, end = after, inf
            for taken_from, taken_until in self._busy.get(processor, ()):
                if taken_until <= begin:
                    continue
                if taken_from >= begin + length_s:
                    end = taken_from
                    break
                begin = taken_until
            if begin < inf:
                found.append(Bucket(begin, processor, end))
        found.sort()
        return found

    def free(
        self, needed: int, length_s: float, after: float, latest: float = inf
    ) -> Iterator[tuple[float, list[int]]]:
        """Times at which enough processors are free for `length_s`, and their numbers, ascending.

        The times are `after` and the begins of later buckets, up to `latest`.
        """
        buckets: list[Bucket] = []
        for processor in self.processors:
            begin = after
            for taken_from, taken_until in self._busy.get(processor, ()):
                if taken_until <= begin:
                    continue
                if taken_from >= begin + length_s:
                    buckets.append(Bucket(begin, processor, taken_from))
                begin = taken_until
            if begin < inf:
                buckets.append(Bucket(begin, processor, inf))
        buckets.sort()
        active: set[int] = set()
        ends: list[tuple[float, int]] = []
        i = 0
        while i < len(buckets) and buckets[i].begin <= latest:
            begin = buckets[i].begin
            while ends and ends[0][0] < begin + length_s:
                active.discard(heappop(ends)[1])
            while i < len(buckets) and buckets[i].begin == begin:
                bucket = buckets[i]
                active.add(bucket.processor)
                if bucket.end < inf:
                    heappush(ends, (bucket.end, bucket.processor))
                i += 1
            if len(active) >= needed:
                yield begin, sorted(active)

    def factor(self, processor: int, begin: float, request: Request) -> float:
        """Penalty factor of a job of one process on a processor (GUIM 7.2, footnote 3).

        The other processes of the job are not counted.
        """
        capacity = self.capacity
        if capacity is None or not request.length_s > 0:
            return 1.0
        end = begin + request.length_s
        uses = self._uses.get(self.node(processor), [])
        uses = [use for use in uses if use[0] < end and use[1] > begin]
        if not uses:
            return 1.0 + capacity.penalty(request.demand)
        at = {begin, end}
        for use in uses:
            at.add(max(use[0], begin))
            at.add(min(use[1], end))
        steps = sorted(at)
        penalised_s = 0.0
        for i in range(len(steps) - 1):
            total = request.demand
            for use in uses:
                if use[0] <= steps[i] and use[1] >= steps[i + 1]:
                    total = summed(total, use[2])
            penalised_s += capacity.penalty(total) * (steps[i + 1] - steps[i])
        return 1.0 + penalised_s / request.length_s


def first_fit(table: SlowReservationTable, request: Request) -> Allocation | None:
    """Find the earliest start, and the processors of the lowest numbers (6.2.2, first fit)."""
    for begin, free in _starts(table, request):
        chosen = free[: request.processors]
        return Allocation(ProcSet.of(chosen), begin, _worst(table, request, begin, chosen))
    return None


def first_continuous_fit(table: SlowReservationTable, request: Request) -> Allocation | None:
    """Find the earliest start on processors of consecutive numbers (6.2.2)."""
    needed = request.processors
    for begin, free in _starts(table, request):
        for i in range(len(free) - needed + 1):
            if free[i + needed - 1] - free[i] == needed - 1:
                chosen = free[i : i + needed]
                return Allocation(ProcSet.of(chosen), begin, _worst(table, request, begin, chosen))
    return None


def spread(table: SlowReservationTable, request: Request) -> Allocation | None:
    """Find the earliest start, and deal the processes to the nodes in turn (4.7.3)."""
    for begin, free in _starts(table, request):
        by_node: dict[int, list[int]] = {}
        for processor in free:
            by_node.setdefault(table.node(processor), []).append(processor)
        turns = [
            (turn, processor) for here in by_node.values() for turn, processor in enumerate(here)
        ]
        turns.sort()
        chosen = [processor for _, processor in turns[: request.processors]]
        return Allocation(ProcSet.of(chosen), begin, _worst(table, request, begin, chosen))
    return None


def less_consume(
    table: SlowReservationTable, request: Request, threshold: float | None = None
) -> Allocation | None:
    """Improve first fit: replace the buckets of the highest penalties (7.2, 7.3).

    Parameters
    ----------
    threshold : largest accepted penalty factor; later starts are tried until there is one. If no
        start has one, the allocation of the least factor is returned. None: the best that the
        buckets of first fit lead to, whatever its factor.
    """
    best: Allocation | None = None
    accepted = 1.0 if threshold is None else threshold
    for begin, free in _starts(table, request):
        found = _improved(table, request, begin, free, accepted)
        if threshold is None or found.factor <= threshold:
            return found if found.begin <= request.latest else None
        if best is None or found.factor < best.factor:
            best = found
    # What is found for a start that is limited may be improved by waiting.
    return best if request.latest == inf else None


def least_slowdown(
    table: SlowReservationTable, request: Request, thresholds: Sequence[float]
) -> Allocation | None:
    """Search each threshold by itself, and take the least slowdown (7.4)."""
    anytime = request._replace(latest=inf)
    found = [less_consume(table, anytime, factor) for factor in thresholds]
    best = min(
        (each for each in found if each is not None),
        key=lambda each: each.begin + each.factor * request.length_s,
        default=None,
    )
    return None if best is None or best.begin > request.latest else best


def continuous_or_any(table: SlowReservationTable, request: Request) -> Allocation | None:
    """Take consecutive processors unless other ones are free earlier (4.7.3)."""
    found, continuous = first_fit(table, request), first_continuous_fit(table, request)
    if continuous is None or (found is not None and found.begin < continuous.begin):
        return found
    return continuous


#: Slow twin of each selection, by its name.
PLACE: dict[str, Callable[[SlowReservationTable, Request], Allocation | None]] = {
    "table-first-fit": first_fit,
    "table-continuous": first_continuous_fit,
    "first-fit-or-continuous": continuous_or_any,
    "equi-distribute": spread,
    "less-consume": less_consume,
    "less-consume-threshold": partial(less_consume, threshold=1.0),
    "rua": partial(least_slowdown, thresholds=(1.0, 1.15, 1.25, 1.5)),
}


def _starts(table: SlowReservationTable, request: Request) -> Iterator[tuple[float, list[int]]]:
    """Possible starts of a job, with the processors that are free for its length."""
    return table.free(request.processors, request.length_s, request.after, request.latest)


def _improved(
    table: SlowReservationTable, request: Request, at: float, free: list[int], accepted: float
) -> Allocation:
    """Steps 4 to 6 of LessConsume from the allocation of first fit on.

    A set that is valid replaces the last one unless its largest penalty is higher: a bucket that
    step 5 (a) adds may have any penalty.
    """
    needed, length_s = request.processors, request.length_s
    base = set(free[:needed])
    buckets = table.buckets(at, length_s)
    chosen = [bucket for bucket in buckets if bucket.processor in base]
    others = [bucket for bucket in buckets if bucket.processor not in base]
    known: dict[tuple[int, float], float] = {}

    def factor(bucket: Bucket) -> float:
        key = table.node(bucket.processor), bucket.begin
        found = known.get(key)
        if found is None:
            found = known[key] = table.factor(bucket.processor, bucket.begin, request)
        return found

    factors = [factor(bucket) for bucket in chosen]
    worst = max(factors)
    best = _allocation(chosen, worst)
    for bucket in others:
        if best.factor <= accepted:
            break
        penalty = factor(bucket)
        if len(chosen) == needed:
            if penalty >= worst:
                continue
            i = factors.index(worst)
            del chosen[i], factors[i]
        chosen.append(bucket)
        factors.append(penalty)
        begin = max([each.begin for each in chosen])
        sharing = [each.end >= begin + length_s for each in chosen]
        if not all(sharing):
            factors = [factors[i] for i in range(len(chosen)) if sharing[i]]
            chosen = [chosen[i] for i in range(len(chosen)) if sharing[i]]
        worst = max(factors)
        if len(chosen) == needed and worst <= best.factor:
            best = _allocation(chosen, worst)
    return best


def _allocation(chosen: list[Bucket], factor: float) -> Allocation:
    begin = max([bucket.begin for bucket in chosen])
    return Allocation(ProcSet.of([bucket.processor for bucket in chosen]), begin, factor)


def _worst(table: SlowReservationTable, request: Request, begin: float, chosen: list[int]) -> float:
    """Largest penalty factor of the processes."""
    if table.capacity is None:
        return 1.0
    one_each = {table.node(processor): processor for processor in chosen}
    return max([table.factor(processor, begin, request) for processor in one_each.values()])
