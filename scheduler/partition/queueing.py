"""How jobs enter and leave the queue of a partition.

A queued job is in one of four places: in the queue, among the jobs that are not eligible, as an
array among the arrays whose tasks come to the queue one after the other, or as a step with its job.
A step starts as soon as its job has enough idle processors, so that later requests may start before
earlier ones which need more. At its end the next ones start at the same instant. It has the rest of
the walltime of its job.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from scheduler.model.arrays import Hold
from scheduler.model.events import JobSpec, JobUpdated
from scheduler.model.job import PENDING, Job, JobState
from scheduler.model.orders import Await, Drop, Order, Reason, Start
from scheduler.model.procset import ProcSet
from scheduler.model.requests import Conditions
from scheduler.model.space import NONE
from scheduler.partition.alarms import Alarms
from scheduler.partition.eligibility import Awaited, Eligibility, note_change
from scheduler.partition.passes import Passes
from scheduler.state.bitsets import bits_in_blocks, bits_of, set_of
from scheduler.state.derived_jobs import Arrays
from scheduler.state.scheduler_state import SchedulerState

#: Walltime of a step whose job has exceeded its own walltime and continues, s.
LEAST_S = 1.0


class Queueing:
    """The queued jobs of a partition, wherever they wait.

    Parameters
    ----------
    state : scheduler state.
    alarms : wake-ups of the partition.
    passes : selected again when further resources are named for the first time.
    awaited : what the jobs of all partitions wait for.

    Attributes
    ----------
    eligibility : the queued jobs that are not eligible.
    arrays : the arrays that are eligible.
    """

    def __init__(
        self, state: SchedulerState, alarms: Alarms, passes: Passes, awaited: Awaited
    ) -> None:
        self._state, self._alarms, self._passes, self._awaited = state, alarms, passes, awaited
        self.eligibility = Eligibility(state.jobs, awaited, self._enqueue, self._end_what_ends_with)
        self.arrays = Arrays(state.jobs, awaited.tasks)

    def admit(self, job: Job) -> None:
        """Queue a job: a new one, or one that was redirected from another partition."""
        if not job.is_plain and job.spec.step_of is not None:
            self._admit_step(job)
            return
        if job.conditions is None:
            self._enqueue(job)
            return
        state = self._state
        self.eligibility.admit(job, state.now, state.orders)
        self._alarms.wake_by(self.eligibility.next_begin)

    def restore(self, job: Job) -> None:
        """Take a PENDING job of a recorded state that is not in the queue, without any decision."""
        if job.conditions is not None:
            self.eligibility.watch(job)
        if job.spec.array is not None:
            self.arrays.add(job)

    def _enqueue(self, job: Job) -> None:
        """Add an eligible job to the queue."""
        if not job.is_plain and job.spec.array is not None:
            self.arrays.add(job)
            self._state.request_pass()
            return
        self.set_demand(job)
        queue = self._state.queue
        if queue.withdrawn and job.id in queue.withdrawn:
            queue.add_again(job, self._state.now)
        else:
            queue.add(job, self._state.now)
        self._state.request_pass()

    def queue_tasks(self) -> None:
        """Queue the tasks of arrays that could start now."""
        state = self._state
        for task in self.arrays.due(state.machine.free_count, state.orders):
            self._enqueue(task)

    def set_demand(self, job: Job) -> None:
        """Set a job's estimate and its demand."""
        state = self._state
        self._alarms.predict(job)
        if not job.is_plain:
            self._count_special(job)
        if state.multi_resource:
            job.demand = state.quantity(job.processors, job)
        else:
            job.demand = job.processors

    def _count_special(self, job: Job) -> None:
        """Schedule by the resources that a job requests, and by the processors that it may get."""
        state, spec = self._state, job.spec
        if not job.minimum:
            job.minimum = self._passes.minimum_of(spec)
        if spec.resources:
            is_new = state.machine.pools.register(spec.resources)
            if is_new or not state.multi_resource:
                self.count_resources()
        if spec.is_placed:
            state.placed.add(job.id)
            if not state.excluding:
                state.excluding = True
                state.discard_reservations()
                self._passes.exclusions_changed()

    def count_resources(self) -> None:
        """Count all resources that were named so far, and schedule by them."""
        self._state.count_resources()
        self._passes.select()

    def withdraw(self, job: Job) -> None:
        """Take a PENDING job out of the queue, or from the jobs that are not eligible."""
        if job.conditions is not None:
            self.eligibility.remove(job)
            return
        if job.spec.step_of is not None:
            self._state.steps.remove(job)
            return
        if job.spec.array is not None:
            self.arrays.close(job)
            return
        self._state.queue.withdraw(job)
        self._state.cancel_reservation(job)

    def change_request(self, job: Job, spec: JobSpec) -> None:
        """Queue a job again with another request."""
        if job.conditions is not None:
            job.queued_at = self._state.now
        job.change_request(spec)
        self._state.allocation_changed()  # a pass may hold a reservation for the former request
        self.admit(job)
        if job.state is not PENDING:
            self.note_end(job)

    def note_end(self, job: Job) -> None:
        """Let the jobs go on that wait for one that has ended, and end its array with it."""
        state = self._state
        if self._awaited.jobs:
            note_change(self._awaited, job.id, state.now, state.orders)
        self._end_what_ends_with(job)

    def _end_what_ends_with(self, job: Job) -> None:
        """End the array of a task that was its last one; a step leaves its job."""
        state = self._state
        if job.is_plain:
            return
        if job.spec.array is not None:
            self.arrays.forget(job)
        if job.spec.task_of is not None:
            state.request_pass()
            array = self.arrays.note_end(job, state.now, state.orders)
            if array is not None:
                self._array_ended(array)
        if job.spec.step_of is not None:
            parent = self._job_of(job)
            if parent is not None:
                self._start_steps(parent)

    def end_array(self, array: Job) -> None:
        """End an array if all its tasks have ended, and no further ones come."""
        state = self._state
        if self.arrays.end(array, state.now, state.orders) is not None:
            self._array_ended(array)

    def _array_ended(self, array: Job) -> None:
        if array.conditions is not None:  # it was not eligible when its last task ended
            self.eligibility.remove(array)
            array.conditions = None
        self.note_end(array)

    def set_hold(self, job: Job, hold: Hold) -> None:
        """Hold a queued job, or release it; the tasks of an array, too."""
        if job.to_come is not None:
            self._hold_queued(self.arrays.tasks_here(job), hold)
            if not hold and job.to_come.all_held:
                self._hold_to_come(job, job.to_come.left, hold)
        self._set_own_hold(job, hold)

    def hold_tasks(self, array: Job, positions: ProcSet, hold: Hold) -> None:
        """Hold tasks of an array, or release them.

        If the whole array is held, those that are not released remain held one by one.
        """
        assert array.to_come is not None
        conditions = array.conditions
        if not hold and conditions is not None and conditions.hold:
            array.to_come = array.to_come.changed(array.to_come.ready, conditions.hold)
            self._set_own_hold(array, hold)
        self._hold_queued(self.arrays.tasks_here(array, positions), hold)
        self._hold_to_come(array, positions, hold)

    def _hold_queued(self, tasks: list[Job], hold: Hold) -> None:
        for task in tasks:
            by = "" if task.conditions is None else task.conditions.hold
            if task.state is PENDING and not (hold == "user" and by == "administrator"):
                self._set_own_hold(task, hold)

    def _hold_to_come(self, array: Job, positions: ProcSet, hold: Hold) -> None:
        """Hold or release tasks that are no jobs yet."""
        assert array.to_come is not None
        array.to_come = array.to_come.changed(positions, hold)
        self._tasks_changed(array)

    def cancel_to_come(self, array: Job, positions: ProcSet) -> None:
        """Cancel tasks that are no jobs yet, and let the jobs go on that wait for them."""
        state = self._state
        assert array.to_come is not None
        array.to_come = array.to_come.after_cancellation(positions)
        self._tasks_changed(array)
        if self._awaited.jobs:
            note_change(self._awaited, array.id, state.now, state.orders)

    def _tasks_changed(self, array: Job) -> None:
        """Follow a change of the tasks of an array that are no jobs yet."""
        state = self._state
        self.arrays.close(array)
        if array.conditions is None:
            self.arrays.add(array)
            state.request_pass()
        reason = self.arrays.reason(array)
        if array.id in self.eligibility.waiting:
            reason = self.eligibility.reason(array)
        state.orders.append(Await(array.id, reason))

    def bring(self, event: JobUpdated) -> list[Order]:
        """Make a job of the task of an array that is to get a request of its own, if it is none."""
        own, jobs = event.spec.task_of, self._state.jobs
        array = None if own is None or event.job in jobs else jobs.get(own.array)
        if array is None or array.to_come is None or array.state is not PENDING:
            return []
        position = event.job - array.id - 1
        if position not in array.to_come.left:
            return []
        task = self.arrays.bring(array, position)
        if task.conditions is not None:
            self.eligibility.watch(task)
        else:
            self._enqueue(task)
        return [Await(array.id, self.arrays.reason(array))]

    def _set_own_hold(self, job: Job, hold: Hold) -> None:
        state = self._state
        if job.conditions is not None:
            conditions = msgspec.structs.replace(job.conditions, hold=hold)
            self.eligibility.set_hold(job, conditions, state.now, state.orders)
        elif hold:
            self.withdraw(job)
            job.conditions = Conditions(hold=hold)
            self.eligibility.admit(job, state.now, state.orders)
            state.orders.append(Await(job.id, self.eligibility.reason(job)))

    def move_begins(self, by_s: float) -> None:
        """Move the begin times, which are those of the wall clock, on the driver's clock."""
        self.eligibility.move_begins(by_s, self._state.orders)
        self.advance()

    def advance(self) -> None:
        """Queue the jobs whose begin time has come, and ask for a wake-up at the next one."""
        self.eligibility.advance(self._state.now, self._state.orders)
        self._alarms.wake_by(self.eligibility.next_begin)

    # Steps.

    def _admit_step(self, step: Job) -> None:
        """Take a step that is requested; it is dropped if its job can have none (any more)."""
        state, job = self._state, self._job_of(step)
        if job is None or job.resizable or job.spec.step_of is not None:
            text = "its job does not run" if job is None else "job {job} can have no steps"
            reason = Reason("step", text, {"job": 0 if job is None else job.id})
            step.become(JobState.CANCELLED)
            step.why, step.ended_at = reason.sentence, state.now
            state.orders.append(Drop(step.id, reason))
            return
        state.steps.add(step)
        self._start_steps(job)

    def _start_steps(self, job: Job) -> None:
        """Start the steps of a job that fit, in the order of their requests."""
        state = self._state
        for step in state.steps.waiting(job.id):
            place = self._place(step, state.steps.idle(job))
            if not place:
                continue
            reason = state.steps.reason(step, job)
            step.is_lent, step.demand = True, state.quantity(step.processors, step)
            _limit_step(step, job, state.now)
            group = state.grant(step, place, step.processors)
            state.orders.append(Start(step.id, group, place, reason))

    def _place(self, step: Job, idle: ProcSet) -> ProcSet:
        """Choose the first idle processors that suffice for a step; none if they do not.

        Those of a process are on one node.
        """
        if step.processors > idle.count():
            return NONE
        wanted = step.spec.nodes
        if wanted is None or wanted.per_process == 1:
            return idle.first(step.processors)
        nodes = (bits_of(node.processors) for node in self._state.machine.nodes.values())
        block = wanted.per_process
        return set_of(bits_in_blocks(bits_of(idle), nodes, block, step.processors))

    def limit_steps(self, job: Job) -> None:
        """Give the steps of a job the rest of its walltime, which was changed."""
        for step in self._state.steps.of(job.id):
            if step.is_lent and step.started_at is not None:
                _limit_step(step, job, step.started_at)
                self._state.expect(step)

    def step_reason(self, step: Job) -> Reason:
        """Why a step waits."""
        job = self._job_of(step)
        assert job is not None, f"step {step.id} waits, so its job runs"
        return self._state.steps.reason(step, job)

    def _job_of(self, step: Job) -> Job | None:
        """Job of a step; None if it does not run, or is being ended."""
        assert step.spec.step_of is not None
        job = self._state.live.get(step.spec.step_of.job)
        return None if job is None or job.state is JobState.COMPLETING else job


def _limit_step(step: Job, job: Job, began: float) -> None:
    """Let a step that began at a time (s) end with its job by the walltime."""
    left_s = max(job.expected_end - began, LEAST_S)
    step.change_limits(replace(step.spec, walltime_s=left_s), is_estimate=True)
