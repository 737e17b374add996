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

    def factor(self, node: int, begin: float, request: Request, count: int) -> float:
        """Penalty factor of this many processes of a job on a node."""
        capacity = self.capacity
        if capacity is None or not request.length_s > 0:
            return 1.0
        end = begin + request.length_s
        own = times(count, request.demand)
        uses = self._uses.get(node, [])
        uses = [use for use in uses if use[0] < end and use[1] > begin]
        if not uses:
            return 1.0 + capacity.penalty(own)
        at = {begin, end}
        for use in uses:
            at.add(max(use[0], begin))
            at.add(min(use[1], end))
        steps = sorted(at)
        penalised_s = 0.0
        for i in range(len(steps) - 1):
            total = own
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
    """Improve first fit at its start, or at later ones until a threshold is met (7.2, 7.3)."""
    best: Allocation | None = None
    accepted = 1.0 if threshold is None else threshold
    for begin, free in _starts(table, request):
        found = _improved(table, request, begin, free, accepted)
        if threshold is None or found.factor <= threshold:
            return found
        if best is None or found.factor < best.factor:
            best = found
    # What is found for a start that is limited may be improved by waiting.
    return best if request.latest == inf else None


def least_slowdown(
    table: SlowReservationTable, request: Request, thresholds: Sequence[float]
) -> Allocation | None:
    """Search each threshold by itself; take the least slowdown, then the lowest factor (7.4).

    A threshold that no start meets does not count, unless no start meets any.
    """
    anytime = request._replace(latest=inf)
    found = [(factor, less_consume(table, anytime, factor)) for factor in thresholds]
    allocations = [each for _, each in found if each is not None]
    met = [each for factor, each in found if each is not None and each.factor <= factor]
    best = min(
        met or allocations,
        key=lambda each: (each.begin + each.factor * request.length_s, each.factor),
        default=None,
    )
    return None if best is None or best.begin > request.latest else best


#: Slow twin of each selection, by its name.
PLACE: dict[str, Callable[[SlowReservationTable, Request], Allocation | None]] = {
    "table-first-fit": first_fit,
    "equi-distribute": spread,
    "less-consume": less_consume,
    "less-consume-threshold": partial(less_consume, threshold=1.0),
    "rua": partial(least_slowdown, thresholds=(1.0, 1.15, 1.25, 1.5)),
}


def _starts(table: SlowReservationTable, request: Request) -> Iterator[tuple[float, list[int]]]:
    """Possible starts of a job, with the processors that are free for its length."""
    return table.free(request.processors, request.length_s, request.after, request.latest)


def _improved(
    table: SlowReservationTable, request: Request, begin: float, free: list[int], accepted: float
) -> Allocation:
    """Let each further processor replace the one of the highest factor if its own is lower."""
    chosen = free[: request.processors]
    for processor in free[request.processors :]:
        factors = _factors(table, request, begin, chosen)
        worst = max(factors, key=lambda node: (factors[node], -node))
        if factors[worst] <= accepted:
            break
        node = table.node(processor)
        count = 1 + sum(table.node(each) == node for each in chosen)
        if node != worst and table.factor(node, begin, request, count) < factors[worst]:
            chosen.remove(min(each for each in chosen if table.node(each) == worst))
            chosen.append(processor)
    return Allocation(ProcSet.of(chosen), begin, _worst(table, request, begin, chosen))


def _factors(
    table: SlowReservationTable, request: Request, begin: float, chosen: list[int]
) -> dict[int, float]:
    """Penalty factor on each node of these processors."""
    nodes = [table.node(processor) for processor in chosen]
    return {node: table.factor(node, begin, request, nodes.count(node)) for node in set(nodes)}


def _worst(table: SlowReservationTable, request: Request, begin: float, chosen: list[int]) -> float:
    """Largest penalty factor of the processes."""
    return max(_factors(table, request, begin, chosen).values())
