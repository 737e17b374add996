"""Signals to the processes of jobs: before the end of a walltime, and at the request of users."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

from scheduler.model.job import Job, JobState
from scheduler.model.orders import Facts, Reason, Signal
from scheduler.model.requests.signals import SentSignal, signal_name
from scheduler.state.scheduler_state import SchedulerState


class Signals:
    """The signals that the jobs of a partition get.

    Parameters
    ----------
    state : scheduler state; `Signal` is added to its orders.
    """

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self._due: list[tuple[float, int]] = []  # heap of moments and jobs, outdated ones included

    def watch(self, job: Job) -> None:
        """Note when a live job gets the signal that it requested; its end may have moved."""
        at = _moment(job)
        if at > self._state.now:
            job.warned = False
        if not job.warned and at < inf:
            heappush(self._due, (at, job.id))

    @property
    def next_at(self) -> float:
        """Time of the next signal, s; inf if there is none."""
        while self._due:
            at, number = self._due[0]
            job = self._state.live.get(number)
            if job is not None and not job.warned and _moment(job) == at:
                return at
            heappop(self._due)
        return inf

    def send_due(self) -> None:
        """Send the signals whose time has come."""
        while self.next_at <= self._state.now:
            job = self._state.live[heappop(self._due)[1]]
            wanted = job.spec.end_signal
            assert wanted is not None
            job.warned = True
            left = max(job.expected_end - self._state.now, 0.0)
            facts: Facts = {"signal": signal_name(wanted.number), "left": left}
            reason = Reason("signal", "{signal}: {left} s of the walltime are left", facts)
            self.send(job, wanted.number, reason, to_script=wanted.to_script)

    def send(self, job: Job, number: int, reason: Reason, *, to_script: bool) -> None:
        """Order a signal for a live job and its steps, unless it has been ordered to end."""
        if job.state is JobState.COMPLETING:
            return
        joining = job.resize.joining if job.resize is not None else ()
        groups = tuple(group for group in job.groups if group not in joining)
        serial = 1 if job.sent is None else job.sent.serial + 1
        job.sent = SentSignal(serial, number, groups, to_script)
        self._state.orders.append(Signal(job.id, serial, number, groups, to_script, reason))
        for step in () if to_script else self._state.steps.of(job.id):
            if step.groups:
                self.send(step, number, reason, to_script=False)


def _moment(job: Job) -> float:
    """Time at which a job gets the signal that it requested, s; inf if it requested none."""
    wanted = job.spec.end_signal
    if wanted is None or job.started_at is None:
        return inf
    return max(job.started_at, job.expected_end - wanted.before_s)
