"""A partition of the core: processors with a queue, a scenario and scheduling passes of their own.

``partition.handle(events)`` changes the state for each event, runs one scheduling pass (the
scenario's backfilling), then asks the scenario's resizing policy at the resize points.
`JobEvents` and `MachineEvents` have one method for each type of event. An event that does not fit
the state of its job (a repetition, or one of a job that has ended) changes nothing, so drivers may
repeat events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from scheduler.model.events import (
    Event,
    JobEnded,
    JobSubmitted,
    ResizeDone,
    ResizePoint,
)
from scheduler.model.interfaces import Prioritised
from scheduler.model.job import ACTIVE, FINAL, JOB_ENDED, JOB_SUBMITTED, PENDING, START, Job
from scheduler.model.job_view import is_ours
from scheduler.model.machine import Machine
from scheduler.model.orders import Order, Reason
from scheduler.partition.alarms import Alarms
from scheduler.partition.eligibility import Awaited, note_change
from scheduler.partition.job_events import JobEvents
from scheduler.partition.machine_events import MachineEvents
from scheduler.partition.passes import (
    Passes,
    by_start,
    divide_for_passes,
    instant_order,
    kind_order,
)
from scheduler.partition.pending import reason_pending
from scheduler.partition.queueing import Queueing
from scheduler.partition.resizing import Resizes, note_progress
from scheduler.policies.containment import ErrorReporter
from scheduler.policies.scenario import Scenario
from scheduler.state.queue import Queue
from scheduler.state.records import PartitionRecord
from scheduler.state.scheduler_state import SchedulerState
from scheduler.state.view import View

EventOrder = Literal["batch", "sequential"]


class Partition:
    """Processors with a queue, a scenario and scheduling passes of their own.

    Parameters
    ----------
    name : by which jobs and nodes name it; "" if it is the only one.
    scenario : rules by which the partition decides.
    machine : its nodes that are up at the beginning; others join by `NodeJoined`.
    jobs : job number -> job, of all partitions of the core.
    awaited : what the jobs of all partitions wait for.
    kill_at_walltime : end jobs that exceed their walltime.
    order : "batch" makes all state changes of an instant, then one scheduling pass. "sequential"
        runs a pass after each event, for comparison with simulators that do so: expired
        predictions come first, without a pass, then submissions, then ends; processors whose
        release is expected at this instant are free from the first pass on.
    keep_ended : keep the records of ended jobs until `forget` is called; a driver that keeps
        records of its own saves the memory.
    report_error : called when a resizing policy or a user-defined pass fails; see `Resizes`.

    Attributes
    ----------
    name, scenario, order : see above.
    state : scheduler state, which only the partition and its parts change.
    machine, queue, jobs, live : those of the state.
    predictor : predicts run times; None if the scenario uses the users' estimates.
    view : what resizing policies see of the state.
    alarms, passes, resizes, queueing : ask for wake-ups, schedule, decide on resizes, and take
        queued jobs in and out.
    """

    def __init__(
        self,
        name: str,
        scenario: Scenario,
        machine: Machine,
        jobs: dict[int, Job],
        awaited: Awaited,
        *,
        kill_at_walltime: bool = True,
        order: EventOrder = "batch",
        keep_ended: bool = True,
        report_error: ErrorReporter | None = None,
    ) -> None:
        self.name, self.scenario, self.order = name, scenario, order
        backfill, queue_order = scenario.backfill, scenario.queue_order
        queue = Queue(queue_order, scenario.backfill_order, indexed=scenario.needs_index)
        placing = scenario.selection_may_refuse(machine)
        self.state = SchedulerState(machine, queue, scenario.selection, jobs, placing=placing)
        self.machine, self.queue, self.jobs, self.live = machine, queue, jobs, self.state.live
        others = [
            name for name, rules in scenario.queues.items() if rules.resizing != scenario.resizing
        ]
        self.state.other_queues = frozenset(others)
        self._backfills_on_contact = backfill.moments == "contacts"
        self.state.backfill_allowed = not self._backfills_on_contact
        self.predictor = scenario.estimates.predictor()
        self.alarms = Alarms(
            self.state,
            self.predictor,
            kill_at_walltime=kill_at_walltime,
            kill_at_reservation=backfill.kill_at_reservation,
            passes_at_extensions=order == "batch",
        )
        self.passes = Passes(self.state, scenario, self.alarms, report_error)
        prioritised = queue_order if isinstance(queue_order, Prioritised) else None
        self.view = View(self.state, scenario.retry_after, prioritised)
        shown = View(self.state, scenario.retry_after, prioritised, read_only=True)
        self.resizes = Resizes(scenario, self.state, self.alarms, self.view, shown, report_error)
        self.queueing = Queueing(self.state, self.alarms, self.passes, awaited)
        self._machine = MachineEvents(
            self.state, self.alarms, self.resizes, self.passes, self.queueing
        )
        self._jobs = JobEvents(
            self.state,
            self.alarms,
            self.resizes,
            self.queueing,
            self._machine,
            learns_at_once=order == "batch",
            keep_ended=keep_ended,
        )
        self._handlers = self._jobs.handlers() | self._machine.handlers()
        self._awaited = awaited

    # What drivers and other components read.

    @property
    def now(self) -> float:
        """Time of the latest instant handled, s."""
        return self.state.now

    @property
    def has_entered(self) -> bool:
        """Whether jobs have become eligible since the last pass, which one is due for."""
        return self.queueing.eligibility.has_entered

    def handle_entered(self) -> list[Order]:
        """Run a pass for the jobs that have become eligible, unless they have left again."""
        self.queueing.eligibility.has_entered = False
        return self.handle([])

    # Events in, orders out.

    def handle(self, events: Sequence[Event]) -> list[Order]:
        """Handle what happened at one instant and return the orders that follow.

        A live driver may pass events of several instants; the latest time counts as now.
        """
        if len(events) != 1:
            return self._handle_general(events)
        event = events[0]
        state = self.state
        orders: list[Order] = []
        state.orders = orders
        at = event.at
        if at > state.now:
            state.now = at
        if type(event) is RESIZE_POINT and not self._backfills_on_contact and not state.excluding:
            self._run_due_pass()
            self._jobs.on_resize_point(event)
            return orders
        if not self.passes.follow_events:
            return self._handle_general(events)
        if type(event) is JOB_ENDED:
            self._jobs.on_job_ended(event)
        elif type(event) is JOB_SUBMITTED:
            self._on_single_submission(event)
        else:
            return self._handle_general(events)
        self._run_due_pass()
        return orders

    def pass_point(self, job: Job, at: float, left: int, iteration_s: float) -> bool:
        """Note a resize point without an event if a lasting answer still applies at it.

        See `Resizes.pass_point`. False: the resize point needs its event.
        """
        if self._backfills_on_contact or self.predictor is not None or self._owes_pass(at):
            return False
        if not self.resizes.pass_point(job, at, left, iteration_s):
            return False
        self.state.now = at
        return True

    def _handle_general(self, events: Sequence[Event]) -> list[Order]:
        """General path of `handle`: several events, aging queues or predictors."""
        state = self.state
        orders: list[Order] = []
        state.orders = orders
        for event in events:
            at = event.at
            if at > state.now:
                state.now = at
        if state.excluding:
            self._machine.advance_exclusions()
        if self._backfills_on_contact:
            state.backfill_allowed = any(type(event) in _CONTACTS for event in events)
            if state.backfill_allowed:
                state.request_pass()
        if self.order == "batch" or len(events) == 1:
            ordered = list(events) if len(events) == 1 else sorted(events, key=instant_order)
            if state.steps.by_job:  # what has ended with its job was not ended by that
                ordered.sort(key=lambda event: (kind_order(event), self._ends_steps(event)))
            self._handle_batch(ordered)
        else:
            self._handle_sequential(events)
        if self.order != "batch":
            self._jobs.train_predictor()
        return orders

    def _handle_sequential(self, events: Sequence[Event]) -> None:
        """Run one pass for each submission, then one for each other event.

        Ends that are due release their processors before the first pass, without a pass of their
        own. Reservations move to the time that these ends leave free after the submissions.
        """
        state = self.state
        events = by_start(events, state.live)
        of_running, submissions, others = divide_for_passes(events, state.live, state.now)
        if not submissions:
            self._handle_batch([*of_running, *(event for event in others[:1] if event is not None)])
            for event in others[1:]:
                if event is not None:
                    self._handle_batch([event])
        else:
            compression_due = False
            for event in of_running:
                before = state.compression_due
                self._handlers[type(event)](event)
                if type(event) is JobEnded:
                    compression_due = compression_due or state.compression_due
                    state.compression_due = before
            for submission in submissions:
                self._handle_batch([submission])
            for event in others:
                if compression_due:
                    state.compression_due, compression_due = True, False
                    state.request_pass()
                    self._handle_batch([] if event is None else [event])
                elif event is not None:
                    self._handle_batch([event])
        # The predictor learns ends of one instant in the order in which the jobs started.
        places = {event.job: i for i, event in enumerate(events) if type(event) is JobEnded}
        self._jobs.sort_ended(places)

    def _handle_batch(self, events: Sequence[Event]) -> None:
        """Change the state, run one pass, then decide at the resize points."""
        points = []
        for event in events:
            if type(event) is ResizePoint:
                points.append(event)
            else:
                self._handlers[type(event)](event)
        self._run_due_pass()
        for point in points:
            self._jobs.on_resize_point(point)

    def _run_due_pass(self) -> None:
        """Run a pass if one is due, with the tasks of arrays that come now."""
        state = self.state
        if state.pass_due and self.queueing.arrays.open:
            self.queueing.queue_tasks()
        if self._owes_pass(state.now):
            self._run_pass()

    def _owes_pass(self, now: float) -> bool:
        """Whether a pass is due at a time (s) for the jobs in the queue."""
        queue = self.state.queue
        return len(queue.jobs) > 0 and (self.state.pass_due or queue.sort_is_due(now))

    def _run_pass(self) -> None:
        """Run a scheduling pass, and another one if starts have made jobs eligible."""
        state, awaited = self.state, self._awaited
        seen = 0
        while True:
            self.queueing.eligibility.has_entered = False
            self.passes.run()
            if not awaited.starts:
                return
            began = [order.job for order in state.orders[seen:] if type(order) is START]
            seen = len(state.orders)
            for number in began:
                if number in awaited.starts:
                    note_change(awaited, number, state.now, state.orders)
            if not (self.has_entered and state.queue.jobs):
                return

    def _ends_steps(self, event: Event) -> bool:
        """Whether an event is the end of a job with steps that have not ended."""
        return isinstance(event, JobEnded) and event.job in self.state.steps.by_job

    def reason_pending(self, job: int) -> Reason:
        """Why a queued job does not run yet.

        Raises
        ------
        KeyError : no job of this number is queued.
        """
        waiting = self.queueing.eligibility.waiting.get(job)
        if waiting is not None:
            return self.queueing.eligibility.reason(waiting)
        known = self.state.jobs.get(job)
        if known is not None and known.spec.array is not None and known.state is PENDING:
            return self.queueing.arrays.reason(known)
        if known is not None and known.spec.step_of is not None and known.state is PENDING:
            return self.queueing.step_reason(known)
        if job not in self.state.queue:
            raise KeyError(f"job {job} is not in the queue")
        own = self.scenario.own_scheduling
        policy = "" if own is None or is_ours(own) else type(own).__name__
        return reason_pending(self.state.jobs[job], self.state, self.view, policy)

    def reason_to_come(self, array: Job, position: int) -> Reason:
        """Why the task at a position of an array that has not ended is no job yet."""
        if array.id in self.queueing.eligibility.waiting:
            return self.queueing.eligibility.reason(array)
        return self.queueing.arrays.reason_to_come(array, position)

    # Recovery.

    def record(self) -> PartitionRecord:
        """Return the scheduler state, apart from the jobs, for durable storage."""
        state, predictor = self.state, self.predictor
        return PartitionRecord(
            name=self.name,
            nodes=list(state.machine.nodes.values()),
            resize_costs=state.resize_costs,
            reservations=dict(state.reservations),
            predictor=None if predictor is None else predictor.learned(),
            sorted_at=state.queue.sorted_at,
            depth=self.passes.depth_limit,
            exclusions=tuple(state.exclusions),
        )

    def restore(
        self,
        now: float,
        record: PartitionRecord,
        jobs: Iterable[Job],
        points: Iterable[ResizePoint] = (),
    ) -> None:
        """Take over a recorded state, without any decision. Precondition: the partition is new.

        The next event is followed by a scheduling pass, and a wake-up is due at once.

        Parameters
        ----------
        now : time of the latest instant that was handled, s.
        record : see `record`.
        jobs : the jobs of this partition, as they were recorded.
        points : resize points after the records of their jobs, oldest first.
        """
        state, predictor = self.state, self.predictor
        state.queue.sorted_at = record.sorted_at
        self.passes.limit_depth(record.depth)
        self.alarms.restored()
        recorded = list(jobs)
        for job in recorded:
            self.alarms.limit(job)
        for exclusion in record.exclusions:
            state.exclusions.put(exclusion, now)
        state.restore(now, record.nodes, recorded)
        for job in recorded:
            if job.spec.task_of is not None and job.state not in FINAL:
                self.queueing.arrays.add_task(job)
            if job.state is PENDING:
                self.queueing.restore(job)
            elif job.spec.end_signal is not None and job.id in state.live:
                self.alarms.watch_signal(job)
        for point in points:
            live = state.live.get(point.job)
            if live is not None and live.state in ACTIVE:
                note_progress(live, point)
        state.resize_costs = record.resize_costs
        state.reservations.update(
            (number, at) for number, at in record.reservations.items() if number in state.queue
        )
        if predictor is not None and record.predictor is not None:
            predictor.relearn(record.predictor)
        self.passes.select()

    def _on_single_submission(self, event: JobSubmitted) -> None:
        """Queue a job, or start it at once if the queue is empty and a pass would start it."""
        number, jobs = event.job, self.state.jobs
        if number in jobs:
            return
        job = jobs[number] = Job(number, event.spec, event.at)
        if not job.is_plain:
            spec = event.spec
            if spec.conditions is not None or spec.array is not None or spec.step_of is not None:
                job.conditions = spec.conditions
                self.queueing.admit(job)
                return
        passes = self.passes
        if not self.state.queue.jobs and passes.current.can_start_unqueued:
            self.queueing.set_demand(job)
            if passes.current.can_start_unqueued and passes.current.start_first(job):
                return
        self.queueing.admit(job)


#: As in `scheduler.model.job`.
RESIZE_POINT: Final = ResizePoint
#: Events by which a user or a job contacts the scheduler.
_CONTACTS = frozenset({JobSubmitted, ResizePoint, ResizeDone})
