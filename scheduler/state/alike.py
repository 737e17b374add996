"""Queued jobs in groups of equal requests.

The priority of an order that ages changes with time, so that no search tree can hold it. But jobs
of equal requests keep their order in it. Only the first job of each group has to be compared with
others, which is faster than a look at all jobs if many requests are equal.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from reshape.topology import Topology
from scheduler.model.job import Job, QueuePosition

#: Processors, walltime (s), user's priority, estimate (s), and the fewest processors on which such
#: a job may start with its estimate on these (s) and the topology that gives the sizes between.
Request: TypeAlias = tuple[int, float, float, float, int, float, Topology | None]


class AlikeJobs:
    """Queued jobs by their requests.

    Parameters
    ----------
    key : sort key of a job at a time, see `QueueOrder.key`; the order has `keeps_alike`.
    """

    def __init__(self, key: Callable[[Job, float], Any]) -> None:
        self._key = key
        self._groups: dict[Request, list[QueuePosition]] = {}

    @property
    def groups(self) -> Iterable[list[QueuePosition]]:
        """Positions of the jobs of each group, in order; lists change when jobs leave."""
        return self._groups.values()

    def fitting(self, processors: int, longest_s: float, extra: int) -> list[list[QueuePosition]]:
        """Groups of the jobs that `Queue.fitting` lets start."""
        fitting = []
        for request, group in self._groups.items():
            least = request[4]
            if least <= processors and (least <= extra or request[5] <= longest_s):
                fitting.append(group)
        return fitting

    def group_of(self, job: Job) -> list[QueuePosition]:
        """Positions of the jobs of its group."""
        return self._groups[_request(job)]

    def add(self, job: Job) -> bool:
        """Insert a job, and return whether it is the first one of its group."""
        group = self._groups.setdefault(_request(job), [])
        position: QueuePosition = (self._key(job, 0.0), job.id)
        insort(group, position)
        return group[0] is position

    def remove(self, job: Job) -> int:
        """Remove a job; return the number of the new first job of its group, 0 if there is none."""
        request = _request(job)
        group = self._groups[request]
        place = bisect_left(group, (self._key(job, 0.0), job.id))
        del group[place]
        if not group:
            del self._groups[request]
        return group[0][1] if group and place == 0 else 0


def _request(job: Job) -> Request:
    spec, size, estimate_s = job.spec, job.processors, job.estimate_s
    if not job.minimum:
        return size, spec.walltime_s, spec.priority, estimate_s, size, estimate_s, None
    least = job.start_least
    least_s, topology = job.estimate_on_s(least), job.topology
    return size, spec.walltime_s, spec.priority, estimate_s, least, least_s, topology
