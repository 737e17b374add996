"""Nodes that are shared: what jobs add to the run times of their neighbours (GUIM 6.2.4, 6.2.5).

GUIM: F. Guim, "Job-guided scheduling strategies for multi-site HPC infrastructures", chapter 6.

A shared resource of a node (memory bandwidth, network bandwidth) is not allocated: every process on
the node uses it, and if they demand more than there is, all of them take longer. A shared window is
an interval in which the same processes are on a node. Its penalty is the sum over the resources of
``max(demand, capacity) / capacity - 1``, (6.1) and (6.2), and its penalised time the penalty times
the length, (6.3). The penalised times of its windows add up to that of a job on a node; the largest
of its nodes is added to the run time of the job.

`SharedCapacity` holds the capacities and computes penalties; `SharedNodes` keeps the ends of the
running jobs up to date. A start or an end costs time for the jobs on its nodes, whatever the size
of the machine. A node that one job fills has no neighbours, so all such nodes of a job count once.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final, Literal, TypeAlias

from scheduler.model.procset import ProcSet

#: Demand for each shared resource, in the order of `SharedCapacity.names`.
Demand: TypeAlias = tuple[float, ...]
#: Reading of GUIM 6.2.5, see `SharedNodes`.
Windows: TypeAlias = Literal["table", "changes"]
#: Reading of the penalty, see `SharedCapacity`.
PenaltyRule: TypeAlias = Literal["excess", "ratio"]

#: Ends of the names of demands that have a direction.
DIRECTIONS: Final = (".read", ".write")


class SharedCapacity:
    """Shared resources of a node; all nodes have the same.

    Parameters
    ----------
    processors_per_node : node i has the processors from ``i * processors_per_node`` on.
    amounts : capacity of a node for each shared resource, by name, > 0.
    penalty : "excess" is (6.2) as printed, ``demand / capacity - 1`` above the capacity; "ratio" is
        ``demand / capacity`` above it, the reading by which four processes of 2000 MB/s on 6000
        MB/s take 1 + 8/6 times as long, as the text of GUIM 6.3.2 says.

    Raises
    ------
    ValueError : a number is not above 0, or the penalty is unknown.

    Attributes
    ----------
    names, capacities : shared resources, and the capacity of a node for each.
    """

    def __init__(
        self,
        processors_per_node: int,
        amounts: Mapping[str, float],
        penalty: PenaltyRule = "excess",
    ) -> None:
        if processors_per_node < 1:
            raise ValueError(f"processors_per_node must be >= 1, got {processors_per_node}")
        for name, amount in amounts.items():
            if not 0 < amount < inf:
                raise ValueError(f"the capacity of {name} must be > 0, got {amount}")
        if penalty not in ("excess", "ratio"):
            raise ValueError(f"penalty must be excess or ratio, got {penalty!r}")
        self.processors_per_node = processors_per_node
        self.names = tuple(amounts)
        self.capacities: Demand = tuple([float(amount) for amount in amounts.values()])
        self.penalty_rule = penalty
        self._less = 1.0 if penalty == "excess" else 0.0

    @property
    def amounts(self) -> dict[str, float]:
        """Capacity of a node for each shared resource, by name."""
        return dict(zip(self.names, self.capacities, strict=True))

    def limits(self, name: str) -> bool:
        """Whether nodes have a capacity for a demand of this name."""
        plain = name
        for direction in DIRECTIONS:
            plain = plain.removesuffix(direction)
        return name in self.names or plain in self.names

    def demand(self, named: Mapping[str, float]) -> Demand:
        """Demand of a process in the order of `names`.

        ``NAME.read`` and ``NAME.write`` add to NAME unless the nodes have capacities of their own
        for them. Other names count for nothing: the nodes do not limit them.
        """
        amounts = dict.fromkeys(self.names, 0.0)
        for name, amount in named.items():
            if name not in amounts:
                for direction in DIRECTIONS:
                    name = name.removesuffix(direction)
            if name in amounts:
                amounts[name] += amount
        return tuple(amounts.values())

    def penalty(self, demand: Demand) -> float:
        """Penalty of a window in which the processes on a node demand this together (6.2)."""
        total = 0.0
        for i in range(len(demand)):
            if demand[i] > self.capacities[i]:
                total += demand[i] / self.capacities[i] - self._less
        return total

    def processes(self, processors: ProcSet) -> tuple[dict[int, int], int]:
        """Number of processors on each node that a set fills in part, and of nodes it fills."""
        size, whole = self.processors_per_node, 0
        parts: dict[int, int] = {}
        for first, last in processors.intervals:
            i, j = first // size, last // size
            if i == j:
                parts[i] = parts.get(i, 0) + last - first + 1
                continue
            whole += j - i - 1
            parts[i] = parts.get(i, 0) + (i + 1) * size - first
            parts[j] = parts.get(j, 0) + last - j * size + 1
        full = [node for node, count in parts.items() if count == size]
        for node in full:
            del parts[node]
        return parts, whole + len(full)


def times(count: int, demand: Demand) -> Demand:
    """Demand of this many processes."""
    return tuple([count * amount for amount in demand])


def summed(a: Demand, b: Demand) -> Demand:
    """Sum of two demands."""
    return tuple([a[i] + b[i] for i in range(len(a))])


class JobPart:
    """Processes of one job on one node that it does not fill.

    Attributes
    ----------
    demand : of these processes together.
    done : up to the time of the node, s: penalised time ("table"), or run time ("changes").
    ends : end of the job if this node decides, s.
    """

    def __init__(self, job: SharingJob, demand: Demand) -> None:
        self.job = job
        self.demand = demand
        self.done = 0.0
        self.ends = 0.0


class SharingJob:
    """A running job.

    Attributes
    ----------
    number, started, run_s : job number; start, s; run time without neighbours, s.
    parts : by node that it does not fill.
    whole_ends : its end by the nodes that it fills, s.
    ends : its end, s.
    """

    def __init__(self, number: int, started: float, run_s: float) -> None:
        self.number = number
        self.started = started
        self.run_s = run_s
        self.parts: dict[int, JobPart] = {}
        self.whole_ends = started + run_s
        self.ends = started + run_s

    def refresh(self) -> bool:
        """Set the end to the latest of all nodes; return whether it changed."""
        latest = self.whole_ends
        for part in self.parts.values():
            if part.ends > latest:
                latest = part.ends
        changed = latest != self.ends
        self.ends = latest
        return changed


class SharedNodes:
    """Ends of running jobs on shared nodes.

    Parameters
    ----------
    capacity : of the nodes.
    windows : "table" takes the windows from a table in which each job runs for its run time without
        penalties, as GUIM 6.2.5 says: a job that is prolonged is no neighbour in the time that is
        added. "changes" recomputes at each start and end: a job is a neighbour until it ends. A
        window of penalty p then lasts 1 + p times the run time that passes in it, and each node
        proceeds by itself, so that the largest sum of a node decides as well.

    Attributes
    ----------
    jobs : running jobs, by number.
    """

    def __init__(self, capacity: SharedCapacity, windows: Windows = "table") -> None:
        if windows not in ("table", "changes"):
            raise ValueError(f"windows must be table or changes, got {windows!r}")
        self.capacity = capacity
        self.windows: Windows = windows
        self.jobs: dict[int, SharingJob] = {}
        self._from_table = windows == "table"
        self._on_node: dict[int, list[JobPart]] = {}  # parts, in the order of their starts
        self._counted_to: dict[int, float] = {}  # time up to which the parts of a node count, s

    def start(
        self, number: int, processors: ProcSet, demand: Demand, run_s: float, now: float
    ) -> list[int]:
        """Start a job and return the numbers of the jobs whose ends changed, itself first.

        Parameters
        ----------
        demand : of each process.
        run_s : run time without neighbours, s.
        """
        capacity = self.capacity
        job = self.jobs[number] = SharingJob(number, now, run_s)
        changed: dict[int, SharingJob] = {number: job}
        parts, whole = capacity.processes(processors)
        if whole:
            full = times(capacity.processors_per_node, demand)
            job.whole_ends = now + run_s * (1.0 + capacity.penalty(full))
        for index, count in parts.items():
            if index in self._on_node:
                self._advance(index, now)
            else:
                self._on_node[index], self._counted_to[index] = [], now
            part = job.parts[index] = JobPart(job, times(count, demand))
            self._on_node[index].append(part)
            self._project(index, now, changed)
        del changed[number]
        job.refresh()
        return [number, *_refreshed(changed)]

    def end(self, number: int, now: float) -> list[int]:
        """End a job and return the numbers of the other jobs whose ends changed."""
        job = self.jobs.pop(number)
        changed: dict[int, SharingJob] = {}
        is_over = self._from_table and now >= job.started + job.run_s
        for index, part in job.parts.items():
            parts = self._on_node[index]
            if len(parts) == 1:
                del self._on_node[index], self._counted_to[index]
                continue
            self._advance(index, now)
            parts.remove(part)
            if not is_over:
                self._project(index, now, changed)
        return _refreshed(changed)

    def _penalty(self, parts: list[JobPart]) -> float:
        """Penalty of a window with these parts."""
        total = parts[0].demand
        for part in parts[1:]:
            total = summed(total, part.demand)
        return self.capacity.penalty(total)

    def _advance(self, node: int, now: float) -> None:
        """Count the parts of a node up to now."""
        parts, at = self._on_node[node], self._counted_to[node]
        if now <= at:
            return
        if self._from_table:
            for part, penalised_s in self._windows_of(node, now):
                part.done += penalised_s
        elif parts:
            factor = 1.0 + self._penalty(parts)
            for part in parts:
                part.done += (now - at) / factor
                if part.done > part.job.run_s:
                    part.done = part.job.run_s
        self._counted_to[node] = now

    def _project(self, node: int, now: float, changed: dict[int, SharingJob]) -> None:
        """Set the ends of the parts of a node, and collect the jobs of those that changed."""
        parts = self._on_node[node]
        ends: list[float]
        if self._from_table:
            ends = [part.job.started + part.job.run_s + part.done for part in parts]
            places = {id(part): i for i, part in enumerate(parts)}
            for part, penalised_s in self._windows_of(node, inf):
                ends[places[id(part)]] += penalised_s
        else:
            factor = 1.0 + self._penalty(parts)
            ends = []
            for part in parts:
                left_s = part.job.run_s - part.done
                ends.append(now + left_s * factor if left_s > 0 else part.ends)
        for part, at in zip(parts, ends, strict=True):
            if at != part.ends:
                part.ends = at
                changed[part.job.number] = part.job

    def _windows_of(self, node: int, until: float) -> list[tuple[JobPart, float]]:
        """Penalised times of the windows of the table between the time of a node and `until`."""
        penalised_times: list[tuple[JobPart, float]] = []
        begin = self._counted_to[node]
        active = [part for part in self._on_node[node] if part.job.started + part.job.run_s > begin]
        while active and begin < until:
            end = until
            for part in active:
                over = part.job.started + part.job.run_s
                if over < end:
                    end = over
            penalty = self._penalty(active)
            if penalty > 0:
                for part in active:
                    penalised_times.append((part, penalty * (end - begin)))
            begin = end
            active = [part for part in active if part.job.started + part.job.run_s > begin]
        return penalised_times


def _refreshed(changed: dict[int, SharingJob]) -> list[int]:
    """Numbers of the jobs whose ends are different now."""
    return [number for number, job in changed.items() if job.refresh()]
