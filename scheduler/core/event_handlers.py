"""What each event changes: the beginning, the resizes and the end of jobs, nodes and wake-ups.

There is one method for each type of event. It changes the state and adds orders; scheduling passes
follow in `scheduler.core.partition`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from reshape.topology import SizeBounds
from scheduler.core import reservations
from scheduler.core.alarms import Alarms
from scheduler.core.eligibility import Awaited, Eligibility, note_change
from scheduler.core.passes import Passes
from scheduler.core.requeueing import HOLD_S, reason_of_death, reason_to_requeue
from scheduler.core.resizing import Resizes
from scheduler.model.events import (
    ClockSet,
    DepthChanged,
    DrainChanged,
    Event,
    HoldChanged,
    JobCancelled,
    JobEnded,
    JobRequeued,
    JobSpec,
    JobStarted,
    JobSubmitted,
    JobUpdated,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    ReservationCancelled,
    ReservationRequested,
    ResizeDone,
    ResizeFailed,
    ResizePoint,
    SizesRequested,
    Wakeup,
)
from scheduler.model.job import ACTIVE, COMPLETED, RESIZING, Job, JobState
from scheduler.model.orders import Await, Drop, Kill, Reason, Refuse, Requeue
from scheduler.model.procset import ProcSet
from scheduler.model.requests.conditions import Conditions
from scheduler.state.arrays import Arrays
from scheduler.state.exclusions import Exclusion, expiry_of, hold_of
from scheduler.state.scheduler_state import SchedulerState

S = JobState


class EventHandlers:
    """The changes that events make.

    Parameters
    ----------
    state : scheduler state.
    alarms : wake-ups of the partition.
    resizes : decides on resizes.
    passes : selected again when further resources are named for the first time, and when exclusions
        have come or gone.
    max_jobs : depth of passes by the scenario; None: no limit.
    learns_at_once : whether the predictor learns each end before the next event; otherwise when
        `train_predictor` is called.
    keep_ended : keep the records of ended jobs.
    awaited : what the jobs of all partitions wait for.

    Attributes
    ----------
    state, alarms : see above.
    eligibility : the queued jobs that are not eligible.
    arrays : the arrays that are eligible.
    predictor : predicts run times; None if the scenario uses the users' estimates.
    depth_limit : depth of passes to which the driver has limited the partition; None: no limit.
    """

    def __init__(
        self,
        state: SchedulerState,
        alarms: Alarms,
        resizes: Resizes,
        passes: Passes,
        *,
        max_jobs: int | None,
        learns_at_once: bool,
        keep_ended: bool,
        awaited: Awaited,
    ) -> None:
        self.state = state
        self.alarms, self._resizes, self._passes = alarms, resizes, passes
        self._learns_at_once, self._keep_ended = learns_at_once, keep_ended
        self._ended: list[Job] = []  # jobs from which the predictor is still to learn
        self.predictor = alarms.predictor
        self._max_jobs = max_jobs
        self._awaited = awaited
        self.eligibility = Eligibility(state.jobs, awaited, self._enqueue)
        self.arrays = Arrays(state.jobs, awaited.tasks)
        self.limit_depth(None)

    # Beginning and end of a job in the core.

    def admit(self, job: Job) -> None:
        """Queue a job: a new one, or one that was redirected from another partition."""
        if job.conditions is None:
            self._enqueue(job)
            return
        state = self.state
        self.eligibility.admit(job, state.now, state.orders)
        self.alarms.wake_by(self.eligibility.next_begin)

    def _enqueue(self, job: Job) -> None:
        """Add an eligible job to the queue."""
        if job.spec.array is not None:
            self.arrays.add(job)
            self.state.request_pass()
            return
        self.set_demand(job)
        queue = self.state.queue
        if queue.withdrawn and job.id in queue.withdrawn:
            queue.add_again(job, self.state.now)
        else:
            queue.add(job, self.state.now)
        self.state.request_pass()

    def queue_tasks(self) -> None:
        """Queue the tasks of arrays that could start now."""
        state = self.state
        for task in self.arrays.due(state.machine.free_count, state.orders):
            self._enqueue(task)

    def set_demand(self, job: Job) -> None:
        """Set a job's estimate and its demand."""
        state, spec = self.state, job.spec
        if self.predictor is not None:
            self.alarms.predict(job, self.predictor)
        if spec.resources:
            is_new = state.machine.pools.register(spec.resources)
            if is_new or not state.multi_resource:
                self.count_resources()
        if spec.reservation and not state.excluding:
            state.excluding = True
            state.discard_reservations()
            self._exclusions_changed()
        if state.multi_resource:
            job.demand = state.quantity(job.processors, job)
        else:
            job.demand = job.processors

    def count_resources(self) -> None:
        """Count all resources that were named so far, and schedule by them."""
        self.state.count_resources()
        self._passes.select()

    def finish(self, job: Job, final: JobState) -> None:
        """Release everything that a live job holds and record its end."""
        state = self.state
        state.vacate(job)
        job.state = final  # a legal transition from any state of a live job
        job.ended_at = state.now
        if self.predictor is not None:
            self._ended.append(job)
            if self._learns_at_once:
                self.train_predictor()
        if state.demands is not None:
            state.demands.forget(job.id)
        self._note_end(job)
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
        if self.predictor is not None:
            for job in self._ended:
                self.predictor.ended(job)
        self._ended.clear()

    # One method for each type of event.

    def on_job_submitted(self, event: JobSubmitted) -> None:
        """Queue a job; a number that is known already is a repetition."""
        jobs = self.state.jobs
        if event.job not in jobs:
            job = jobs[event.job] = Job(event.job, event.spec, event.at)
            job.conditions = event.spec.conditions
            self.admit(job)

    def on_job_started(self, event: JobStarted) -> None:
        """Set a job RUNNING; a restarted job keeps its size."""
        job = self.state.jobs.get(event.job)
        if job is None or job.state is not S.STARTING:
            return
        job.become(S.RUNNING)
        if job.spec.resizable:
            job.history.configured(job.size, event.at)

    def on_resize_point(self, event: ResizePoint) -> None:
        """Record the performance and decide: expand, contract or continue (PRIO 2)."""
        job = self.state.jobs.get(event.job)
        self.state.orders.append(self._resizes.decide(job, event))
        if self.predictor is not None and job is not None and job.state in ACTIVE:
            self.alarms.progressed(job, event, self.predictor)
        demands = self.state.demands
        if (
            demands is not None
            and job is not None
            and job.state in ACTIVE
            and demands.observe(job, self.state.live, event.iteration_s)
        ):
            self.state.allocation_changed()
            self.state.request_pass()

    def on_sizes_requested(self, event: SizesRequested) -> None:
        """Take over the bounds that a program requests on its size, or decline them."""
        job = self.state.jobs.get(event.job)
        if job is not None and job.state in ACTIVE:
            bounds = SizeBounds(event.minimum, event.maximum)
            self.state.orders.append(self._resizes.answer_request(job, bounds))

    def on_resize_done(self, event: ResizeDone) -> None:
        """Commit a resize; groups that left release their processors."""
        job = self.state.jobs.get(event.job)
        if job is not None and _is_under_way(job, event.serial):
            self._resizes.commit(job, event)

    def on_resize_failed(self, event: ResizeFailed) -> None:
        """Roll back a resize; a job whose processes are gone is restarted or fails."""
        job = self.state.jobs.get(event.job)
        if job is not None and _is_under_way(job, event.serial):
            order = self._resizes.roll_back(job, event)
            if isinstance(order, Kill):
                most, why = self._resizes.scenario.max_restarts, order.reason.sentence
                reason = reason_of_death(job, why, 0, most) if job.spec.requeue else None
                if reason is not None:
                    self._requeue(job, reason)
                    return
                self.finish(job, S.FAILED)
            if order is not None:
                self.state.orders.append(order)

    def on_job_ended(self, event: JobEnded) -> None:
        """Release the processors of a job for the pass to use (PRIO 2, System Monitor)."""
        job = self.state.live.get(event.job)
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
        state = self.state
        state.vacate(job)
        job.requeue(state.now, reason.sentence)
        self.set_demand(job)
        state.queue.add_again(job, state.now)
        state.request_pass()
        state.orders.append(Requeue(job.id, reason))

    def _hold(self, name: str) -> None:
        """Start nothing for some time on the free processors of a node that failed to start a job.

        Otherwise the job would be started there again at once. Jobs that run there stay.
        """
        node = self.state.machine.nodes.get(name)
        free = ProcSet() if node is None else node.processors & self.state.machine.free
        if free:
            now = self.state.now
            self.exclude(Exclusion(hold_of(name), free, now, now + HOLD_S))

    def on_job_cancelled(self, event: JobCancelled) -> None:
        """Remove a queued job; end a live one."""
        state = self.state
        job = state.jobs.get(event.job)
        if job is None:
            return
        if job.state is S.PENDING and job.tasks_queued:
            self._cancel_array(job, event)
        elif job.state is S.PENDING:
            self.withdraw(job)
            job.become(S.CANCELLED)
            job.conditions, job.why, job.ended_at = None, event.why, state.now
            self._note_end(job)
        elif job.requeue_asked:
            job.requeue_asked, job.cause, job.why = False, S.CANCELLED, event.why
        elif job.id in state.live and job.state is not S.COMPLETING:
            state.kill(job, S.CANCELLED, Reason("cancelled", "{why}", {"why": event.why}))

    def on_hold_changed(self, event: HoldChanged) -> None:
        """Hold a queued job, or release it."""
        state = self.state
        job = state.jobs.get(event.job)
        if job is None or job.state is not S.PENDING:
            return
        for task in self.arrays.tasks(job) if job.tasks_queued else ():
            self.on_hold_changed(HoldChanged(event.at, task.id, event.hold))
        if job.conditions is not None:
            conditions = msgspec.structs.replace(job.conditions, hold=event.hold)
            self.eligibility.set_hold(job, conditions, state.now, state.orders)
        elif event.hold:
            self.withdraw(job)
            job.conditions = Conditions(hold=event.hold)
            self.eligibility.admit(job, state.now, state.orders)
            state.orders.append(Await(job.id, self.eligibility.reason(job)))

    def withdraw(self, job: Job) -> None:
        """Take a PENDING job out of the queue, or from the jobs that are not eligible."""
        if job.conditions is not None:
            self.eligibility.remove(job)
            return
        if job.spec.array is not None:
            self.arrays.close(job)
            return
        self.state.queue.withdraw(job)
        self.state.cancel_reservation(job)

    def on_job_requeued(self, event: JobRequeued) -> None:
        """End a live job in order to queue it again."""
        job = self.state.live.get(event.job)
        if job is not None and job.state is not S.COMPLETING:
            reason = Reason("requeue", "{why}", {"why": event.why})
            self.state.kill(job, S.PENDING, reason)
            job.requeue_asked = True

    def on_job_updated(self, event: JobUpdated) -> None:
        """Change the request of a job."""
        job = self.state.jobs.get(event.job)
        if job is not None and job.state is S.PENDING:
            self.withdraw(job)
            self.requested_anew(job, event.spec)
        elif job is not None and job.id in self.state.live and job.state is not S.COMPLETING:
            self._change_limits(job, event.spec)

    def requested_anew(self, job: Job, spec: JobSpec) -> None:
        """Queue a job again with another request."""
        if job.conditions is not None:
            job.queued_at = self.state.now
        job.change_request(spec)
        self.state.allocation_changed()  # a pass may hold a reservation for the former request
        self.admit(job)
        if job.state is not S.PENDING:
            self._note_end(job)

    def _note_end(self, job: Job) -> None:
        """Let the jobs go on that wait for one that has ended, and end its array with it."""
        state = self.state
        if self._awaited.jobs:
            note_change(self._awaited, job.id, state.now, state.orders)
        if job.spec.task_of is not None:
            state.request_pass()
            array = self.arrays.note_end(job, state.now, state.orders)
            if array is not None:
                self._note_end(array)

    def _cancel_array(self, array: Job, event: JobCancelled) -> None:
        """Cancel the tasks of an array that have not ended; further ones do not come."""
        state = self.state
        self.withdraw(array)
        array.conditions, array.cause, array.why = None, S.CANCELLED, event.why
        state.orders.append(Await(array.id, self.arrays.reason(array)))
        for task in self.arrays.tasks(array):
            if task.state is S.PENDING:
                state.orders.append(Drop(task.id, Reason("cancelled", event.why)))
            self.on_job_cancelled(JobCancelled(event.at, task.id, event.why))
        if array.state is S.PENDING and self.arrays.end(array, state.now, state.orders):
            self._note_end(array)

    def _change_limits(self, job: Job, spec: JobSpec) -> None:
        """Change the walltime, the largest size and the labels of a live job."""
        state = self.state
        job.spec = spec
        if self.predictor is None:
            job.estimate_s = job.walltime_s
        self.alarms.limit(job)
        state.expect(job)
        state.compression_due = True
        state.request_pass()
        self.alarms.wake_by(max(job.estimated_end, state.now))

    def on_node_joined(self, event: NodeJoined) -> None:
        """Add the processors and resources of a node."""
        state = self.state
        state.releases_changed()
        state.machine.join(event.node, event.processors, event.resources)
        if event.resources:
            self.count_resources()
        for job in state.live.values():
            state.expect(job)
        state.processors_released()
        self._set_expiry(event)

    def _set_expiry(self, event: NodeJoined) -> None:
        """Exclude the processors of a node from the time at which it expires."""
        name, until = expiry_of(event.node), event.until
        if until is None:
            self.include(name)
        else:
            self.exclude(Exclusion(name, self.state.machine.nodes[event.node].processors, until))

    def exclude(self, exclusion: Exclusion) -> None:
        """Exclude processors, and ask for a wake-up at the beginning."""
        self.state.exclude(exclusion)
        self._exclusions_changed()

    def include(self, name: str) -> None:
        """Remove an exclusion, if there is one of this name."""
        if self.state.exclusions.get(name) is not None:
            self.state.include(name)
            self._exclusions_changed()

    def _exclusions_changed(self) -> None:
        self.alarms.wake_for_exclusions()
        self._passes.select()

    def on_node_lost(self, event: NodeLost) -> None:
        """End the jobs on a lost node, also if it was lost before.

        A job of which only the joining group was there continues: its driver reports the failed
        expansion. So does a job that may have a restart point: its driver reports that it restarts,
        or the loss again.
        """
        state = self.state
        reason = Reason("node lost", "node {node} is gone", {"node": event.node})
        expiry = state.exclusions.get(expiry_of(event.node))
        if expiry is not None and expiry.begin <= state.now:
            reason = Reason("node expired", "node {node} is given back", {"node": event.node})
        self.include(expiry_of(event.node))
        state.machine.lose(event.node)
        node = state.machine.nodes.get(event.node)
        lost = ProcSet() if node is None else node.processors
        points = event.restart_points
        state.releases_changed()
        for job in list(state.live.values()) if lost else ():
            state.expect(job)
            joining = job.resize.group if job.resize is not None else None
            hit = any(held & lost for group, held in job.groups.items() if group != joining)
            restarts = job.state in RESIZING and (points is None or job.id in points)
            if hit and job.state is not S.COMPLETING and not restarts:
                state.kill(job, S.NODE_FAIL, reason)

    def on_drain_changed(self, event: DrainChanged) -> None:
        """Withhold the processors of a node from new groups, or offer them again."""
        self.state.releases_changed()
        self.state.machine.set_drain(event.node, event.drains, event.why)
        self._offers_changed()

    def on_node_removed(self, event: NodeRemoved) -> None:
        """Remove a node from the machine."""
        self.state.releases_changed()
        self.state.machine.remove(event.node)
        self._offers_changed()

    def _offers_changed(self) -> None:
        """Take account of nodes that offer more or fewer processors to new groups."""
        for job in self.state.live.values():
            self.state.expect(job)
        self.state.processors_released()

    def on_depth_changed(self, event: DepthChanged) -> None:
        """Limit the depth of passes; the next pass examines the queue to the new depth."""
        self.limit_depth(event.jobs)
        self.state.request_pass()

    def limit_depth(self, limit: int | None) -> None:
        """Let passes examine at most this many jobs, or fewer if the scenario demands it."""
        self.depth_limit: int | None = limit
        depths = [depth for depth in (limit, self._max_jobs) if depth is not None]
        self.state.depth = min(depths, default=None)

    def on_reservation_requested(self, event: ReservationRequested) -> None:
        """Grant an advance reservation, or refuse it."""
        state = self.state
        decision = reservations.decide(state, self._resizes, event)
        if isinstance(decision, Refuse):
            state.orders.append(decision)
            return
        self.exclude(decision)
        state.orders.append(reservations.granted(decision))

    def on_reservation_cancelled(self, event: ReservationCancelled) -> None:
        """Make the processors of an advance reservation available to all jobs."""
        self.include(event.name)

    def on_clock_set(self, event: ClockSet) -> None:
        """Move the exclusions, whose times are those of the wall clock."""
        if self.state.exclusions.move(-event.by_s, self.state.now):
            self.state.exclusions_changed()
            self._exclusions_changed()
        self.eligibility.move_begins(-event.by_s, self.state.orders)
        self.eligibility.advance(self.state.now, self.state.orders)
        self.alarms.wake_by(self.eligibility.next_begin)

    def on_wakeup(self, event: Wakeup) -> None:
        """End overdue jobs, extend predictions, ask for the next wake-up."""
        if self.alarms.wake():
            self.state.request_pass()
        self.eligibility.advance(self.state.now, self.state.orders)
        self.alarms.wake_by(self.eligibility.next_begin)

    def advance_exclusions(self) -> None:
        """Schedule by the exclusions of the present time."""
        state = self.state
        if state.exclusions.advance(state.now):
            state.exclusions_changed()
            self._exclusions_changed()


def _is_under_way(job: Job, serial: int) -> bool:
    return job.resize is not None and job.resize.serial == serial


#: Type of an event -> method; resize points are handled after the pass of their instant.
HANDLERS: dict[type[Event], Callable[[EventHandlers, Any], None]] = {
    ClockSet: EventHandlers.on_clock_set,
    DepthChanged: EventHandlers.on_depth_changed,
    DrainChanged: EventHandlers.on_drain_changed,
    HoldChanged: EventHandlers.on_hold_changed,
    JobRequeued: EventHandlers.on_job_requeued,
    JobUpdated: EventHandlers.on_job_updated,
    JobSubmitted: EventHandlers.on_job_submitted,
    JobStarted: EventHandlers.on_job_started,
    SizesRequested: EventHandlers.on_sizes_requested,
    ResizeDone: EventHandlers.on_resize_done,
    ResizeFailed: EventHandlers.on_resize_failed,
    JobEnded: EventHandlers.on_job_ended,
    JobCancelled: EventHandlers.on_job_cancelled,
    NodeJoined: EventHandlers.on_node_joined,
    NodeLost: EventHandlers.on_node_lost,
    ReservationRequested: EventHandlers.on_reservation_requested,
    ReservationCancelled: EventHandlers.on_reservation_cancelled,
    NodeRemoved: EventHandlers.on_node_removed,
    Wakeup: EventHandlers.on_wakeup,
}
