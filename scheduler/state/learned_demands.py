"""Demands of jobs that declare none, learned from their iteration times as neighbours come and go.

A job's iteration takes 1 + p times as long as without penalties, where p is the largest penalty of
its nodes (`scheduler.model.sharing`; the reading in which windows change with the neighbours).
Iteration times with different neighbours therefore tell how much the job itself demands: the demand
is sought for which the times without penalties, which follow from it, agree best.

Iteration times do not distinguish resources: what is learned is the demand for the first one. Nor
do they always tell a job that overloads its nodes by itself from one that does not: with one kind
of neighbours, two demands may explain the times, and the smaller one is taken until others come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import log
from typing import Final

import msgspec

from scheduler.model.job import Job
from scheduler.model.procset import ProcSet
from scheduler.model.sharing import Demand, SharedCapacity

#: Iteration times that agree this well, relative, need no penalty to be explained.
ACCURACY: Final = 0.01
#: Situations that are kept of a job, the latest.
MOST_SITUATIONS: Final = 8
GRID: Final = 64
REFINEMENTS: Final = 24


class NodeLoad(msgspec.Struct, frozen=True):
    """What is on a node of a job.

    Parameters
    ----------
    own : processes of the job.
    known : demand of the other jobs whose demand is known.
    unknown : processes of the others, which are taken to demand as much as those of the job.
    """

    own: int
    known: float
    unknown: int


class Situation(msgspec.Struct):
    """A size of a job with certain neighbours, and its mean iteration time.

    Parameters
    ----------
    key : names the neighbours and their processes.
    """

    key: str
    size: int
    loads: list[NodeLoad]
    iteration_s: float = 0.0
    points: int = 0


class LearnedDemands:
    """Demands of jobs, declared or learned.

    A job that has not run yet is taken to demand what the last job of its user and name did.

    Parameters
    ----------
    capacity : of the nodes.
    """

    def __init__(self, capacity: SharedCapacity) -> None:
        self._capacity = capacity
        self._situations: dict[int, list[Situation]] = {}
        self._last: dict[int, str] = {}  # situation at the last resize point, by job
        self._of_job: dict[int, float] = {}
        self._of_label: dict[str, float] = {}

    def learned(self, job: Job) -> float | None:
        """Demand of a process of a job that declares none; None if it is not known."""
        demand = self._of_job.get(job.id)
        return self._of_label.get(_label(job)) if demand is None else demand

    def demand(self, job: Job) -> Demand:
        """Demand of a process, declared, learned or none."""
        if job.spec.shared:
            return self._capacity.demand(job.spec.shared)
        names = self._capacity.names
        return (self.learned(job) or 0.0, *[0.0] * (len(names) - 1))

    def observe(self, job: Job, live: Mapping[int, Job], iteration_s: float) -> bool:
        """Learn from an iteration time that a job reports at a resize point.

        An iteration during which the neighbours changed is left out.

        Returns
        -------
        whether the demand of the job changed by more than 1 % of the capacity.
        """
        if job.spec.shared or not iteration_s > 0:
            return False
        situation = self._situation(job, live)
        was_steady = self._last.get(job.id) == situation.key
        self._last[job.id] = situation.key
        if not was_steady:
            return False
        known = self._situations.setdefault(job.id, [])
        for earlier in known:
            if earlier.key == situation.key:
                earlier.loads, situation = situation.loads, earlier
                break
        else:
            known.append(situation)
            del known[:-MOST_SITUATIONS]
        situation.points += 1
        weight = 1 / min(situation.points, MOST_SITUATIONS)
        situation.iteration_s += weight * (iteration_s - situation.iteration_s)
        demand = fitted(known, self._capacity)
        if demand is None:
            return False
        before = self.learned(job)
        self._of_job[job.id] = self._of_label[_label(job)] = float(round(demand))
        limit = 0.01 * self._capacity.capacities[0]
        return before is None or abs(before - round(demand)) > limit

    def forget(self, job: int) -> None:
        """Drop what belongs to a job that has ended; what its name demands stays."""
        for of_job in (self._situations, self._last, self._of_job):
            of_job.pop(job, None)

    def record(self) -> dict[str, float]:
        """Return what was learned by user and name, for durable storage."""
        return dict(self._of_label)

    def restore(self, recorded: Mapping[str, float]) -> None:
        """Take over what `record` returned."""
        self._of_label.update(recorded)

    def _situation(self, job: Job, live: Mapping[int, Job]) -> Situation:
        own = self._processes(job)
        others = [other for other in live.values() if other.id != job.id]
        loads, key = {node: [count, 0.0, 0] for node, count in own.items()}, []
        for other in others:
            for node, count in self._processes(other).items():
                load = loads.get(node)
                if load is None:
                    continue
                key.append(f"{node}:{other.id}:{count}")
                if other.spec.shared or self.learned(other) is not None:
                    load[1] += count * self.demand(other)[0]
                else:
                    load[2] += count
        distinct = {NodeLoad(int(a), float(b), int(c)): None for a, b, c in loads.values()}
        mine = " ".join(f"{node}:{count}" for node, count in sorted(own.items()))
        return Situation(f"{mine} / {' '.join(sorted(key))}", job.size, list(distinct))

    def _processes(self, job: Job) -> dict[int, int]:
        """Number of processes of a job on each of its nodes."""
        counts: dict[int, int] = {}
        size = self._capacity.processors_per_node
        for first, last in ProcSet.union(job.groups.values()).intervals:
            for node in range(first // size, last // size + 1):
                count = min(last, (node + 1) * size - 1) - max(first, node * size) + 1
                counts[node] = counts.get(node, 0) + count
        return counts


def fitted(situations: list[Situation], capacity: SharedCapacity) -> float | None:
    """Demand of a process that explains iteration times best, the smallest of several.

    Returns
    -------
    None if the times tell nothing: they agree without any penalty although a demand of an eighth of
    the capacity would agree, too, or no demand explains how they differ.
    """
    most = capacity.capacities[0]

    def spread(demand: float) -> float:
        return sum(_deviations(situations, capacity, demand))

    tolerance = ACCURACY**2 * len(situations)
    grid = [(spread(most * i / GRID), most * i / GRID) for i in range(GRID + 1)]
    if grid[0][0] <= tolerance:
        largest = max(demand for error, demand in grid if error <= tolerance)
        return 0.0 if largest <= most / 8 else None
    minima = []
    for i, (error, demand) in enumerate(grid):
        if error <= min(other for other, _ in grid[max(0, i - 1) : i + 2]):
            refined = _refined(spread, demand, most)
            minima.append((refined, spread(refined)))
    least = min(error for _, error in minima)
    best, error = min(minimum for minimum in minima if minimum[1] <= least + tolerance)
    return best if error <= 0.25 * grid[0][0] else None


def _refined(spread: Callable[[float], float], demand: float, most: float) -> float:
    """Local minimum near a point of the grid."""
    step = most / GRID
    for _ in range(REFINEMENTS):
        step *= 0.7
        near = (demand - step, demand, demand + step)
        demand = min((d for d in near if 0 <= d <= most), key=lambda d: (spread(d), d))
    return demand


def _deviations(
    situations: list[Situation], capacity: SharedCapacity, demand: float
) -> Iterator[float]:
    """Squared deviations of the logarithms of the times without penalties, for each size."""
    rest = (0.0,) * (len(capacity.names) - 1)
    by_size: dict[int, list[float]] = {}
    for situation in situations:
        worst = max(
            capacity.penalty((load.known + (load.own + load.unknown) * demand, *rest))
            for load in situation.loads
        )
        alone_s = situation.iteration_s / (1 + worst)
        by_size.setdefault(situation.size, []).append(log(alone_s))
    for times in by_size.values():
        mean = sum(times) / len(times)
        for each in times:
            yield (each - mean) ** 2


def _label(job: Job) -> str:
    return f"{job.spec.user} {job.spec.name or job.spec.executable}"
