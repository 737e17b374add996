"""When the core asks to be woken, and what it then does.

At the end of a walltime, to end the job; when a prediction runs out, to correct it; when a job that
passed the head may have to make room for it; at a promised start, if nothing else happens then.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from scheduler.model.job import Job, JobState
from scheduler.model.orders import Reason, WakeAt

if TYPE_CHECKING:
    from scheduler.core.core import Core


class Alarms:
    """Wake-ups of one core; the earliest asked for stands, the next is asked for when it comes."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._at = inf

    def by(self, time: float) -> None:
        """Ask to be woken at a time, if no earlier one is asked for."""
        if time < self._at:
            self._at = time
            self._core.order_also(WakeAt(time))

    def started(self, job: Job) -> None:
        """Ask to be woken at the end of a job's estimate, if something happens then."""
        core = self._core
        predicted = core.predictor is not None and job.estimate_s < job.spec.walltime_s
        waited_for = job.passed and core.scenario.backfill.kill_at_reservation
        if core.kill_at_walltime or predicted or waited_for:
            self.by(job.estimated_end)

    def promised(self) -> None:
        """Ask to be woken for the first promised start, if no end is expected then.

        A place that another job has left may have been what a promise waited for. What waits for
        overdue processors is not woken for: they may come at any moment.
        """
        core = self._core
        if core.reservations and not core.ends.any_by(core.now):
            first = min(core.reservations.values())
            if core.now < first < inf and not core.ends.any_at(first):
                self.by(first)

    def ring(self) -> bool:
        """Do what is to be done now, and tell whether a scheduling pass is."""
        core = self._core
        overdue, next_end = self._overdue()
        due = bool(core.reservations) and min(core.reservations.values()) <= core.now
        for job in overdue:
            if core.predictor is not None and job.estimate_s < job.spec.walltime_s:
                self._correct(job)
                next_end = min(next_end, job.estimated_end)
            elif core.kill_at_walltime:
                facts = {"walltime": job.spec.walltime_s}
                core.kill(job, JobState.TIMEOUT, Reason("walltime", "{walltime} s are over", facts))
            elif job.passed and core.scenario.backfill.kill_at_reservation:
                due = True
        if not core.now < self._at < inf:  # else an earlier one is still to come
            self._at = inf
            self.by(next_end)
            self.promised()
        return due

    def _overdue(self) -> tuple[list[Job], float]:
        """Jobs whose estimates are over and who were not told to end; when the next one's is."""
        core = self._core
        overdue: dict[int, Job] = {}
        for end, number, _ in core.ends:
            job = core.live[number]
            if job.state is JobState.COMPLETING or end != job.estimated_end:  # a part that leaves
                continue
            if end > core.now:
                return list(overdue.values()), end
            overdue[number] = job
        return list(overdue.values()), inf

    def _correct(self, job: Job) -> None:
        """Prolong a prediction that ran out (Tsafrir, Etsion and Feitelson 2007)."""
        core = self._core
        assert core.predictor is not None
        while job.estimate_s < job.spec.walltime_s and job.estimated_end <= core.now:
            job.misses += 1
            job.estimate_s = core.predictor.corrected(job)
        core.expect(job)
