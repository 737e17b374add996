"""The decision core: it turns the events of one instant into orders.

``core.handle(events)`` is its only entry point. The core changes the state for each event, runs one
scheduling pass (the scenario's backfilling), then asks the scenario's resizing policy at the resize
points. `EventHandlers` has one method for each type of event. Drivers (live service, simulator,
replay) carry out the orders and report what happens as further events. An event that does not fit
the state of its job (a repetition, or one of a job that has ended) changes nothing, so drivers may
repeat events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from scheduler.core.alarms import Alarms
from scheduler.core.event_handlers import HANDLERS, EventHandlers
from scheduler.core.event_order import by_start, divide_for_passes, instant_order
from scheduler.core.pending import reason_pending
from scheduler.core.recorded_core import record_of, restore_state
from scheduler.core.resizing import PolicyErrorHandler, Resizes
from scheduler.model.events import (
    Event,
    JobEnded,
    JobSubmitted,
    ResizeDone,
    ResizePoint,
)
from scheduler.model.job import Job, JobState
from scheduler.model.machine import Machine
from scheduler.model.orders import Order, Reason, Start
from scheduler.model.priority import Prioritised
from scheduler.model.procset import ProcSet
from scheduler.model.space import NONE
from scheduler.policies.backfill.in_order import SchedulingPass
from scheduler.policies.scenario import Scenario
from scheduler.predictions.predictor import Predictor
from scheduler.state.exclusions import Exclusions
from scheduler.state.learned_demands import LearnedDemands
from scheduler.state.queue import Queue
from scheduler.state.records import CoreRecord
from scheduler.state.scheduler_state import SchedulerState
from scheduler.state.view import View

S = JobState
EventOrder = Literal["batch", "sequential"]


class Core:
    """The decision core.

    Parameters
    ----------
    scenario : rules by which the core decides.
    machine : nodes that are up at the beginning; others join by `NodeJoined`.
    kill_at_walltime : end jobs that exceed their walltime.
    order : "batch" makes all state changes of an instant, then one scheduling pass. "sequential"
        runs a pass after each event, for comparison with simulators that do so: expired
        predictions come first, without a pass, then submissions, then ends; processors whose
        release is expected at this instant are free from the first pass on.
    keep_ended : keep the records of ended jobs until `forget` is called; a driver that keeps
        records of its own saves the memory.

    Attributes
    ----------
    state : scheduler state, which only the core and its parts change.
    view : what resizing policies see of the state.
    """

    def __init__(
        self,
        scenario: Scenario,
        machine: Machine | None = None,
        *,
        kill_at_walltime: bool = True,
        order: EventOrder = "batch",
        keep_ended: bool = True,
    ) -> None:
        machine = Machine() if machine is None else machine
        self.state = SchedulerState(machine, Queue(scenario.order), scenario.selection)
        self.order = order
        self.keep_ended = keep_ended
        self._alarms = Alarms(self.state, kill_at_walltime, passes_at_extensions=order == "batch")
        self._start_job = self._start  # one bound method for all passes
        self.view = View(self.state, 0, None)
        self._resizes = Resizes(self.state, self.view)
        self._handlers = EventHandlers(
            self.state,
            self._alarms,
            self._resizes,
            learns_at_once=order == "batch",
            keep_ended=keep_ended,
        )
        self._handlers.pass_outdated = self._select_pass
        self.scenario = scenario

    # What drivers read.

    @property
    def now(self) -> float:
        """Time of the latest instant handled, s."""
        return self.state.now

    @property
    def jobs(self) -> dict[int, Job]:
        """Jobs by number, without forgotten ones."""
        return self.state.jobs

    @property
    def live(self) -> dict[int, Job]:
        """Jobs that hold processors, by number."""
        return self.state.live

    @property
    def queue(self) -> Queue:
        """Pending jobs."""
        return self.state.queue

    @property
    def machine(self) -> Machine:
        """Nodes and processors."""
        return self.state.machine

    @property
    def reservations(self) -> dict[int, float]:
        """Start times reserved for queued jobs as of the last pass, by job number, s."""
        return self.state.reservations

    @property
    def exclusions(self) -> Exclusions:
        """Advance reservations and nodes that expire."""
        return self.state.exclusions

    @property
    def predictor(self) -> Predictor | None:
        """Predicts run times; None if the scenario uses the users' estimates."""
        return self._handlers.predictor

    @property
    def depth_limit(self) -> int | None:
        """Depth of passes to which the driver has limited this core; None: no limit."""
        return self._handlers.depth_limit

    @property
    def kill_at_walltime(self) -> bool:
        """Whether jobs that exceed their walltime are ended."""
        return self._alarms.kill_at_walltime

    @kill_at_walltime.setter
    def kill_at_walltime(self, kill: bool) -> None:
        self._alarms.kill_at_walltime = kill

    @property
    def on_policy_error(self) -> PolicyErrorHandler | None:
        """Called when a resizing policy raises an exception; see `Resizes`."""
        return self._resizes.on_policy_error

    @on_policy_error.setter
    def on_policy_error(self, handler: PolicyErrorHandler | None) -> None:
        self._resizes.on_policy_error = handler

    @property
    def scenario(self) -> Scenario:
        """Rules by which the core decides; may be set between two instants."""
        return self._scenario

    @scenario.setter
    def scenario(self, scenario: Scenario) -> None:
        state, backfill = self.state, scenario.backfill
        placing = scenario.selection_may_refuse(state.machine)
        queued = list(state.queue.jobs.values())
        self._scenario = scenario
        self._handlers.predictor = scenario.estimates.predictor()
        order = scenario.queue_order
        state.queue = Queue(order, scenario.backfill_order, indexed=backfill.needs_index)
        state.selection, state.placing = scenario.selection, placing
        shared = state.machine.shared
        learns = shared is not None and getattr(scenario.selection, "learn_demands", False)
        state.demands = LearnedDemands(shared) if shared is not None and learns else None
        for job in queued:
            state.queue.add(job, state.now)
        state.discard_reservations()
        prioritised = order if isinstance(order, Prioritised) else None
        self.view = View(state, scenario.retry_after, prioritised)
        self._resizes.scenario, self._resizes.view = scenario, self.view
        self._alarms.set_predictor(self.predictor)
        self._alarms.kill_at_reservation = backfill.kill_at_reservation
        self._select_pass()
        self._handlers.max_jobs = backfill.max_jobs
        self._handlers.limit_depth(self.depth_limit)
        policies = [scenario.resizing, *(rules.resizing for rules in scenario.queues.values())]
        self._decides_first = any(getattr(policy, "precedes_pass", False) for policy in policies)
        self._backfills_on_contact = backfill.moments == "contacts"
        state.backfill_allowed = not self._backfills_on_contact

    def _select_pass(self) -> None:
        """Select the scheduling pass for this scenario and the kinds of resources."""
        backfill = self._scenario.backfill
        self._pass: SchedulingPass = backfill.scheduling_pass(self.state, self._start_job)
        # Fast path of `handle`: passes follow from events alone, not from the time.
        time_matters = self.predictor is not None or self.state.queue.ages
        time_matters = time_matters or self.state.excluding
        self._simple = not time_matters and backfill.moments == "always"

    # Events in, orders out.

    def handle(self, events: Sequence[Event]) -> list[Order]:
        """Handle what happened at one instant and return the orders that follow.

        A live driver may pass events of several instants; the latest time counts as now.
        """
        if len(events) != 1 or not self._simple:
            return self._handle_general(events)
        event = events[0]
        state = self.state
        orders: list[Order] = []
        if type(event) is JobEnded:
            if event.at > state.now:
                state.now = event.at
            state.orders = orders
            self._handlers.on_job_ended(event)
        elif type(event) is JobSubmitted:
            if event.at > state.now:
                state.now = event.at
            state.orders = orders
            self._on_single_submission(event)
        else:
            return self._handle_general(events)
        if state.pass_due and state.queue.jobs:
            self._run_pass()
        return orders

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
            self._handlers.advance_exclusions()
        if self._backfills_on_contact:
            state.backfill_allowed = any(type(event) in _CONTACTS for event in events)
            if state.backfill_allowed:
                state.request_pass()
        if self.order == "batch" or len(events) == 1:
            self._handle_batch(sorted(events, key=instant_order))
        else:
            self._handle_sequential(events)
        if self.order != "batch":
            self._handlers.train_predictor()
        return orders

    def _handle_sequential(self, events: Sequence[Event]) -> None:
        """Run one pass for each submission, then one for each other event.

        Ends that are due release their processors before the first pass, without a pass of their
        own. Reservations move to the time that these ends leave free after the submissions.
        """
        state = self.state
        events = by_start(events, state.live)
        known, submissions, others = divide_for_passes(events, state.live, state.now)
        if not submissions:
            self._handle_batch([*known, *(event for event in others[:1] if event is not None)])
            for event in others[1:]:
                if event is not None:
                    self._handle_batch([event])
        else:
            compression_due = False
            for event in known:
                before = state.compression_due
                HANDLERS[type(event)](self._handlers, event)
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
        self._handlers.sort_ended(places)

    def _handle_batch(self, events: Sequence[Event]) -> None:
        """Change the state, run one pass, then decide at the resize points."""
        state = self.state
        points = []
        for event in events:
            if type(event) is ResizePoint:
                points.append(event)
            else:
                HANDLERS[type(event)](self._handlers, event)
        if points and self._decides_first:
            first = [point for point in points if self._precedes_pass(point)]
            points = [point for point in points if point not in first]
            for point in first:
                self._handlers.on_resize_point(point)
        if (state.pass_due or state.queue.sort_is_due(state.now)) and state.queue.jobs:
            self._run_pass()
        for point in points:
            self._handlers.on_resize_point(point)

    def _precedes_pass(self, point: ResizePoint) -> bool:
        """Whether the policy decides at a resize point before the pass of the same instant."""
        job = self.state.jobs.get(point.job)
        policy = None if job is None else self._scenario.resizing_of(job.spec.queue)
        return bool(getattr(policy, "precedes_pass", False))

    def _run_pass(self) -> None:
        """Start the jobs that backfilling selects. Precondition: the queue is not empty."""
        state = self.state
        state.pass_due = False
        if state.queue.ages:
            state.queue.sort(state.now)
        if state.depth is None and not state.was_limited:
            self._pass.run()
        else:
            self._run_limited_pass()
        if self._alarms.kill_at_reservation:
            for job, reason in self._scenario.backfill.kills(state):
                state.kill(job, S.TIMEOUT, reason)
        state.end_pass()
        if state.reservations:
            self._alarms.wake_for_reservations()

    def _run_limited_pass(self) -> None:
        """Run the pass for the first jobs of the queue, and for the next ones if all of them start.

        So an idle machine does not wait for an event while jobs are queued.
        """
        state = self.state
        while True:
            queued = len(state.queue)
            state.limit_pass()
            self._pass.run()
            window = state.window
            if window is None or len(state.queue) == queued:
                return
            head = state.head
            if head is None or head in window:
                return

    def _start(
        self, job: Job, reason: Reason, avoiding: ProcSet = NONE, size: int | None = None
    ) -> bool:
        """Start a job if the selection accepts processors; return whether it did.

        Parameters
        ----------
        size : number of processors of an adaptive start; None: those that the job requests.
        """
        state = self.state
        processors = job.processors if size is None else size
        chosen = state.machine.allocate(state.selection, processors, avoiding)
        if chosen is None:
            return False
        group = state.start(job, chosen, processors)
        state.orders.append(Start(job.id, group, chosen, reason))
        self._alarms.job_started(job)
        return True

    def reason_pending(self, job: int) -> Reason:
        """Why a queued job does not run yet.

        Raises
        ------
        KeyError : no job of this number is queued.
        """
        if job not in self.state.queue:
            raise KeyError(f"job {job} is not in the queue")
        return reason_pending(self.state.jobs[job], self.state, self.view)

    def admit(self, job: Job) -> None:
        """Queue a job: a new one, or one that was redirected from another core."""
        self._handlers.admit(job)

    def forget(self, job: int) -> None:
        """Drop the record of an ended job; see `SchedulerState.forget`."""
        self.state.forget(job)

    # Recovery.

    def record(self) -> CoreRecord:
        """Return the scheduler state, apart from the jobs, for durable storage."""
        return record_of(self._handlers)

    def restore(
        self,
        now: float,
        record: CoreRecord,
        jobs: Iterable[Job],
        points: Iterable[ResizePoint] = (),
    ) -> None:
        """Take over a recorded state, without any decision. Precondition: the core is new.

        The next event is followed by a scheduling pass, and a wake-up is due at once.

        Parameters
        ----------
        now : time of the latest instant that was handled, s.
        record : see `record`.
        jobs : the jobs of this core, as they were recorded.
        points : resize points after the records of their jobs, oldest first.
        """
        restore_state(self._handlers, now, record, jobs, points)
        self._select_pass()

    def _on_single_submission(self, event: JobSubmitted) -> None:
        """Queue a job, or start it at once if the queue is empty and a pass would start it."""
        number, jobs = event.job, self.state.jobs
        if number in jobs:
            return
        job = jobs[number] = Job(number, event.spec, event.at)
        if not self.state.queue.jobs and self._pass.can_start_unqueued:
            self._handlers.set_demand(job)
            if self._pass.can_start_unqueued and self._pass.start_first(job):
                return
        self._handlers.admit(job)


#: Events by which a user or a job contacts the scheduler.
_CONTACTS = frozenset({JobSubmitted, ResizePoint, ResizeDone})
