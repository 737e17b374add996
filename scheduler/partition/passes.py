"""Scheduling passes: which pass runs, how many jobs it examines, and the jobs that it starts."""

from __future__ import annotations

from math import ceil

from reshape.errors import ReshapeError
from scheduler.model.events import JobSpec
from scheduler.model.job import START, Job, JobState
from scheduler.model.machine import CONSERVED
from scheduler.model.orders import Reason
from scheduler.model.procset import ProcSet
from scheduler.model.space import NONE
from scheduler.partition.alarms import Alarms
from scheduler.policies.backfill.scheduling_pass import SchedulingPass, Starter
from scheduler.policies.scenario import Scenario
from scheduler.state.scheduler_state import SchedulerState


class Passes(Starter):
    """The scheduling passes of a partition.

    Parameters
    ----------
    state : scheduler state.
    scenario : makes the pass.
    alarms : wake-ups of the partition.
    predicts : whether run times are predicted.

    Attributes
    ----------
    current : the pass for the present kinds of resources and exclusions; see `select`.
    follow_events : whether passes follow from events alone, not from the time.
    depth_limit : depth of passes to which the driver has limited the partition; None: no limit.
    """

    def __init__(
        self, state: SchedulerState, scenario: Scenario, alarms: Alarms, *, predicts: bool
    ) -> None:
        self._state, self._scenario, self._alarms = state, scenario, alarms
        self._kills_at_reservation = scenario.backfill.kill_at_reservation
        self._predicts = predicts
        self.select()
        self.limit_depth(None)

    def select(self) -> None:
        """Make the pass anew: a resource was named for the first time, or exclusions changed."""
        state, backfill = self._state, self._scenario.backfill
        self.current: SchedulingPass = self._scenario.new_pass(state, self)
        time_matters = self._predicts or state.queue.ages or state.excluding
        self.follow_events = not time_matters and backfill.moments == "always"

    def exclusions_changed(self) -> None:
        """Schedule by other exclusions, and ask for a wake-up at their next change."""
        self._alarms.wake_for_exclusions()
        self.select()

    def minimum_of(self, spec: JobSpec) -> int:
        """Smallest size of a resizable job that states none; 0: the one on which it starts."""
        share = self._scenario.backfill.adaptive_start
        if share >= 1 or spec.topology is None:
            return 0
        return ceil(share * spec.processors)

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

    def start(
        self, job: Job, reason: Reason, avoiding: ProcSet = NONE, size: int | None = None
    ) -> bool:
        """Start a job if the selection accepts processors; return whether it did."""
        state = self._state
        processors = size
        if processors is None:
            processors = job.processors
            if processors != job.spec.processors:
                raise ReshapeError(
                    f"job {job.id} would start on {processors} processors, and requests"
                    f" {job.spec.processors}: {CONSERVED}"
                )
        chosen = state.machine.allocate(state.selection, processors, avoiding)
        if chosen is None:
            return False
        group = state.start(job, chosen, processors)
        if len(job.groups) > 1:
            state.orders.append(START(job.id, group, chosen, reason, groups=job.groups.copy()))
        else:
            state.orders.append(START(job.id, group, chosen, reason))
        if self._alarms.at_starts or not job.is_plain:
            self._alarms.job_started(job)
        return True
