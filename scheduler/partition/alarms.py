"""Wake-ups: when a partition requests a `Wakeup`, and what it does then.

A wake-up comes at the end of a walltime, to end the job, and when a job gets a signal before it;
when a prediction expires, to extend it; when a backfilled job may have to make room for the head;
when an exclusion begins or ends; and at a reserved start time, if nothing else happens then.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

from scheduler.model.events import ResizePoint
from scheduler.model.job import Job, JobState
from scheduler.model.orders import Facts, Reason, Signal, WakeAt
from scheduler.model.requests import SentSignal, signal_name
from scheduler.predictions.predictor import Predictor
from scheduler.state.scheduler_state import SchedulerState


class Alarms:
    """Wake-ups of a partition. Only the earliest is asked for; the next one when it has come.

    Parameters
    ----------
    state : scheduler state; `WakeAt` and `Signal` are added to its orders.
    predictor : extends predictions that expire; None if the walltimes are the estimates.
    kill_at_walltime : end jobs that exceed their walltime.
    kill_at_reservation : overdue backfilled jobs may be ended in favour of the head.
    passes_at_extensions : a scheduling pass follows when a prediction is extended, because a queued
        job may now end before the head can start.

    Attributes
    ----------
    predictor, kill_at_walltime : see above.
    """

    def __init__(
        self,
        state: SchedulerState,
        predictor: Predictor | None,
        *,
        kill_at_walltime: bool,
        kill_at_reservation: bool,
        passes_at_extensions: bool,
    ) -> None:
        self._state, self.predictor = state, predictor
        self.kill_at_walltime, self._kill_at_reservation = kill_at_walltime, kill_at_reservation
        self._passes_at_extensions = passes_at_extensions
        state.watch_start = self.watch_end
        state.watches_starts = predictor is not None or kill_at_walltime or kill_at_reservation
        self._at = inf  # time of the wake-up that was asked for, s
        self._is_restored = False
        self._signals: list[tuple[float, int]] = []  # heap of moments and jobs, outdated ones too

    @property
    def due_from(self) -> float:
        """Time (s) from which on a `Wakeup` is for this partition: at once in a restored state."""
        return -inf if self._is_restored else self._at

    def restored(self) -> None:
        """Note that what was asked for before is not known."""
        self._is_restored = True

    def predict(self, job: Job) -> None:
        """Set the estimate of a job that is being queued."""
        if self.predictor is not None:
            job.first_estimate_s = self.predictor.predict(job)
            job.estimate_s = self._limited(job, job.first_estimate_s)

    def progressed(self, job: Job, point: ResizePoint) -> None:
        """Set the estimate of a job that is at a resize point."""
        if self.predictor is None or job.spec.step_of is not None:  # a step ends with its job
            return
        predicted_s = self.predictor.progressed(job, point)
        if predicted_s is None:
            return
        estimate_s = self._limited(job, predicted_s)
        if estimate_s != job.estimate_s:
            job.estimate_s = estimate_s
            self._state.expect(job)
            self._state.compression_due = True
            self._state.request_pass()
            self.wake_by(max(job.estimated_end, self._state.now))

    def limit(self, job: Job) -> None:
        """Reduce an estimate above the walltime if jobs are ended at their walltimes."""
        job.estimate_s = self._limited(job, job.estimate_s)

    def _limited(self, job: Job, predicted_s: float) -> float:
        if self.kill_at_walltime and predicted_s > job.walltime_s:
            return job.walltime_s
        return predicted_s

    def _is_extended(self, job: Job) -> bool:
        """Whether the estimate of a job is extended when it expires."""
        if self.predictor is None:
            return False
        may_exceed = self.predictor.beyond_walltime and not self.kill_at_walltime
        return may_exceed or job.estimate_s < job.walltime_s

    def wake_by(self, time: float) -> None:
        """Ask for a wake-up at a time (s) unless an earlier one was asked for."""
        if time < self._at:
            self._at = time
            self._state.orders.append(WakeAt(time))

    def watch_end(self, job: Job) -> None:
        """Ask for a wake-up at the expected end of a live job, and at its signal, if that matters.

        It is called when the job starts, and when its expected end moves.
        """
        in_the_way = job.backfilled and self._kill_at_reservation
        if self.kill_at_walltime or in_the_way or self._is_extended(job):
            self.wake_by(max(job.estimated_end, self._state.now))
        if not job.is_plain and job.spec.end_signal is not None:
            self.watch_signal(job)
            self.wake_by(max(self._next_signal(), self._state.now))

    def watch_signal(self, job: Job) -> None:
        """Note when a live job gets the signal that it requested."""
        at = _moment(job)
        if at > self._state.now:
            job.warned = False
        if not job.warned and at < inf:
            heappush(self._signals, (at, job.id))

    def _next_signal(self) -> float:
        """Time of the next signal, s; inf if there is none."""
        while self._signals:
            at, number = self._signals[0]
            job = self._state.live.get(number)
            if job is not None and not job.warned and _moment(job) == at:
                return at
            heappop(self._signals)
        return inf

    def _send_signals(self) -> None:
        """Send the signals whose time has come."""
        while self._next_signal() <= self._state.now:
            job = self._state.live[heappop(self._signals)[1]]
            end_signal = job.spec.end_signal
            assert end_signal is not None
            job.warned = True
            left = max(job.expected_end - self._state.now, 0.0)
            facts: Facts = {"signal": signal_name(end_signal.number), "left": left}
            reason = Reason("signal", "{signal}: {left} s of the walltime are left", facts)
            self.send_signal(job, end_signal.number, reason, to_script=end_signal.to_script)

    def send_signal(self, job: Job, number: int, reason: Reason, *, to_script: bool) -> None:
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
                self.send_signal(step, number, reason, to_script=False)

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

    def wake_for_exclusions(self) -> None:
        """Ask for a wake-up when the next exclusion begins or ends."""
        self.wake_by(self._state.exclusions.next_change)

    def wake(self) -> bool:
        """Handle the jobs that are overdue now, and return whether a scheduling pass is due."""
        state = self._state
        self._is_restored = False
        overdue, next_end = self._overdue()
        pass_due = bool(state.reservations) and min(state.reservations.values()) <= state.now
        for job in overdue:
            if job.state is JobState.COMPLETING:  # a step that was ended with its job
                continue
            if self.predictor is not None and self._is_extended(job):
                self._extend(job, self.predictor)
                next_end = min(next_end, job.estimated_end)
                pass_due = pass_due or self._passes_at_extensions
            elif self.kill_at_walltime and job.expected_end > state.now:
                job.estimate_s = job.walltime_s  # it is slower on its size than was expected
                state.expect(job)
                next_end = min(next_end, job.estimated_end)
                pass_due = pass_due or self._passes_at_extensions
            elif self.kill_at_walltime:
                facts = {"walltime": job.walltime_s}
                reason = Reason("walltime", "{walltime} s are over", facts)
                state.kill(job, JobState.TIMEOUT, reason)
            elif job.backfilled and self._kill_at_reservation:
                pass_due = True
        self._send_signals()
        if not state.now < self._at < inf:  # otherwise the wake-up asked for is still to come
            self._at = inf
            self.wake_by(min(next_end, self._next_signal()))
            self.wake_for_exclusions()
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

    def _extend(self, job: Job, predictor: Predictor) -> None:
        """Extend an expired prediction (Tsafrir, Etsion and Feitelson 2007; GUIM 4.4.3)."""
        while self._is_extended(job) and job.estimated_end <= self._state.now:
            job.misses += 1
            predicted_s = predictor.missed(job)
            if not predicted_s > job.estimate_s:
                raise ValueError(
                    f"the prediction after a missed one of {job.estimate_s} s must be longer,"
                    f" got {predicted_s}"
                )
            job.estimate_s = self._limited(job, predicted_s)
        self._state.expect(job)


def _moment(job: Job) -> float:
    """Time at which a job gets the signal that it requested, s; inf if it requested none."""
    end_signal = job.spec.end_signal
    if end_signal is None or job.started_at is None:
        return inf
    return max(job.started_at, job.expected_end - end_signal.before_s)
