"""Wake-ups: when the core asks for a `Wakeup`, and what it does at one.

A wake-up comes at the end of a walltime, to end the job; when a prediction expires, to correct it;
when a backfilled job may have to make room for the head; and at a reserved start time, if nothing
else happens then.
"""

from __future__ import annotations

from math import inf

from scheduler.model.job import Job, JobState
from scheduler.model.orders import Reason, WakeAt
from scheduler.predictions.estimates import Predictor
from scheduler.state.scheduler_state import SchedulerState


class Alarms:
    """Wake-ups of one core. Only the earliest is asked for; the next one when it has come.

    Parameters
    ----------
    state : scheduler state; `WakeAt` is added to its orders.
    kill_at_walltime : end jobs that exceed their walltime.

    Attributes
    ----------
    predictor : corrects predictions that expire; None if there are no predictions.
    kill_at_reservation : overdue backfilled jobs may be ended in favour of the head.
    """

    def __init__(self, state: SchedulerState, kill_at_walltime: bool) -> None:
        self._state = state
        self._at = inf  # time of the wake-up that was asked for, s
        self.kill_at_walltime = kill_at_walltime
        self.kill_at_reservation = False
        self.predictor: Predictor | None = None

    def wake_by(self, time: float) -> None:
        """Ask for a wake-up at a time (s) unless an earlier one was asked for."""
        if time < self._at:
            self._at = time
            self._state.orders.append(WakeAt(time))

    def job_started(self, job: Job) -> None:
        """Ask for a wake-up at the end of a job's estimate if something is to be done then."""
        predicted = self.predictor is not None and job.estimate_s < job.spec.walltime_s
        in_the_way = job.backfilled and self.kill_at_reservation
        if self.kill_at_walltime or predicted or in_the_way:
            self.wake_by(job.estimated_end)

    def wake_for_reservations(self) -> None:
        """Ask for a wake-up at the first reserved start if no release is expected then.

        Such a reservation may begin when another one has moved. There is no wake-up while
        processors are overdue: they may be released at any moment.
        """
        state = self._state
        if state.reservations and not state.releases.any_by(state.now):
            first = min(state.reservations.values())
            if state.now < first < inf and not state.releases.any_at(first):
                self.wake_by(first)

    def wake(self) -> bool:
        """Handle the jobs that are overdue now, and return whether a scheduling pass is due."""
        state = self._state
        overdue, next_end = self._overdue()
        pass_due = bool(state.reservations) and min(state.reservations.values()) <= state.now
        for job in overdue:
            if self.predictor is not None and job.estimate_s < job.spec.walltime_s:
                self._correct(job, self.predictor)
                next_end = min(next_end, job.estimated_end)
            elif self.kill_at_walltime:
                facts = {"walltime": job.spec.walltime_s}
                reason = Reason("walltime", "{walltime} s are over", facts)
                state.kill(job, JobState.TIMEOUT, reason)
            elif job.backfilled and self.kill_at_reservation:
                pass_due = True
        if not state.now < self._at < inf:  # otherwise the wake-up asked for is still to come
            self._at = inf
            self.wake_by(next_end)
            self.wake_for_reservations()
        return pass_due

    def _overdue(self) -> tuple[list[Job], float]:
        """Overdue jobs that are not COMPLETING, and when the next estimate ends (s)."""
        state = self._state
        overdue: dict[int, Job] = {}
        for end, number, _ in state.releases:
            job = state.live[number]
            if job.state is JobState.COMPLETING or end != job.estimated_end:  # a leaving part
                continue
            if end > state.now:
                return list(overdue.values()), end
            overdue[number] = job
        return list(overdue.values()), inf

    def _correct(self, job: Job, predictor: Predictor) -> None:
        """Prolong an expired prediction (Tsafrir, Etsion and Feitelson 2007)."""
        while job.estimate_s < job.spec.walltime_s and job.estimated_end <= self._state.now:
            job.misses += 1
            job.estimate_s = predictor.corrected(job)
        self._state.expect(job)
