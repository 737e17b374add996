"""Index of the queue, and groups of equal requests, for the next queued job that fits.

Jobs are grouped by the fewest processors on which they may start. The jobs of one size are kept in
order, in blocks, each with its smallest estimate. A query costs one comparison for each size that
fits and has no answer, whatever the length of the queue; for each other size it skips the blocks
without an answer, by one comparison each, and looks through one block.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, TypeAlias

from reshape.topology import Topology
from scheduler.model.job import Job, QueuePosition

#: Largest number of processors, and largest estimate (s) of a job with this many.
Limit: TypeAlias = tuple[int, float]

LONGEST_S = sys.float_info.max
MANY = sys.maxsize  # more processors than any machine has
BLOCK_LENGTH = 64


class JobBlock:
    """Consecutive jobs of one size, stored by column; estimates in seconds.

    Only the block of a size that gets its first job is empty.
    """

    def __init__(
        self, positions: list[QueuePosition], estimates: list[float], jobs: list[Job]
    ) -> None:
        self.positions = positions
        self.estimates = estimates
        self.jobs = jobs

    def part(self, first: int, last: int) -> JobBlock:
        """Block of the jobs with indices from `first` to `last` - 1."""
        return JobBlock(
            self.positions[first:last], self.estimates[first:last], self.jobs[first:last]
        )

    def least(self) -> float:
        """Smallest estimate, s."""
        return min(self.estimates)


class JobsOfOneSize:
    """Jobs that request the same number of processors, in order, searchable by estimate.

    Parameters
    ----------
    block_length : number of jobs in a block at which it is split in two.

    Attributes
    ----------
    least : smallest estimate, s; inf without jobs.
    """

    def __init__(self, block_length: int = BLOCK_LENGTH) -> None:
        self._block_length = block_length
        self._blocks = [JobBlock([], [], [])]
        self._lasts: list[QueuePosition] = []  # separators between a block and the next
        self._least_of = [inf]  # smallest estimate of each block
        self.least = inf

    def add(self, job: Job) -> None:
        """Insert a job at its queue position."""
        position = job.queue_position
        i = bisect_left(self._lasts, position) if self._lasts else 0
        block = self._blocks[i]
        estimate_s = _finite(job.estimate_s)
        j = bisect_left(block.positions, position)
        block.positions.insert(j, position)
        block.estimates.insert(j, estimate_s)
        block.jobs.insert(j, job)
        if estimate_s < self._least_of[i]:
            self._least_of[i] = estimate_s
            if estimate_s < self.least:
                self.least = estimate_s
        if len(block.jobs) >= self._block_length:
            self._split(i)

    @property
    def has_several(self) -> bool:
        """Whether there is more than one job. Precondition: there is one."""
        return len(self._lasts) > 0 or len(self._blocks[0].jobs) > 1

    def remove(self, job: Job) -> None:
        """Remove a job; others remain."""
        position = job.queue_position
        i = bisect_left(self._lasts, position) if self._lasts else 0
        block = self._blocks[i]
        j = bisect_left(block.positions, position)
        estimate_s = block.estimates.pop(j)
        del block.positions[j], block.jobs[j]
        if not block.jobs:
            del self._blocks[i], self._least_of[i], self._lasts[min(i, len(self._lasts) - 1)]
        elif estimate_s > self._least_of[i] or estimate_s in block.estimates:
            return
        else:
            self._least_of[i] = block.least()
        if estimate_s <= self.least:
            self.least = min(self._least_of)

    def first_within(self, estimate_s: float) -> tuple[QueuePosition, Job]:
        """First job of at most this estimate (s), which must be at least `least`."""
        i = 0
        while self._least_of[i] > estimate_s:
            i += 1
        block, j = self._blocks[i], 0
        while block.estimates[j] > estimate_s:
            j += 1
        return block.positions[j], block.jobs[j]

    def _split(self, i: int) -> None:
        block, is_last = self._blocks[i], i == len(self._blocks) - 1
        # Jobs mostly arrive in order, so the last block is split near its end and stays full.
        count = len(block.jobs)
        at = count - 1 if is_last else count // 2
        parts = [block.part(0, at), block.part(at, count)]
        self._blocks[i : i + 1] = parts
        self._least_of[i : i + 1] = [part.least() for part in parts]
        self._lasts.insert(i, block.positions[at - 1])


def _finite(estimate_s: float) -> float:
    """Estimate with inf replaced by `LONGEST_S`: inf stands for no job."""
    return estimate_s if estimate_s < inf else LONGEST_S


class Candidates:
    """Queued jobs by the fewest processors on which they may start.

    Parameters
    ----------
    block_length : number of jobs in a block of one size at which it is split in two.
    """

    def __init__(self, block_length: int = BLOCK_LENGTH) -> None:
        self._block_length = block_length
        self._by_size: dict[int, JobsOfOneSize] = {}
        self._sizes: list[int] = []  # keys of `_by_size`, ascending

    @property
    def smallest(self) -> int:
        """Fewest processors that a job requests; `MANY` without jobs."""
        return self._sizes[0] if self._sizes else MANY

    def add(self, job: Job) -> None:
        """Insert a job."""
        size = job.start_least
        jobs = self._by_size.get(size)
        if jobs is None:
            jobs = self._by_size[size] = JobsOfOneSize(self._block_length)
            insort(self._sizes, size)
        jobs.add(job)

    def remove(self, job: Job) -> None:
        """Remove a job."""
        size = job.start_least
        jobs = self._by_size[size]
        if jobs.has_several:
            jobs.remove(job)
        else:
            del self._by_size[size], self._sizes[bisect_left(self._sizes, size)]

    def next(self, limits: Sequence[Limit]) -> Job | None:
        """First job within one of the limits.

        Parameters
        ----------
        limits : ascending in processors, descending in estimates.
        """
        best: tuple[QueuePosition, Job] | None = None
        i = 0
        for size in self._sizes:
            while i < len(limits) and size > limits[i][0]:
                i += 1
            if i == len(limits):
                break
            jobs, within_s = self._by_size[size], _finite(limits[i][1])
            if jobs.least > within_s:
                continue
            first = jobs.first_within(within_s)
            if best is None or first[0] < best[0]:
                best = first
        return None if best is None else best[1]

    def sizes(self, free: int) -> list[int]:
        """Numbers of processors that jobs request, up to `free`, ascending."""
        return self._sizes[: bisect_right(self._sizes, free)]

    def placeable(
        self,
        free: int,
        within_s: float,
        has_place: Callable[[int], bool],
        has_lasting_place: Callable[[int], bool],
    ) -> Job | None:
        """First job of at most `free` processors that has a place.

        Parameters
        ----------
        has_place : whether there is a place for this many processors, as jobs need it whose
            estimate is at most `within_s`.
        has_lasting_place : the same for jobs of any estimate; it implies `has_place`.
        """
        best: tuple[QueuePosition, Job] | None = None
        for size in self._sizes:
            if size > free:
                break
            jobs = self._by_size[size]
            in_time = jobs.least <= within_s
            if in_time and not has_place(size):
                continue
            if has_lasting_place(size):
                first = jobs.first_within(LONGEST_S)
            elif in_time:
                first = jobs.first_within(within_s)
            else:
                continue
            if best is None or first[0] < best[0]:
                best = first
        return None if best is None else best[1]


#: Processors, walltime (s), user's priority, estimate (s), and the fewest processors on which such
#: a job may start with its estimate on these (s) and the topology that gives the sizes between.
RequestKey: TypeAlias = tuple[int, float, float, float, int, float, Topology | None]


class AlikeJobs:
    """Queued jobs in groups of equal requests.

    The priority of an order that ages changes with time, so that no index can hold it. But
    jobs of equal requests keep their order in it. Only the first job of each group has to be
    compared with others, which is faster than a look at all jobs if many requests are equal.

    Parameters
    ----------
    key : sort key of a job at a time, see `QueueOrder.key`; the order has `keeps_alike`.
    """

    def __init__(self, key: Callable[[Job, float], Any]) -> None:
        self._key = key
        self._groups: dict[RequestKey, list[QueuePosition]] = {}

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
        if group and group[-1] < position:  # most arrive in order
            group.append(position)
        else:
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


def _request(job: Job) -> RequestKey:
    spec, size, estimate_s = job.spec, job.processors, job.estimate_s
    if not job.minimum:
        return size, spec.walltime_s, spec.priority, estimate_s, size, estimate_s, None
    least = job.start_least
    least_s, topology = job.estimate_on_s(least), job.topology
    return size, spec.walltime_s, spec.priority, estimate_s, least, least_s, topology
