"""The queue of pending jobs, in queue order.

A scheduling pass asks for the first job, for the jobs that arrived since the last pass, and for the
next job that fits. A job that starts in the pass after its arrival costs little: only jobs that
have to wait are inserted into the index of `Candidates`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from typing import Final

from scheduler.model.interfaces import QueueOrder
from scheduler.model.job import Job, QueuePosition
from scheduler.state.candidates import MANY, AlikeJobs, Candidates

#: Jobs that have left the queue are dropped from the line if there are more of them, and most.
MOST_GONE: Final = 64


class Queue:
    """Pending jobs.

    Parameters
    ----------
    order : queue order.
    backfill_order : order in which jobs behind the head are tried; None: the queue order.
    indexed : whether to keep the index, for a backfill order that does not age.

    Attributes
    ----------
    jobs : job number -> job, in order of arrival.
    ages : whether one of the orders changes with time.
    sorted_at : when an order that ages was last applied to all jobs, s.
    is_indexed : whether there is an index.
    candidates : the index, in backfill order.
    withdrawn : numbers of jobs that left the queue and may come back, since it was last rebuilt.
    """

    def __init__(
        self,
        order: QueueOrder,
        backfill_order: QueueOrder | None = None,
        *,
        indexed: bool = True,
    ) -> None:
        self._order = order
        self._backfill_order = order if backfill_order is None else backfill_order
        self.jobs: dict[int, Job] = {}
        # While all jobs arrive in queue order they are in a line, else in a heap of positions.
        # Both may hold jobs that have left the queue, but the first of the line never has.
        self._line: list[Job] = []
        self._gone = 0  # number of jobs at the front of the line that have left the queue
        self._heap: list[QueuePosition] = []
        self._last: QueuePosition = (None, 0)  # of the latest arrival
        self._arrived_in_order = True
        self.withdrawn: set[int] = set()
        self._new: dict[int, Job] = {}  # jobs that are not in the index
        #: Jobs that `first_jobs` has not passed over, in order of arrival; None: all jobs.
        self._examinable: dict[int, Job] | None = None
        self._smallest_new = MANY  # a lower bound of their numbers of processors
        aging = [some for some in (order, self._backfill_order) if some.ages]
        self.ages = bool(aging)
        self._refresh_s = min((some.refresh_s for some in aging), default=inf)
        self.sorted_at = -inf
        #: Groups of equal requests, if the backfill order ages and keeps their order, or once they
        #: are needed.
        self.alike: AlikeJobs | None = None
        if self._backfill_order.ages and self._backfill_order.keeps_alike:
            self.alike = AlikeJobs(self._backfill_order.key)
        self._keeps_alike = self.alike is not None and self.has_one_order
        #: Whether the heap has only the first job of each group.
        self._by_group = self._keeps_alike
        self.is_indexed = indexed and not self._backfill_order.ages
        self.candidates = Candidates()

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self.jobs)

    def __iter__(self) -> Iterator[Job]:
        """Iterate over a copy of the queue, in queue order."""
        jobs = self.jobs
        if self._arrived_in_order:
            return iter(list(jobs.values()))
        if self._by_group:
            self._hold_all()
        self._heap = [entry for entry in sorted(self._heap) if entry[1] in jobs]
        return iter([jobs[number] for _, number in self._heap])

    def in_order(self) -> Iterator[Job]:
        """Iterate over the queue in queue order, for callers that stop early.

        The time grows with the number of jobs that are taken, not with that of the queued ones.
        The queue must not change meanwhile.
        """
        jobs, heap = self.jobs, self._heap
        if self._arrived_in_order:
            yield from jobs.values()
            return
        if self._by_group:
            yield from self._in_order_by_group()
            return
        # Of each entry of the heap that has been taken, the two entries below it come next.
        following = [(heap[0], 0)] if heap else []
        while following:
            (_, number), index = heappop(following)
            if number in jobs:
                yield jobs[number]
            for below in range(2 * index + 1, min(2 * index + 3, len(heap))):
                heappush(following, (heap[below], below))

    def _in_order_by_group(self) -> Iterator[Job]:
        """Iterate over the queue; each job that is taken is followed by the next of its group."""
        jobs, heap, alike = self.jobs, self._heap, self.alike
        assert alike is not None
        seen: set[int] = set()  # a job that is no longer the first of its group is met twice
        following = [(heap[0], 0, 0)] if heap else []
        while following:
            (_, number), index, place = heappop(following)
            if index >= 0:  # an entry of the heap, and not one that follows in a group
                for below in range(2 * index + 1, min(2 * index + 3, len(heap))):
                    heappush(following, (heap[below], below, 0))
            job = jobs.get(number)
            if job is None or (index >= 0 and number in seen):
                continue
            if number not in seen:
                seen.add(number)
                yield job
            group = alike.group_of(job)
            if index >= 0 and group[0][1] != number:
                continue  # the first of its group brings those that follow
            if place + 1 < len(group):
                after = jobs[group[place + 1][1]]
                heappush(following, (self._position(after), -1, place + 1))

    def _hold_all(self) -> None:
        """Put all jobs into the heap, until the next sort: a caller asks for the whole order."""
        self._by_group = False
        sorted_jobs = [job for job in self.jobs.values() if job.submitted_at <= self.sorted_at]
        keys = self._order.keys(sorted_jobs, self.sorted_at)
        self._heap = [(key, job.id) for key, job in zip(keys, sorted_jobs, strict=True)]
        later = [job for job in self.jobs.values() if job.submitted_at > self.sorted_at]
        self._heap += map(self._position, later)

    def _position(self, job: Job) -> QueuePosition:
        """Position of a job in queue order at the time of the latest sort, or of its arrival."""
        return self._order.key(job, max(self.sorted_at, job.submitted_at)), job.id

    def __contains__(self, job: int) -> bool:
        """Whether the job of this number is queued."""
        return job in self.jobs

    def add(self, job: Job, now: float) -> None:
        """Insert a job that has never been in this queue."""
        number, jobs = job.id, self.jobs
        at = max(self.sorted_at, job.submitted_at) if self.ages else now  # as for other keys
        position: QueuePosition = (self._order.key(job, at), number)
        job.queue_position = position
        if not jobs:
            self._arrived_in_order = not self._order.ages
            self._clear_line()
            self._heap.clear()
        elif self._arrived_in_order and position < self._last:
            self._arrived_in_order = False
            self._clear_line()
            self._rebuild_heap(at)
        self._last = position
        jobs[number] = self._new[number] = job
        if self._examinable is not None:
            self._examinable[number] = job
        is_first = self.alike is None or self.alike.add(job) or not self._by_group
        if self._arrived_in_order:
            self._line.append(job)
        elif is_first:
            heappush(self._heap, position)
        least = job.start_least
        if least < self._smallest_new:
            self._smallest_new = least

    def add_again(self, job: Job, now: float) -> None:
        """Insert a job that may have been in this queue before."""
        at = max(self.sorted_at, job.submitted_at) if self.ages else now
        self._arrived_in_order = False
        self._clear_line()
        self._rebuild_heap(at)  # without positions of jobs that have left
        self.withdrawn.clear()
        self.add(job, now)

    def withdraw(self, job: Job) -> None:
        """Remove a job that may come back.

        Raises
        ------
        KeyError : the job is not queued.
        """
        self.remove(job)
        self.withdrawn.add(job.id)

    def remove(self, job: Job) -> None:
        """Remove a job.

        Raises
        ------
        KeyError : the job is not queued.
        """
        jobs, line = self.jobs, self._line
        del jobs[job.id]
        if self._examinable is not None:
            self._examinable.pop(job.id, None)
        if self.alike is not None:
            following = self.alike.remove(job)
            if following and self._by_group and not self._arrived_in_order:
                heappush(self._heap, self._position(jobs[following]))
        gone, count = self._gone, len(line)
        while gone < count and line[gone].id not in jobs:
            gone += 1
        if gone > MOST_GONE and 2 * gone > count:
            del line[:gone]
            gone = 0
        self._gone = gone
        if self._new.pop(job.id, None) is None and self.is_indexed:
            self.candidates.remove(job)

    def _clear_line(self) -> None:
        self._line.clear()
        self._gone = 0

    def sort_is_due(self, now: float) -> bool:
        """Whether the queue must be sorted again: its order ages and `refresh_s` has passed."""
        return self.ages and now >= self.sorted_at + self._refresh_s

    def sort(self, now: float) -> None:
        """Sort the queue again if that is due."""
        if self.sort_is_due(now):
            self.sorted_at = now
            self._by_group = self._keeps_alike
            if self._order.ages:
                self._rebuild_heap(now)

    def _rebuild_heap(self, now: float) -> None:
        jobs: Iterable[Job] = self.jobs.values()
        if self._by_group:
            assert self.alike is not None
            jobs = [self.jobs[group[0][1]] for group in self.alike.groups]
        keys = self._order.keys(jobs, now)
        self._heap = [(key, job.id) for key, job in zip(keys, jobs, strict=True)]
        heapify(self._heap)

    def first(self, installed: float, can_run: Callable[[Job], bool] | None = None) -> Job | None:
        """First job that requests at most `installed` processors and passes `can_run`."""
        jobs = self.jobs
        if not jobs:
            return None
        if self._arrived_in_order:
            job = self._line[self._gone]
        else:
            heap = self._heap
            while heap[0][1] not in jobs:
                heappop(heap)
            job = jobs[heap[0][1]]
        if job.start_least <= installed and (can_run is None or can_run(job)):
            return job
        fitting = (job for job in self.in_order() if job.start_least <= installed)
        return next((job for job in fitting if can_run is None or can_run(job)), None)

    def first_jobs(self, count: int, can_start: Callable[[Job], bool]) -> list[Job]:
        """First `count` jobs, in queue order, that `can_start`.

        The jobs before them that cannot are passed over, here and in later calls, until
        `examine_all`: a pass that examines few jobs does not test them again.
        """
        first: list[Job] = []
        cannot: list[Job] = []
        examinable = self.jobs if self._examinable is None else self._examinable
        in_order: Iterable[Job] = examinable.values()
        if not self._arrived_in_order:
            in_order = (job for job in self if job.id in examinable)
        for job in in_order:
            if len(first) >= count:
                break
            (first if can_start(job) else cannot).append(job)
        if cannot and self._examinable is None:
            self._examinable = self.jobs.copy()
        if self._examinable is not None:
            for job in cannot:
                del self._examinable[job.id]
        return first

    def examine_all(self) -> None:
        """Let `first_jobs` test all jobs again: what can start has changed."""
        self._examinable = None

    def arrived(self, now: float) -> list[Job]:
        """Jobs that are not in the index, in backfill order."""
        new = list(self._new.values())
        return new if len(new) < 2 else self.in_backfill_order(new, now)

    def index_all(self) -> None:
        """Insert all arrived jobs into the index."""
        if self.is_indexed:
            for job in self._new.values():
                self.candidates.add(self._positioned(job))
        self._new.clear()
        self._smallest_new = MANY

    def _positioned(self, job: Job) -> Job:
        """Set a job's position in backfill order; `add` set that in queue order."""
        if not self.has_one_order:
            job.queue_position = self._backfill_order.key(job, 0.0), job.id
        return job

    def set_aside(self, job: Job) -> None:
        """Remove a job from the index until it is inserted again."""
        if self.is_indexed and job.id not in self._new:
            self.candidates.remove(job)
            self._new[job.id] = job
            self._smallest_new = min(self._smallest_new, job.start_least)

    @property
    def smallest(self) -> int:
        """Lower bound of the processors that a queued job requests; 0 without an index."""
        if not self.is_indexed:
            return 0
        indexed = self.candidates.smallest
        return indexed if indexed < self._smallest_new else self._smallest_new

    def in_backfill_order(self, jobs: list[Job], now: float) -> list[Job]:
        """Sort jobs by the backfill order."""
        key = self._backfill_order.key
        return sorted(jobs, key=lambda job: (key(job, now), job.id))

    def fitting(
        self,
        processors: int,
        longest_s: float,
        extra: int,
        now: float,
        among: list[Job] | None = None,
        taken: Container[int] | None = None,
    ) -> Iterator[Job]:
        """Iterate over the jobs that may start on so many processors, in backfill order.

        Only the first job of each group of equal requests is compared with others, so that a
        caller who takes few jobs of a long queue gets them soon. Jobs may leave meanwhile.

        Parameters
        ----------
        longest_s : estimate on their smallest size up to which jobs are taken, s.
        extra : processors up to which jobs are taken that have longer estimates.
        now : time at which the order is applied, s.
        among : only these, if they are still queued; None: all.
        taken : numbers of jobs; once a job is not among these after its turn, the later ones of
            equal requests are left out. None: take all.
        """
        jobs, order = self.jobs, self._backfill_order
        if among is not None or (order.ages and not order.keeps_alike):
            some: Iterable[Job] = jobs.values()
            if among is not None:
                some = (job for job in among if job.id in jobs)
            fit = [job for job in some if _fits(job, processors, longest_s, extra)]
            yield from self.in_backfill_order(fit, now)
            return
        if self.alike is None:
            self.alike = AlikeJobs(order.key)
            for job in jobs.values():
                self.alike.add(job)
        yield from self.merged(self.alike.fitting(processors, longest_s, extra), now, taken)

    def merged(
        self, groups: list[list[QueuePosition]], now: float, taken: Container[int] | None
    ) -> Iterator[Job]:
        """Iterate over the jobs of groups of equal requests in backfill order; see `fitting`."""
        jobs, order = self.jobs, self._backfill_order
        first_of = [group[0] for group in groups]
        keys = order.keys([jobs[number] for _, number in first_of], now)
        places = zip(keys, first_of, groups, strict=True)
        firsts = [((key, first[1]), first, group) for key, first, group in places]
        heapify(firsts)
        while firsts:
            (_, number), position, group = firsts[0]
            if number in jobs:
                yield jobs[number]
            after = bisect_right(group, position)  # the job, and others, may have left the group
            if after < len(group) and (taken is None or number in taken):
                following = group[after]
                key = order.key(jobs[following[1]], now)
                heapreplace(firsts, ((key, following[1]), following, group))
            else:
                heappop(firsts)

    @property
    def has_one_order(self) -> bool:
        """Whether the backfill order is the queue order."""
        return self._backfill_order is self._order

    def demand_exceeds(self, processors: int, installed: int) -> bool:
        """Whether jobs of at most `installed` processors together request more than this many."""
        demand = 0
        for job in self.jobs.values():
            size = job.processors
            demand += size if size <= installed else 0
            if demand > processors:
                return True
        return False


def _fits(job: Job, processors: int, longest_s: float, extra: int) -> bool:
    """Whether a job may start on so many processors; see `Queue.fitting`."""
    least = job.start_least
    return least <= processors and (least <= extra or job.estimate_on_s(least) <= longest_s)
