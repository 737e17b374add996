"""When processors that are held now are expected back, soonest first."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from math import inf
from typing import TypeAlias

from scheduler.core.state import Job, JobState

End: TypeAlias = tuple[float, int, int]  #: time (s), job, processors


class Ends:
    """Expected ends of allocations, sorted. A job has one, or two while a part of it leaves."""

    def __init__(self) -> None:
        self._ends: list[End] = []
        self._of: dict[int, tuple[End, ...]] = {}

    def __iter__(self) -> Iterator[End]:
        """Go through the ends, soonest first."""
        return iter(self._ends)

    def any_by(self, time: float) -> bool:
        """Whether anything is expected back by this time."""
        return bool(self._ends) and self._ends[0][0] <= time

    def expect(self, job: int, *parts: tuple[float, int]) -> None:
        """Expect a job's processors back in (time, processors) parts, instead of as before."""
        self.forget(job)
        ends = self._of[job] = tuple((time, job, processors) for time, processors in parts)
        for end in ends:
            insort(self._ends, end)

    def forget(self, job: int) -> None:
        """Expect nothing of this job (any more)."""
        for end in self._of.pop(job, ()):
            del self._ends[bisect_left(self._ends, end)]


def past_walltime(live: Mapping[int, Job], ends: Ends, now: float) -> tuple[list[Job], float]:
    """Jobs whose walltime is over and who were not told to end; and when the next one's is.

    Returns
    -------
    (jobs, seconds); the time is inf if no more jobs run.
    """
    overdue: dict[int, Job] = {}
    for end, number, _ in ends:
        job = live[number]
        if job.state is JobState.COMPLETING or end != job.expected_end:  # a part that leaves now
            continue
        if end > now:
            return list(overdue.values()), end
        overdue[number] = job
    return list(overdue.values()), inf
