"""The core: the events of one instant in, orders out.

``core.handle(events)`` is the only way in. It changes the state for each event, makes one
scheduling pass (the scenario's backfilling), then lets the scenario's resizing policy decide at the
resize points; one method for each event, named after it. The machine's drivers (live service,
simulator, replay) do what the orders say and tell what came of it by further events. Events that
no longer fit (a repeated one, one of a job that has ended) change nothing: drivers may repeat
themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from scheduler.core import event_order as sequence
from scheduler.core import resizing
from scheduler.core.alarms import Alarms
from scheduler.core.pending import reason_pending
from scheduler.model.events import (
    Event,
    JobCancelled,
    JobEnded,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    ResizeDone,
    ResizeFailed,
    ResizePoint,
    Wakeup,
)
from scheduler.model.job import COMPLETED, STARTING, Job, JobState
from scheduler.model.machine import Machine
from scheduler.model.orders import Order, Reason, Start
from scheduler.model.priority import Prioritised
from scheduler.model.procset import ProcSet
from scheduler.model.space import NONE
from scheduler.policies.resizing.interface import Resizing
from scheduler.policies.scenario import Scenario
from scheduler.state.expected_ends import Ends
from scheduler.state.queue import Queue
from scheduler.state.scheduler_state import SchedulerState
from scheduler.state.view import View

S = JobState
EventOrder = Literal["batch", "sequential"]
Excuse: TypeAlias = Callable[[ResizePoint, Resizing, Exception], str]


class Core(SchedulerState):
    """The decision core: a ledger with a queue, a scenario that decides, and methods for events.

    Parameters
    ----------
    scenario : what it decides by.
    machine : nodes that are there already; more come by `NodeJoined`.
    kill_at_walltime : end jobs that outlive their walltime.
    order : "batch", all state changes of an instant, then one scheduling pass; "sequential", a pass
        after each event, for comparison with simulators that do so: predictions that run out come
        first, without a pass, then submissions, then ends; processors that are due back at this
        instant are free from its first pass on.
    keep_ended : remember jobs that ended until they are forgotten; a driver that keeps its own
        record saves the memory.

    Attributes
    ----------
    queue : pending jobs.
    predictor : what it learns run times by; None if the scenario takes the users' estimates.
    view : what policies see.
    excuse : told of an exception that a resizing policy raises, gives a sentence on it, and the job
        goes on; None lets the exception out. A driver that sets it hands over the event with what
        `failed` when it is to be handled again.
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
        super().__init__(Machine() if machine is None else machine)
        self.kill_at_walltime = kill_at_walltime
        self.order = order
        self.keep_ended = keep_ended
        self.excuse: Excuse | None = None
        self.queue = Queue(scenario.order)
        self._alarms = Alarms(self)
        self._lessons: list[Job] = []  # ended at this instant, for the predictor
        self._starts = self._start  # one bound method for all passes
        self.scenario = scenario

    @property
    def scenario(self) -> Scenario:
        """What the core decides by; may be set between two instants."""
        return self._scenario

    @scenario.setter
    def scenario(self, scenario: Scenario) -> None:
        placing = scenario.minds_places(self.machine)
        queued = list(self.queue.jobs.values())
        self._scenario = scenario
        self.predictor = scenario.estimates.predictor()
        order = scenario.queue_order
        self.queue = Queue(order, scenario.backfill_order, filed=scenario.backfill.files)
        self.view = View(
            self,
            self.queue,
            scenario.selection,
            retry_after=scenario.retry_after,
            placing=placing,
            prioritised=order if isinstance(order, Prioritised) else None,
        )
        self._kills = scenario.backfill.kill_at_reservation
        self._corrects = self.predictor is not None or self._kills
        for job in queued:
            self.queue.add(job, self.now)
        self.reservations.clear()
        self.standing = self.profile = None
        self._choose_way()
        self._awaits_contact = scenario.backfill.moments == "contacts"
        self.contacted = not self._awaits_contact
        self._due = True

    def _choose_way(self) -> None:
        """Settle how passes go, as long as scenario, `placing` and `pooled` stay as they are."""
        backfill = self._scenario.backfill
        self._way, self._alone = backfill.way(self.view), backfill.alone(self.view)
        still = self.predictor is None and not self.queue.ages
        self._plain = still and backfill.moments == "always"  # passes depend on events alone

    def handle(self, events: Sequence[Event]) -> list[Order]:
        """Take in what happened at one instant and say what shall be done.

        A live driver may hand over what has arrived meanwhile; the latest time counts as now.
        """
        if len(events) != 1 or not self._plain:
            return self._together(events)
        event = events[0]
        at = event.at
        if at > self.now:
            self.now = at
        orders: list[Order] = []
        self._orders = orders
        if type(event) is JobEnded:
            self.on_job_ended(event)
        elif type(event) is JobSubmitted:
            self._on_lone_submission(event)
        else:
            return self._together(events)
        if self._due and self.queue.jobs:
            self._pass()
        return orders

    def _together(self, events: Sequence[Event]) -> list[Order]:
        """`handle`, with all that may have to be minded."""
        orders: list[Order] = []
        self._orders = orders
        for event in events:
            at = event.at
            if at > self.now:
                self.now = at
        if self._awaits_contact:
            self.contacted = any(type(event) in _CONTACTS for event in events)
            self._due |= self.contacted
        if self.order == "batch" or len(events) == 1:
            self._batch(sorted(events, key=sequence.instant_order))
        else:
            for part in sequence.parts(events, self.live, self.now):
                self._batch(part)
        if self._lessons:
            self._learn()
        return orders

    def reason_pending(self, job: int) -> Reason:
        """Why a queued job waits.

        Raises
        ------
        KeyError : no job of this number is queued.
        """
        if job not in self.queue:
            raise KeyError(f"job {job} is not in the queue")
        return reason_pending(self.jobs[job], self.view)

    def _batch(self, events: Sequence[Event]) -> None:
        """Change the state, make one pass, then decide at the resize points."""
        points = []
        for event in events:
            if type(event) is ResizePoint:
                points.append(event)
            else:
                _HANDLERS[type(event)](self, event)
        if (self._due or self.queue.stale(self.now)) and self.queue.jobs:
            self._pass()
        for point in points:
            self.on_resize_point(point)

    def _learn(self) -> None:
        """Tell the predictor of the jobs that ended."""
        if self.predictor is not None:
            for job in self._lessons:
                self.predictor.ended(job)
        self._lessons.clear()

    def _pass(self) -> None:
        """Start what the scenario's backfilling finds; somebody waits."""
        self._due = False
        if self.queue.ages:
            self.queue.sort(self.now)
        self._way(self.view, self._starts)
        if self._kills:
            for job, reason in self._scenario.backfill.kills(self.view):
                self.kill(job, S.TIMEOUT, reason)
        self.unforeseen = False
        if self.reservations:  # what should be back, but is not, may come at any moment
            self.unforeseen = self.ends.any_by(self.now)
            self._alarms.promised()

    def _start(self, job: Job, reason: Reason, avoiding: ProcSet = NONE) -> bool:
        """Start a job, if the selection finds acceptable processors; tell whether it did."""
        machine, spec, now, number = self.machine, job.spec, self.now, job.id
        wanted = job.processors
        chosen = machine.allocate(self._scenario.selection, wanted, avoiding)
        if chosen is None:
            return False
        group = self.hold(job, chosen)
        if number in self.queue.jobs:
            self.queue.remove(job)
        self.live[number] = job
        if spec.max_processors is not None and spec.resizable:
            self.resizable[number] = job
        job.state = STARTING  # it was queued, so PENDING
        job.started_at = now
        job.size = wanted
        job.sizes += ((now, wanted),)
        self._orders.append(Start(number, group, chosen, reason))
        if self.pooled:
            machine.pools.take(spec.resources)
            self.expect(job)
        else:
            end = now + job.estimate_s
            held = wanted if machine.whole else machine.returning(chosen)
            self.ends.expect_first(number, end, held)
        if self.kill_at_walltime or self._corrects:
            self._alarms.started(job)
        return True

    # What the core does to a job; also used at resizes.

    def take(self, job: Job, processors: int) -> tuple[int, ProcSet] | None:
        """Give so many processors to a job as a new group; tell its number and which they are.

        Where places matter none of those kept for the head are given.
        """
        head = self.view.head if self.view.placing else None
        kept = self.view.place(head).kept if head is not None else NONE
        chosen = self.machine.allocate(self._scenario.selection, processors, kept)
        if chosen is None:
            return None
        return self.hold(job, chosen), chosen

    def finish(self, job: Job, state: JobState) -> None:
        """Give everything back and record the end, which may come in any state of a live job."""
        self.vacate(job)
        job.state = state
        job.ended_at = self.now
        if self.predictor is not None:
            self._lessons.append(job)
            if self.order == "batch":
                self._learn()
        if not self.keep_ended:
            del self.jobs[job.id]

    def admit(self, job: Job) -> None:
        """Queue a job: a new one, or one that had a life in another core."""
        self._reckon(job)
        self.queue.add(job, self.now)
        self._due = True

    def _reckon(self, job: Job) -> None:
        """Find out for how long a job needs what."""
        spec = job.spec
        if self.predictor is not None:
            job.estimate_s = job.first_estimate_s = self.predictor.estimate(job)
        if spec.resources and (self.machine.pools.know(spec.resources) or not self.pooled):
            self._pool()
        job.needs = self.quantity(job.processors, job) if self.pooled else job.processors

    def _pool(self) -> None:
        """Reckon with all resources named so far."""
        self.pooled = True
        self._choose_way()
        self.ends = Ends(self.quantity(0))
        self.standing = self.profile = None
        for job in self.queue.jobs.values():
            job.needs = self.quantity(job.processors, job)
        for job in self.live.values():
            job.needs = self.quantity(job.processors, job)
            self.expect(job)

    # One method for each event.

    def on_job_submitted(self, event: JobSubmitted) -> None:
        """Queue a job (a number seen before is a repetition)."""
        if event.job not in self.jobs:
            job = self.jobs[event.job] = Job(event.job, event.spec, event.at)
            self.admit(job)

    def _on_lone_submission(self, event: JobSubmitted) -> None:
        """Start a job at once if it finds nobody waiting and fits, as a pass would; or queue it."""
        number = event.job
        if number in self.jobs:
            return
        job = self.jobs[number] = Job(number, event.spec, event.at)
        if not self.queue.jobs and self._alone is not None:
            self._reckon(job)
            if self._alone is not None and self._alone(self.view, self._starts, job):
                return
        self.admit(job)

    def on_job_started(self, event: JobStarted) -> None:
        """Count the job as running; a restarted one goes on at the size it had."""
        job = self.jobs.get(event.job)
        if job is None or job.state is not S.STARTING:
            return
        job.become(S.RUNNING)
        if job.spec.resizable:
            job.history.configured(job.size, event.at)

    def on_resize_point(self, event: ResizePoint) -> None:
        """Record the performance and decide: expand, contract or continue (PRIO 2)."""
        self._orders.append(resizing.decide(self, self.jobs.get(event.job), event))

    def on_resize_done(self, event: ResizeDone) -> None:
        """Commit the resize; what left gives its processors back."""
        job = self.jobs.get(event.job)
        if job is not None and _is_under_way(job, event.serial):
            resizing.commit(self, job, event)

    def on_resize_failed(self, event: ResizeFailed) -> None:
        """Go back to the old configuration, by a restart if the processes are gone."""
        job = self.jobs.get(event.job)
        if job is not None and _is_under_way(job, event.serial):
            self._orders += resizing.roll_back(self, job, event)

    def on_job_ended(self, event: JobEnded) -> None:
        """Give the processors back, for the pass to use them (PRIO 2, System Monitor)."""
        job = self.live.get(event.job)
        if job is None:
            return
        state = COMPLETED
        if event.exit_code or event.signal:
            job.exit_code, job.signal = event.exit_code, event.signal
            state = S.FAILED
        if event.why and not job.why:
            job.why = event.why
        self.finish(job, job.cause or state)

    def on_job_cancelled(self, event: JobCancelled) -> None:
        """Drop a queued job; end a running one."""
        job = self.jobs.get(event.job)
        if job is None:
            return
        if job.state is S.PENDING:
            self.queue.remove(job)
            self.reservations.pop(job.id, None)
            self.profile = None
            job.become(S.CANCELLED)
            job.why, job.ended_at = event.why, self.now
            self._due = self.unforeseen = True
        elif job.id in self.live and job.state is not S.COMPLETING:
            self.kill(job, S.CANCELLED, Reason("cancelled", "{why}", {"why": event.why}))

    def on_node_joined(self, event: NodeJoined) -> None:
        """Let the pool grow."""
        self.standing = self.profile = None
        self.machine.join(event.node, event.processors, event.resources)
        if event.resources:
            self._pool()
        for job in self.live.values():
            self.expect(job)
        self._due = self.unforeseen = True

    def on_node_lost(self, event: NodeLost) -> None:
        """End the jobs on a lost node.

        One whose joining group alone is there goes on: its driver tells of the failed expansion.
        """
        lost = self.machine.lose(event.node)
        self.standing = self.profile = None
        reason = Reason("node lost", "node {node} is gone", {"node": event.node})
        for job in list(self.live.values()) if lost else ():
            self.expect(job)
            joining = job.resize.group if job.resize is not None else None
            hit = any(held & lost for group, held in job.groups.items() if group != joining)
            if hit and job.state is not S.COMPLETING:
                self.kill(job, S.NODE_FAIL, reason)

    def on_wakeup(self, event: Wakeup) -> None:
        """End the jobs whose walltime has passed, correct predictions, ask for the next wake-up."""
        self._due |= self._alarms.ring()


def _is_under_way(job: Job, serial: int) -> bool:
    return job.resize is not None and job.resize.serial == serial


#: Events by which a user or a job contacts the scheduler.
_CONTACTS = frozenset({JobSubmitted, ResizePoint, ResizeDone})
_HANDLERS: dict[type[Event], Callable[[Core, Any], None]] = {
    JobSubmitted: Core.on_job_submitted,
    JobStarted: Core.on_job_started,
    ResizeDone: Core.on_resize_done,
    ResizeFailed: Core.on_resize_failed,
    JobEnded: Core.on_job_ended,
    JobCancelled: Core.on_job_cancelled,
    NodeJoined: Core.on_node_joined,
    NodeLost: Core.on_node_lost,
    Wakeup: Core.on_wakeup,
}
