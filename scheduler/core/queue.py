"""The queue of pending jobs, in the order of the scenario.

The scheduling pass needs two questions answered: who is first, and who is the next one that is
small enough. Both stand behind this class, so that its inside may change.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

from scheduler.core.state import Job

Place: TypeAlias = tuple[Any, int]


class QueueOrder(Protocol):
    """Order of the queue: a class with typed parameters, registered under a name."""

    @property
    def ages(self) -> bool:
        """Whether keys change while a job waits, so that each pass must sort anew."""

    def key(self, job: Job, now: float) -> Any:
        """What jobs are sorted by, ascending; ties by job number."""


class Queue:
    """Pending jobs, sorted."""

    def __init__(self, order: QueueOrder) -> None:
        self._order = order
        self._places: list[Place] = []
        self._jobs: list[Job] = []
        self._sizes: list[int] = []  # beside the jobs: the walk for a small one touches only these
        self._place_of: dict[int, Place] = {}

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        """Go through the jobs as they stand now; they may leave meanwhile."""
        return iter(self._jobs.copy())

    def __contains__(self, job: int) -> bool:
        """Whether the job of this number waits here."""
        return job in self._place_of

    def add(self, job: Job, now: float) -> None:
        """Put a job where it belongs."""
        place = self._order.key(job, now), job.id
        i = bisect_right(self._places, place)
        self._places.insert(i, place)
        self._jobs.insert(i, job)
        self._sizes.insert(i, job.spec.processors)
        self._place_of[job.id] = place

    def remove(self, job: Job) -> None:
        """Take a job out.

        Raises
        ------
        KeyError : it is not here.
        """
        i = bisect_left(self._places, self._place_of.pop(job.id))
        del self._places[i], self._jobs[i], self._sizes[i]

    def sort(self, now: float) -> None:
        """Bring the order up to date, if keys change with time."""
        if self._order.ages:
            placed = sorted(((self._order.key(job, now), job.id), job) for job in self._jobs)
            self._places = [place for place, _ in placed]
            self._jobs = [job for _, job in placed]
            self._sizes = [job.spec.processors for job in self._jobs]
            self._place_of = {job.id: place for place, job in placed}

    def place(self, job: Job) -> Place:
        """Where a waiting job stands, to go on from there when it has left."""
        return self._place_of[job.id]

    def next(self, behind: Place | None, at_most: int) -> Job | None:
        """First job behind a place (None: of all) that asks for so many processors at most."""
        sizes = self._sizes
        for i in range(bisect_right(self._places, behind) if behind else 0, len(sizes)):
            if sizes[i] <= at_most:
                return self._jobs[i]
        return None

    def wants_more(self, than: int, at_most: int) -> bool:
        """Whether the jobs of at most so many processors ask, together, for more `than` that."""
        wanted = 0
        for size in self._sizes:
            wanted += size if size <= at_most else 0
            if wanted > than:
                return True
        return False
