"""What each event of a job changes: its submission, its beginning, its resizes and its end.

There is one method for each type of event. It changes the state and adds orders; scheduling passes
follow in `scheduler.partition.partition`. A job whose processes died, or whose program never began,
may go back to the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reshape.topology import SizeBounds
from scheduler.model.events import (
    Event,
    HoldChanged,
    JobCancelled,
    JobEnded,
    JobRequeued,
    JobSignalled,
    JobSpec,
    JobStarted,
    JobSubmitted,
    JobUpdated,
    ResizeDone,
    ResizeFailed,
    ResizePoint,
    SizesRequested,
)
from scheduler.model.job import ACTIVE, COMPLETED, Job, JobState
from scheduler.model.orders import Drop, Facts, Kill, Reason, Requeue
from scheduler.model.requests import signal_name
from scheduler.partition.alarms import Alarms
from scheduler.partition.machine_events import MachineEvents
from scheduler.partition.queueing import Queueing
from scheduler.partition.resizing import Resizes
from scheduler.state.exclusions import Exclusion, hold_of
from scheduler.state.scheduler_state import SchedulerState

S = JobState
#: How often a job is queued again that a node could not start.
MOST_FAILED_STARTS = 3
#: Seconds for which nothing is started on what is free of such a node.
HOLD_S = 30.0


class JobEvents:
    """The changes by events of jobs.

    Parameters
    ----------
    state : scheduler state.
    alarms : wake-ups of the partition.
    resizes : decides on resizes.
    queueing : the queued jobs.
    machine : excludes the processors of nodes on which jobs could not start.
    learns_at_once : whether the predictor learns each end before the next event; otherwise when
        `train_predictor` is called.
    keep_ended : keep the records of ended jobs.
    """

    def __init__(
        self,
        state: SchedulerState,
        alarms: Alarms,
        resizes: Resizes,
        queueing: Queueing,
        machine: MachineEvents,
        *,
        learns_at_once: bool,
        keep_ended: bool,
    ) -> None:
        self._state, self._alarms, self._resizes = state, alarms, resizes
        self._queueing, self._machine = queueing, machine
        self._learns_at_once, self._keep_ended = learns_at_once, keep_ended
        self._predictor = alarms.predictor
        self._ended: list[Job] = []  # jobs from which the predictor is still to learn

    def handlers(self) -> dict[type[Event], Callable[[Any], None]]:
        """Return the method for each type of event but resize points, which follow the pass."""
        return {
            HoldChanged: self.on_hold_changed,
            JobCancelled: self.on_job_cancelled,
            JobEnded: self.on_job_ended,
            JobRequeued: self.on_job_requeued,
            JobSignalled: self.on_job_signalled,
            JobStarted: self.on_job_started,
            JobSubmitted: self.on_job_submitted,
            JobUpdated: self.on_job_updated,
            ResizeDone: self.on_resize_done,
            ResizeFailed: self.on_resize_failed,
            SizesRequested: self.on_sizes_requested,
        }

    def finish(self, job: Job, final: JobState) -> None:
        """Release everything that a live job holds and record its end."""
        state = self._state
        state.vacate(job)
        job.state = final  # a legal transition from any state of a live job
        job.ended_at = state.now
        if self._predictor is not None and job.spec.step_of is None:
            self._ended.append(job)
            if self._learns_at_once:
                self.train_predictor()
        self._queueing.note_end(job)
        if not self._keep_ended:
            del state.jobs[job.id]

    def sort_ended(self, places: dict[int, int]) -> None:
        """Let the predictor learn the ends of this instant in the order of the starts.

        Parameters
        ----------
        places : job number -> place of its end among the events, for jobs that started together.
        """
        self._ended.sort(key=lambda job: (job.started_at or 0.0, places.get(job.id, len(places))))

    def train_predictor(self) -> None:
        """Give the predictor the jobs that ended."""
        if self._predictor is not None:
            for job in self._ended:
                self._predictor.ended(job)
        self._ended.clear()

    # One method for each type of event.

    def on_job_submitted(self, event: JobSubmitted) -> None:
        """Queue a job; a number that is known already is a repetition."""
        jobs = self._state.jobs
        if event.job not in jobs:
            job = jobs[event.job] = Job(event.job, event.spec, event.at)
            if not job.is_plain:
                job.conditions = event.spec.conditions
            self._queueing.admit(job)

    def on_job_started(self, event: JobStarted) -> None:
        """Set a job RUNNING; a restarted job keeps its size."""
        job = self._state.jobs.get(event.job)
        if job is None or job.state is not S.STARTING:
            return
        job.become(S.RUNNING)
        if job.resizable:
            job.history.configured(job.size, event.at)

    def on_resize_point(self, event: ResizePoint) -> None:
        """Record the performance and decide: expand, contract or continue (PRIO 2)."""
        job = self._state.jobs.get(event.job)
        self._state.orders.append(self._resizes.decide(job, event))
        if job is not None and job.state in ACTIVE:
            self._alarms.progressed(job, event)

    def on_sizes_requested(self, event: SizesRequested) -> None:
        """Take over the bounds that a program requests on its size, or decline them."""
        job = self._state.jobs.get(event.job)
        if job is not None and job.state in ACTIVE:
            bounds = SizeBounds(event.minimum, event.maximum)
            self._state.orders.append(self._resizes.answer_request(job, bounds))

    def on_resize_done(self, event: ResizeDone) -> None:
        """Commit a resize; groups that left release their processors."""
        job = self._state.jobs.get(event.job)
        if job is not None and _is_under_way(job, event.serial):
            self._resizes.commit(job, event)

    def on_resize_failed(self, event: ResizeFailed) -> None:
        """Roll back a resize; a job whose processes are gone is restarted or fails."""
        job = self._state.jobs.get(event.job)
        if job is not None and _is_under_way(job, event.serial):
            orders = self._resizes.roll_back(job, event)
            if any(isinstance(order, Kill) for order in orders):
                most = self._resizes.scenario.max_restarts
                reason = reason_of_death(job, job.why, 0, most) if job.spec.requeue else None
                if reason is not None:
                    self._requeue(job, reason)
                    return
                self.finish(job, S.FAILED)
            self._state.orders.extend(orders)

    def on_job_ended(self, event: JobEnded) -> None:
        """Release the processors of a job for the pass to use (PRIO 2, System Monitor)."""
        job = self._state.live.get(event.job)
        if job is None:
            return
        if job.requeue_asked and (event.exit_code or event.signal):
            self._requeue(job, Reason("requeue", "{why}", {"why": job.why}))
            return
        if event.died or not event.began:  # most jobs end well
            reason = reason_to_requeue(job, event, self._resizes.scenario.max_restarts)
            if reason is not None:
                self._requeue(job, reason)
                if event.at_fault:
                    self._hold(event.at_fault)
                return
        final = COMPLETED
        if event.exit_code or event.signal:
            job.exit_code, job.signal = event.exit_code, event.signal
            final = S.FAILED
        if event.why and not job.why:
            job.why = event.why
        if job.requeue_asked:  # it completed before it was ended
            job.requeue_asked, job.cause, job.why = False, None, ""
        self.finish(job, job.cause or final)

    def _requeue(self, job: Job, reason: Reason) -> None:
        """Queue a job again, where it keeps its place."""
        state = self._state
        state.vacate(job)
        job.requeue(state.now, reason.sentence)
        self._queueing.set_demand(job)
        state.queue.add_again(job, state.now)
        if job.spec.task_of is not None:
            self._queueing.arrays.add_task(job)
        state.request_pass()
        state.orders.append(Requeue(job.id, reason))

    def _hold(self, name: str) -> None:
        """Start nothing for some time on the free processors of a node that failed to start a job.

        Otherwise the job would be started there again at once. Jobs that run there stay.
        """
        if free := self._machine.free_of(name):
            now = self._state.now
            self._machine.exclude(Exclusion(hold_of(name), free, now, now + HOLD_S))

    def on_job_cancelled(self, event: JobCancelled) -> None:
        """Remove a queued job; end a live one."""
        state = self._state
        job = state.jobs.get(event.job)
        if job is None:
            return
        if job.state is S.PENDING and (job.tasks_queued or event.tasks is not None):
            self._cancel_tasks(job, event)
        elif job.state is S.PENDING:
            self._queueing.withdraw(job)
            job.cancel(state.now, event.why)
            if job.spec.task_of is not None:  # the event may be that of its array
                state.orders.append(Drop(job.id, Reason("cancelled", event.why)))
            self._queueing.note_end(job)
        elif job.requeue_asked:
            job.requeue_asked, job.cause, job.why = False, S.CANCELLED, event.why
        elif job.id in state.live and job.state is not S.COMPLETING:
            state.kill(job, S.CANCELLED, Reason("cancelled", "{why}", {"why": event.why}))

    def on_hold_changed(self, event: HoldChanged) -> None:
        """Hold a queued job, or release it."""
        job = self._state.jobs.get(event.job)
        if job is None or job.state is not S.PENDING or job.spec.step_of is not None:
            return
        if event.tasks is None:
            self._queueing.set_hold(job, event.hold)
        elif job.to_come is not None:
            self._queueing.hold_tasks(job, event.tasks, event.hold)

    def on_job_requeued(self, event: JobRequeued) -> None:
        """End a live job in order to queue it again; a step is not queued again."""
        job = self._state.live.get(event.job)
        if job is not None and job.state is not S.COMPLETING and job.spec.step_of is None:
            reason = Reason("requeue", "{why}", {"why": event.why})
            self._state.kill(job, S.PENDING, reason)
            job.requeue_asked = True

    def on_job_signalled(self, event: JobSignalled) -> None:
        """Send a signal to a live job, or to the live tasks of an array."""
        job = self._state.jobs.get(event.job)
        if job is None:
            return
        facts = {"signal": signal_name(event.number), "why": event.why}
        reason = Reason("signal", "{signal}: {why}", facts)
        for each in [job] if job.spec.array is None else self._queueing.arrays.tasks_here(job):
            if each.id in self._state.live:
                self._alarms.send_signal(each, event.number, reason, to_script=event.to_script)

    def on_job_updated(self, event: JobUpdated) -> None:
        """Change the request of a job; that of a step changes with its job."""
        self._state.orders += self._queueing.bring(event)
        job = self._state.jobs.get(event.job)
        if job is None or job.spec.step_of is not None:
            return
        if job.state is S.PENDING:
            self._queueing.withdraw(job)
            self._queueing.change_request(job, event.spec)
        elif job.id in self._state.live and job.state is not S.COMPLETING:
            self._change_limits(job, event.spec)

    def _cancel_tasks(self, array: Job, event: JobCancelled) -> None:
        """Cancel tasks of an array that have not ended, or all of them and the array."""
        if array.to_come is None:
            return
        queueing, positions = self._queueing, event.tasks
        if positions is None:
            queueing.withdraw(array)
            array.conditions, array.cause, array.why = None, S.CANCELLED, event.why
        queueing.cancel_to_come(array, array.to_come.left if positions is None else positions)
        for task in queueing.arrays.tasks_here(array, positions):
            self.on_job_cancelled(JobCancelled(event.at, task.id, event.why))
        if array.state is S.PENDING:
            queueing.end_array(array)

    def _change_limits(self, job: Job, spec: JobSpec) -> None:
        """Change the walltime, the largest size and the labels of a live job."""
        state = self._state
        job.change_limits(spec, is_estimate=self._predictor is None)
        self._alarms.limit(job)
        state.expect(job)
        self._queueing.limit_steps(job)
        state.compression_due = True
        state.request_pass()
        self._alarms.watch_end(job)


def _is_under_way(job: Job, serial: int) -> bool:
    return job.resize is not None and job.resize.serial == serial


def reason_to_requeue(job: Job, event: JobEnded, most: int) -> Reason | None:
    """Reason to queue a job again that has ended; None if it is not to run again.

    A job that was cancelled or over its walltime is not, and a step never is.

    Parameters
    ----------
    most : how often a job may die in succession without a new checkpoint.
    """
    if job.cause not in (None, JobState.NODE_FAIL) or job.spec.step_of is not None:
        return None
    why = job.why or event.why
    if not event.began and job.restarts == 0:
        return _reason_of_unstarted(job, event, why)
    if event.died and job.spec.requeue:
        return reason_of_death(job, why, event.checkpoint, most)
    return None


def reason_of_death(job: Job, why: str, checkpoint: int, most: int) -> Reason | None:
    """Reason to queue a job again whose processes died.

    None, with the reason in `job.why`, after too many attempts.

    Parameters
    ----------
    why : how it died.
    checkpoint : iteration of its last checkpoint; 0 if none is known.
    most : how often it may die in succession without a new checkpoint.
    """
    if checkpoint > job.checkpoint:
        job.checkpoint, job.stalled = checkpoint, 0
    facts: dict[str, int | float | str]
    facts = {"why": why, "checkpoint": job.checkpoint, "count": job.stalled, "most": most}
    if job.stalled >= most:
        text = "{why}; already requeued {count} times of {most} without a new checkpoint"
        job.why = Reason("requeue", text, facts).sentence
        return None
    job.stalled += 1
    facts["count"] = job.stalled
    begins = "it restarts from its checkpoint of iteration {checkpoint}"
    begins = begins if job.checkpoint else "it starts from the beginning, as it has no checkpoint"
    text = f"{{why}}; {begins}; attempt {{count}} of {{most}} without a new one"
    return Reason("requeue", text, facts)


def _reason_of_unstarted(job: Job, event: JobEnded, why: str) -> Reason | None:
    """Reason to queue a job again whose program has not begun.

    The loss of an agent is no reason to expect that the next start fails, too, and does not count.
    """
    facts: Facts = {"why": why, "count": job.failed_starts, "most": MOST_FAILED_STARTS}
    if not event.at_fault:
        return Reason("not begun", "{why}; its program had not begun", facts)
    if job.failed_starts >= MOST_FAILED_STARTS:
        text = "{why}; already requeued {count} times of {most} because it could not be started"
        job.why = Reason("not begun", text, facts).sentence
        return None
    job.failed_starts += 1
    facts = {**facts, "count": job.failed_starts, "node": event.at_fault}
    text = "{why}; its program had not begun on {node}; attempt {count} of {most}"
    return Reason("not begun", text, facts)
