"""The reservation table: which processor is free for how long (GUIM 6.2, figure 6.2).

GUIM: F. Guim, "Job-guided scheduling strategies for multi-site HPC infrastructures".

Each processor has the intervals in which running jobs and reservations use it. What is left are
*buckets*: intervals in which a processor is free. A selection takes the processors of a job from
buckets that are long enough, now or later. The table also has the penalty of one process of a job
on each node (`scheduler.model.sharing`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple, Protocol

from scheduler.model.procset import ProcSet
from scheduler.model.sharing import Demand, SharedCapacity, summed, times


class Request(NamedTuple):
    """What a job needs.

    Parameters
    ----------
    processors : number of them.
    length_s : estimated run time without penalties, s.
    demand : of each process for the shared resources of its node.
    after, latest : earliest and latest start, s; a search does not go beyond `latest`.
    waited_s : time since its submission, s.
    """

    processors: int
    length_s: float
    demand: Demand = ()
    after: float = 0.0
    latest: float = inf
    waited_s: float = 0.0


class Bucket(NamedTuple):
    """Interval in which a processor is free, s."""

    begin: float
    processor: int
    end: float


class Allocation(NamedTuple):
    """Processors for a job, its start (s), and its penalty factor: the largest of its processes.

    A penalty factor is the run time with penalties divided by that without (GUIM 7.2).
    """

    processors: ProcSet
    begin: float
    factor: float = 1.0


class TableSelection(Protocol):
    """Processor selection that searches the reservation table, also for later starts."""

    def place(self, table: ReservationTable, request: Request) -> Allocation | None:
        """Find processors that are free from the start on; None if it starts after `latest`."""


class ReservationTable:
    """Uses of processors over time.

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
