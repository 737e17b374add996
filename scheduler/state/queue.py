"""The queue of pending jobs, in the order of the scenario.

A scheduling pass asks three things: who is first, who came since the last pass, and who is the next
one that fits. All stand behind this class. A job that starts in the pass after its arrival costs
hardly more than the count of it: only who has to wait is filed among the candidates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, Protocol

from scheduler.model.job import Job
from scheduler.state.candidates import MANY, Candidates, Limit, Place


class QueueOrder(Protocol):
    """Order of the queue: a class with typed parameters, registered under a name."""

    @property
    def ages(self) -> bool:
        """Whether keys change while a job waits, so that the queue must be sorted anew.

        At each pass; where the order has a `refresh_s`, when so many seconds have passed.
        """

    def key(self, job: Job, now: float) -> Any:
        """What jobs are sorted by, ascending; ties by job number."""


class Queue:
    """Pending jobs.

    Parameters
    ----------
    order : who is first.
    passing : in which order later jobs are tried when the first one has to wait.
    filed : whether jobs are filed for `candidate`, as backfilling with few reservations asks.

    Attributes
    ----------
    jobs : job number -> job, in the order of their coming.
    ages : whether the order changes with time.
    """

    def __init__(
        self, order: QueueOrder, passing: QueueOrder | None = None, *, filed: bool = True
    ) -> None:
        self._order = order
        self._passing = order if passing is None else passing
        self.jobs: dict[int, Job] = {}
        # As long as all came in order they stand in a line, then in a heap of (key, job); some of
        # them have left meanwhile, but not the first of the line.
        self._line: deque[Job] = deque()
        self._heap: list[Place] = []
        self._last: Place = (None, 0)  # of the one that came last
        self._came_in_order = True  # and all before it
        self._new: dict[int, Job] = {}  # not yet filed
        self._smallest_new = MANY  # none of them asks for fewer processors
        aging = [each for each in (order, self._passing) if each.ages]
        self.ages = bool(aging)
        self._refresh_s = min((getattr(each, "refresh_s", 0.0) for each in aging), default=inf)
        self._sorted_at = -inf
        self._filed = Candidates() if filed and not self._passing.ages else None

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self.jobs)

    def __iter__(self) -> Iterator[Job]:
        """Go through the jobs in order, as they stand now; they may leave meanwhile."""
        jobs = self.jobs
        if self._came_in_order:
            return iter(list(jobs.values()))
        self._heap = [entry for entry in sorted(self._heap) if entry[1] in jobs]
        return iter([jobs[number] for _, number in self._heap])

    def __contains__(self, job: int) -> bool:
        """Whether the job of this number waits here."""
        return job in self.jobs

    def add(self, job: Job, now: float) -> None:
        """Put a job where it belongs; one that has left does not come back."""
        number, jobs = job.id, self.jobs
        at = max(self._sorted_at, job.submitted_at) if self.ages else now  # as the others' keys
        entry: Place = (self._order.key(job, at), number)
        job.place = entry
        if not jobs:
            self._came_in_order = not self._order.ages
            self._line.clear()
            self._heap.clear()
        elif self._came_in_order and entry < self._last:
            self._came_in_order = False
            self._line.clear()
            self._pile(at)
        self._last = entry
        jobs[number] = self._new[number] = job
        if self._came_in_order:
            self._line.append(job)
        else:
            heappush(self._heap, entry)
        if job.processors < self._smallest_new:
            self._smallest_new = job.processors

    def remove(self, job: Job) -> None:
        """Take a job out.

        Raises
        ------
        KeyError : it is not here.
        """
        jobs, line = self.jobs, self._line
        del jobs[job.id]
        while line and line[0].id not in jobs:
            line.popleft()
        if self._new.pop(job.id, None) is None and self._filed is not None:
            self._filed.remove(job)

    def stale(self, now: float) -> bool:
        """Whether so much time has passed that the order may be another."""
        return self.ages and now >= self._sorted_at + self._refresh_s

    def sort(self, now: float) -> None:
        """Bring the order up to date, if that is due."""
        if self.stale(now):
            self._sorted_at = now
            if self._order.ages:
                self._pile(now)

    def _pile(self, now: float) -> None:
        """Make the heap anew."""
        self._heap = [(self._order.key(job, now), job.id) for job in self.jobs.values()]
        heapify(self._heap)

    def first(self, at_most: float, able: Callable[[Job], bool] | None = None) -> Job | None:
        """First job that asks for so many processors at most, and is `able` if that is asked."""
        jobs = self.jobs
        if not jobs:
            return None
        if self._came_in_order:
            job = self._line[0]
        else:
            heap = self._heap
            while heap[0][1] not in jobs:
                heappop(heap)
            job = jobs[heap[0][1]]
        if job.processors <= at_most and (able is None or able(job)):
            return job
        fitting = (job for job in self if job.processors <= at_most)
        return next((job for job in fitting if able is None or able(job)), None)

    def arrived(self, now: float) -> list[Job]:
        """Jobs that no pass has looked at yet, in the order in which they may pass others."""
        new = list(self._new.values())
        return new if len(new) < 2 else self.passing(new, now)

    def file(self, job: Job) -> None:
        """Count an arrived job that has to wait among those that `candidate` finds."""
        if self._filed is not None and self._new.pop(job.id, None) is not None:
            self._filed.add(self._placed(job))

    def file_all(self) -> None:
        """File all that arrived."""
        if self._filed is not None:
            for job in self._new.values():
                self._filed.add(self._placed(job))
        self._new.clear()
        self._smallest_new = MANY

    def _placed(self, job: Job) -> Job:
        """Give the job its place in passing order; `add` gave it that in the order of the queue."""
        if not self.in_one_order:
            job.place = self._passing.key(job, 0.0), job.id
        return job

    def set_aside(self, job: Job) -> None:
        """Let `candidate` pass over a filed job until it is filed again."""
        if self._filed is not None and job.id not in self._new:
            self._filed.remove(job)
            self._new[job.id] = job
            self._smallest_new = min(self._smallest_new, job.processors)

    @property
    def smallest(self) -> int:
        """No job, filed or new, asks for fewer processors; 0 if that is not known."""
        if self._filed is None:
            return 0
        filed = self._filed.smallest
        return filed if filed < self._smallest_new else self._smallest_new

    def candidate(self, limits: Sequence[Limit]) -> Job | None:
        """First filed job, in passing order, that keeps one of the limits.

        Parameters
        ----------
        limits : the more processors, the shorter the estimate; in this order.
        """
        assert self._filed is not None
        return self._filed.next(limits)

    def sizes(self, free: int) -> list[int]:
        """Numbers of processors, at most `free`, that filed jobs ask for."""
        assert self._filed is not None
        return self._filed.sizes(free)

    def placeable(
        self,
        free: int,
        within_s: float,
        short: Callable[[int], bool],
        always: Callable[[int], bool],
    ) -> Job | None:
        """First filed job, in passing order, for whose size there is a place.

        Parameters
        ----------
        free : it asks for so many processors at most.
        short, always : whether so many processors have a place if the job's estimate is at most
            `within_s`, or whatever it is.
        """
        assert self._filed is not None
        return self._filed.placeable(free, within_s, short, always)

    def walk(self, free: int, now: float) -> Iterator[Job]:
        """Go through all jobs of so many processors at most, in passing order."""
        jobs = [job for job in self.jobs.values() if job.processors <= free]
        return iter(self.passing(jobs, now))

    def passing(self, jobs: list[Job], now: float) -> list[Job]:
        """Bring jobs into the order in which they may pass others."""
        key = self._passing.key
        return sorted(jobs, key=lambda job: (key(job, now), job.id))

    @property
    def walks(self) -> bool:
        """Whether `candidate` cannot be asked: the order changes with time, or nothing is filed."""
        return self._filed is None

    @property
    def in_one_order(self) -> bool:
        """Whether later jobs are tried in the order of the queue itself."""
        return self._passing is self._order

    def wants_more(self, than: int, at_most: int) -> bool:
        """Whether the jobs of at most so many processors ask, together, for more `than` that."""
        wanted = 0
        for job in self.jobs.values():
            size = job.processors
            wanted += size if size <= at_most else 0
            if wanted > than:
                return True
        return False
