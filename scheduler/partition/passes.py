"""Scheduling passes: the order of events that one follows, and which one runs.

The events of one instant are handled in the order of a table, equal ones by job number, then as
they came; resize points come after the pass. So a job that is submitted may use the processors of
one that ends in the same second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from scheduler.model.events import (
    ClockSet,
    DepthChanged,
    DrainChanged,
    Event,
    HoldChanged,
    JobCancelled,
    JobEnded,
    JobEvent,
    JobRequeued,
    JobSignalled,
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
    SilenceChanged,
    SizesRequested,
    Wakeup,
)
from scheduler.model.job import Job, JobState
from scheduler.partition.alarms import Alarms
from scheduler.policies.backfill.own_pass import OwnPass
from scheduler.policies.backfill.scheduling_pass import SchedulingPass
from scheduler.policies.containment import ErrorReporter
from scheduler.policies.scenario import Scenario
from scheduler.state.scheduler_state import SchedulerState

#: Events in the order in which those of one instant are handled.
_ORDER: tuple[tuple[type[Event], ...], ...] = (
    (ClockSet, DepthChanged, DrainChanged, NodeJoined, NodeLost, NodeRemoved, SilenceChanged),
    (JobEnded,),
    (ResizeDone,),
    (ResizeFailed,),
    (JobStarted,),
    (ReservationCancelled, ReservationRequested, JobSubmitted),
    (JobCancelled, HoldChanged, JobRequeued, JobSignalled, JobUpdated),
    (Wakeup, SizesRequested),
    (ResizePoint,),
)
_RANK = {kind: rank for rank, kinds in enumerate(_ORDER) for kind in kinds}


class Passes:
    """The scheduling passes of a partition.

    Parameters
    ----------
    state : scheduler state.
    scenario : makes the pass.
    alarms : wake-ups of the partition.
    report_error : called when a user-defined pass fails; see `OwnPass`.

    Attributes
    ----------
    current : the pass for the present kinds of resources and exclusions; see `select`.
    follow_events : whether passes follow from events alone, not from the time.
    minimum_of : see `Backfill`.
    depth_limit : depth of passes to which the driver has limited the partition; None: no limit.
    """

    def __init__(
        self,
        state: SchedulerState,
        scenario: Scenario,
        alarms: Alarms,
        report_error: ErrorReporter | None,
    ) -> None:
        self._state, self._scenario, self._alarms = state, scenario, alarms
        self._report_error, self.minimum_of = report_error, scenario.backfill.minimum_of
        self._kills_at_reservation = scenario.backfill.kill_at_reservation
        self.select()
        self.limit_depth(None)

    def select(self) -> None:
        """Make the pass anew: a resource was named for the first time, or exclusions changed."""
        state, backfill = self._state, self._scenario.backfill
        own = self._scenario.own_scheduling
        self.current: SchedulingPass = (
            backfill.scheduling_pass(state)
            if own is None
            else OwnPass(state, own, self._report_error)
        )
        predicts = self._alarms.predictor is not None
        time_matters = predicts or state.queue.ages or state.excluding
        self.follow_events = not time_matters and backfill.moments == "always"

    def exclusions_changed(self) -> None:
        """Schedule by other exclusions, and ask for a wake-up at their next change."""
        self._alarms.wake_for_exclusions()
        self.select()

    def limit_depth(self, limit: int | None) -> None:
        """Let passes examine at most this many jobs, or fewer if the scenario demands it."""
        self.depth_limit: int | None = limit
        depths = [depth for depth in (limit, self._scenario.backfill.max_jobs) if depth is not None]
        self._state.depth = min(depths, default=None)

    def run(self) -> None:
        """Start the jobs that backfilling selects. Precondition: the queue is not empty."""
        state = self._state
        state.pass_due = False
        if state.queue.ages:
            state.queue.sort(state.now)
        if state.depth is None and not state.was_limited:
            self.current.run()
        else:
            self._run_limited()
        if self._kills_at_reservation:
            for job, reason in self._scenario.backfill.kills(state):
                state.kill(job, JobState.TIMEOUT, reason)
        state.end_pass()
        if state.reservations:
            self._alarms.wake_for_reservations()

    def _run_limited(self) -> None:
        """Run the pass for the first jobs of the queue, and for the next ones if all of them start.

        So an idle machine does not wait for an event while jobs are queued.
        """
        state = self._state
        queued = state.queue.jobs
        state.limit_pass()
        while True:
            self.current.run()
            window = state.window
            if not window or not queued or any(job.id in queued for job in window):
                return
            state.limit_pass()
            if state.window is not None and not state.window:
                return


def kind_order(event: Event) -> int:
    """Sort key of the events of one instant: kind alone, so that equal ones stay as they came."""
    return _RANK[type(event)]


def instant_order(event: Event) -> tuple[int, int]:
    """Sort key of the events of one instant: kind, then job number."""
    return _RANK[type(event)], event.job if isinstance(event, JobEvent) else 0


def by_start(events: Sequence[Event], live: Mapping[int, Job]) -> Sequence[Event]:
    """Sort the ends among events by the starts of their jobs; `live` has the jobs in that order.

    A driver enters the end of a job when it knows it, which may be long after the start.
    """
    if sum(isinstance(event, JobEnded) for event in events) < 2:
        return events
    places = {number: place for place, number in enumerate(live)}
    return sorted(
        events, key=lambda event: places.get(event.job, 0) if isinstance(event, JobEnded) else 0
    )


def divide_for_passes(
    events: Iterable[Event], live: Mapping[int, Job], now: float
) -> tuple[list[Event], list[JobSubmitted], list[Event | None]]:
    """Divide events for the sequential order.

    Returns
    -------
    events that were known beforehand (those of no job, ends that are due), submissions, and all
    other events, with None in the place of each end that is due
    """
    of_running: list[Event] = []
    submissions: list[JobSubmitted] = []
    others: list[Event | None] = []
    for event in sorted(events, key=kind_order):
        job = live.get(event.job) if isinstance(event, JobEnded) else None
        if not isinstance(event, JobEvent):
            of_running.append(event)
        elif job is not None and job.estimated_end <= now:
            of_running.append(event)
            others.append(None)
        elif isinstance(event, JobSubmitted):
            submissions.append(event)
        else:
            others.append(event)
    return of_running, submissions, others
