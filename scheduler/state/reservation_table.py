"""The reservation table: which processor is free for how long (GUIM 6.2, figure 6.2).

GUIM: F. Guim, "Job-guided scheduling strategies for multi-site HPC infrastructures".

Running jobs use processors until their expected ends, reservations use them in an interval. What is
left are *buckets*: intervals in which a processor is free. A selection takes the processors of a
job from buckets that are long enough, now or later. The table also has the penalty of processes of
a job on each node (`scheduler.model.sharing`).

The uses of running jobs stay in the table until the jobs end; reservations are cleared and made
again. Sets of processors are integers (`scheduler.state.bitsets`), so the cost of a query grows
with the running jobs and reservations, not with the processors.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from math import inf, nextafter
from typing import NamedTuple, Protocol

from scheduler.model.procset import ProcSet
from scheduler.model.sharing import Demand, SharedCapacity, summed, times
from scheduler.state.bitsets import bits_of


class Request(NamedTuple):
    """What a job needs.

    Parameters
    ----------
    processors : number of them.
    length_s : estimated run time without penalties, s.
    demand : of each process for the shared resources of its node.
    after, latest : earliest and latest start, s; a search does not go beyond `latest`.
    """

    processors: int
    length_s: float
    demand: Demand = ()
    after: float = 0.0
    latest: float = inf


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


class Use:
    """Use of processors by a running job or a reservation.

    Attributes
    ----------
    bits : the processors.
    begin, end : s; a running job has begun, whatever `begin` says.
    counts : processes on each node, if they demand anything.
    demand : of each process.
    """

    def __init__(self, bits: int, begin: float, end: float, demand: Demand) -> None:
        self.bits = bits
        self.begin = begin
        self.end = end
        self.demand = demand
        self.counts: dict[int, int] = {}


class ReservationTable:
    """Uses of processors over time.

    Parameters
    ----------
    free : processors that no running job uses.
    capacity : shared resources of the nodes; None: no penalties.

    Attributes
    ----------
    reservations : in the order in which they were made.
    excluded : what exclusions keep from the job that is searched for; see `exclude`.
    free_bits, excluded_bits : processors that no running job uses, and those that an exclusion
        keeps at any time, as bits.
    """

    def __init__(self, free: ProcSet, capacity: SharedCapacity | None = None) -> None:
        self.capacity = capacity
        self.free_bits = bits_of(free)
        self._per_node = 1 if capacity is None else capacity.processors_per_node
        self._soon = -inf
        self._running: dict[int, Use] = {}
        self._releases: list[tuple[float, int]] = []  # (end, job) of the running jobs, ascending
        self.reservations: list[Use] = []
        self.excluded: list[Use] = []
        self.excluded_bits = 0
        #: Uses with a demand, by node.
        self._running_on: dict[int, dict[int, Use]] = {}
        self._reserved_on: dict[int, list[Use]] = {}

    # Changes.

    def advance(self, now: float) -> None:
        """Set the time; processors whose release is overdue are expected immediately after it."""
        self._soon = nextafter(now, inf)

    def run(self, job: int, processors: ProcSet, end: float, demand: Demand = ()) -> None:
        """Let a running job use processors until its expected end (s).

        They replace the processors of the job if there are any. An end of ``-inf`` is immediate.

        Parameters
        ----------
        demand : of each process.
        """
        self.remove(job)
        use = self._running[job] = Use(bits_of(processors), -inf, end, demand)
        self.free_bits &= ~use.bits
        insort(self._releases, (end, job))
        if self.capacity is not None and any(demand):
            use.counts = self.counts(use.bits)
            for node in use.counts:
                here = self._running_on.get(node)
                if here is None:
                    here = self._running_on[node] = {}
                here[job] = use

    def remove(self, job: int) -> None:
        """Free what a running job uses, if it is in the table."""
        use = self._running.pop(job, None)
        if use is None:
            return
        self.free_bits |= use.bits
        del self._releases[bisect_left(self._releases, (use.end, job))]
        for node in use.counts:
            here = self._running_on[node]
            del here[job]
            if not here:
                del self._running_on[node]

    def reserve(self, processors: ProcSet, begin: float, end: float, demand: Demand = ()) -> None:
        """Reserve processors, which are free then, from `begin` to `end` (s).

        Parameters
        ----------
        demand : of each process.
        """
        use = Use(bits_of(processors), begin, end, demand)
        self.reservations.append(use)
        if self.capacity is not None and any(demand):
            use.counts = self.counts(use.bits)
            for node in use.counts:
                here = self._reserved_on.get(node)
                if here is None:
                    here = self._reserved_on[node] = []
                here.append(use)

    def clear_reservations(self) -> None:
        """Remove all reservations."""
        self.reservations = []
        self._reserved_on = {}

    def exclude(self, uses: list[Use]) -> None:
        """Search from now on without what exclusions keep from a job.

        Parameters
        ----------
        uses : processors with the times from which and up to which the job may not hold them.
        """
        self.excluded = uses
        self.excluded_bits = 0
        for use in uses:
            self.excluded_bits |= use.bits

    # Queries.

    def node(self, processor: int) -> int:
        """Node of a processor; without shared resources, each is a node of its own."""
        return processor // self._per_node

    def on_node(self, node: int) -> int:
        """Bits of the processors of a node."""
        return ((1 << self._per_node) - 1) << (node * self._per_node)

    def nodes(self, bits: int) -> list[int]:
        """Nodes of processors, ascending."""
        nodes: list[int] = []
        while bits:
            node = self.node((bits & -bits).bit_length() - 1)
            nodes.append(node)
            bits &= ~self.on_node(node)
        return nodes

    def free(
        self, needed: int, length_s: float, after: float, latest: float = inf
    ) -> Iterator[tuple[float, int]]:
        """Times at which enough processors are free for `length_s`, and these, as bits.

        The times are `after` and the begins of later buckets, up to `latest`.
        """
        releases, running = self._releases, self._running
        blocking = self.reservations + self.excluded
        ends = sorted([use.end for use in blocking if after < use.end < inf])
        i, j, free, at, come = 0, 0, self.free_bits, after, -1  # come: released at this time
        while at <= latest:
            while i < len(releases) and max(releases[i][0], self._soon) <= at:
                bits = running[releases[i][1]].bits
                free |= bits
                come |= bits
                i += 1
            while j < len(ends) and ends[j] <= at:
                j += 1
            blocked, until = 0, at + length_s
            for use in blocking:
                if use.begin < until and use.end > at:
                    blocked |= use.bits
                elif use.end == at:
                    come |= use.bits
            left = free & ~blocked
            if left & come and left.bit_count() >= needed:
                yield at, left
            come = 0
            at = max(releases[i][0], self._soon) if i < len(releases) else inf
            if j < len(ends) and ends[j] < at:
                at = ends[j]
            if at == inf:
                return

    def factor(self, node: int, begin: float, request: Request, count: int) -> float:
        """Penalty factor of processes of a job on a node that they share (GUIM 7.2).

        Parameters
        ----------
        count : number of these processes.
        """
        capacity = self.capacity
        if capacity is None or not request.length_s > 0:
            return 1.0
        end = begin + request.length_s
        uses: list[tuple[float, float, Demand]] = []
        own = peak = times(count, request.demand)
        running = self._running_on.get(node)
        if running is not None:
            for use in running.values():
                until = max(use.end, self._soon)
                if until > begin:
                    demand = times(use.counts[node], use.demand)
                    uses.append((begin, until, demand))
                    peak = summed(peak, demand)
        reserved = self._reserved_on.get(node)
        if reserved is not None:
            for use in reserved:
                if use.begin < end and use.end > begin:
                    demand = times(use.counts[node], use.demand)
                    uses.append((use.begin, use.end, demand))
                    peak = summed(peak, demand)
        if not uses:
            return 1.0 + capacity.penalty(own)
        if capacity.penalty(peak) == 0:
            return 1.0
        return 1.0 + self._penalised_s(begin, end, own, uses) / request.length_s

    def _penalised_s(
        self, begin: float, end: float, own: Demand, uses: list[tuple[float, float, Demand]]
    ) -> float:
        """Penalised time of processes in the shared windows between two times, s (6.3)."""
        capacity = self.capacity
        assert capacity is not None
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
        return penalised_s

    def counts(self, bits: int) -> dict[int, int]:
        """Number of these processors on each node."""
        return {node: (bits & self.on_node(node)).bit_count() for node in self.nodes(bits)}
