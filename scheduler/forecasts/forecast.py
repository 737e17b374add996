"""Forecasts: the same core, run forward from a recorded state with expected run times.

The wait of a job is what the core does from the present state on. A forecast builds a copy of the
core and drives it by the virtual clock: jobs run for their estimates, or for run times that are
given, and arrivals yet to come are left out. The same state and run times give the same forecast.

The thesis of F. Guim Bernat, Job-guided scheduling strategies for multi-site HPC infrastructures
(2008), section 8.5.1, takes the start of a job from the reservation table of its centre. Under FCFS
and EASY with exact estimates that is the same time.

A `Trajectory` keeps the forecast of all jobs for several questions on the same state. Under FCFS
and EASY the last job of the queue does not change what the others do before it starts. Its forecast
may therefore begin shortly before its start, with a state that is recorded on the way. It is still
the core that decides when the job starts: what is recorded of each instant only excludes instants
at which it cannot.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isnan
from typing import TypeAlias

import numpy as np

from reshape.collection import no_collection
from scheduler.clock.agenda import Agenda
from scheduler.clock.loop import EventLoop
from scheduler.core.core import Core
from scheduler.forecasts.answers import JobForecast
from scheduler.forecasts.expected_jobs import ExpectedJobs
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.events import Event, JobSpec, Wakeup
from scheduler.model.job import FINAL
from scheduler.model.orders import Order, WakeAt
from scheduler.policies.queue_orders.basic import Fcfs
from scheduler.predictions.estimates import UserEstimates
from scheduler.state.records import decode_core

#: Called as observe(core, time, events, orders) after each call of the core.
Observe: TypeAlias = Callable[[Core, float, Sequence[Event], Sequence[Order]], None]


@dataclass(frozen=True)
class Forecast:
    """The result of running a core forward.

    Parameters
    ----------
    now : time of the state that it begins from, s.
    core : the core at the end of the forecast.
    loop, jobs : what was run.
    until : end of the forecast, s.
    awaited : numbers of the rigid jobs with whose starts the loop ended.
    time_is_over : whether it ended because of the time that it took.
    """

    now: float
    core: Core
    loop: EventLoop
    jobs: ExpectedJobs
    until: float
    awaited: frozenset[int]
    time_is_over: bool

    @property
    def looked_ahead_s(self) -> float | None:
        """Seconds up to which it has come, if the time that it took ended it; None otherwise."""
        return self.until - self.now if self.time_is_over else None

    @property
    def starts(self) -> dict[int, float]:
        """Time of the first start of each job that was queued or submitted and starts, s."""
        return {job: at for job, (at, _) in self.jobs.first_starts.items()}

    def start(self, job: int) -> float:
        """Time of the first start of a job, s; inf if it does not start within the horizon."""
        first = self.jobs.first_starts.get(job)
        return inf if first is None else first[0]

    def end(self, job: int) -> float:
        """Time of the end of a job, s; inf if it does not end within the horizon."""
        at = self.loop.ended[job - 1]
        if isnan(at) and job in self.awaited:
            at = self.jobs.expected_end(job)
        return at if at <= self.until else inf

    def of(self, job: int) -> JobForecast:
        """Return what a job is expected to do.

        Raises
        ------
        KeyError : there is no such job among those that were queued, live or submitted.
        """
        simulated = self.core.jobs[job]
        start, processors = simulated.started_at, ""
        if job in self.jobs.first_starts:
            start, allocated = self.jobs.first_starts[job]
            processors = str(allocated)
        end = self.end(job)
        return JobForecast(job, start, None if end == inf else end, processors, simulated.sizes)


def forecast(
    state: RecordedState,
    specs: Sequence[JobSpec] = (),
    *,
    horizon_s: float = inf,
    run_s: Mapping[int, float] | None = None,
    only: Collection[int] = (),
    later: Sequence[tuple[float, JobSpec]] = (),
    limit_s: float = inf,
    observe: Observe | None = None,
) -> Forecast:
    """Run a recorded state forward until all jobs have ended, or to a horizon.

    Parameters
    ----------
    specs : requests of jobs that are submitted at the beginning; they have the next numbers.
    horizon_s : seconds after the beginning at which the forecast ends.
    run_s : run times by job number, s, from the start to the end; others run for their estimates.
    only : numbers of the only jobs that will be asked for, so that the forecast may end with their
        starts; (): those of the state, and those that are submitted.
    later : time (s) and request of jobs that are submitted later, in order of time; they have the
        numbers after those of `specs`.
    limit_s : seconds that the forecast may take; it ends at the time up to which it has come then.
    observe : called after each instant.
    """
    core, agenda = state.core(), Agenda()
    kept = {job.id for job in state.jobs}.union(only)

    def forget(number: int) -> bool:
        if number in kept or core.jobs[number].state not in FINAL:
            return False
        core.forget(number)
        return True

    jobs = ExpectedJobs(core, agenda, run_s or {}, limit_s, forget)
    times = [state.now] * len(specs) + [at for at, _ in later]
    submitted = [*specs, *(spec for _, spec in later)]
    watch = None if observe is None else partial(observe, core)
    loop = EventLoop(core, times, submitted, agenda, jobs, watch=watch, earlier=state.last)
    agenda.add(Wakeup(state.now))
    until = state.now + horizon_s
    awaited = frozenset(only if _ends_follow_from_starts(state, specs, only) else ())
    time_is_over = False
    with no_collection():
        try:
            loop.run(until, awaited)
        except TimeoutError as over:
            until, time_is_over = max(state.now, *over.args), True
    return Forecast(state.now, core, loop, jobs, until, awaited, time_is_over)


def _ends_follow_from_starts(
    state: RecordedState, specs: Sequence[JobSpec], numbers: Collection[int]
) -> bool:
    """Whether the starts of jobs that have not started yet determine their ends."""
    scenarios = (state.scenario, *state.scenario.partitions.values())
    if any(own.redirection is not None for own in scenarios):  # the jobs may start twice
        return False
    jobs = {job.id: job for job in state.jobs}
    for number in numbers:
        if number > state.last:
            if specs[number - state.last - 1].resizable:
                return False
            continue
        job = jobs.get(number) or state.array_of(number)
        if job is None or job.started_at is not None or job.resizable:
            return False
    return True


#: States that are recorded on the way, each after the same number of starts.
STATES = 8


class Trajectory:
    """The instants of a forecast, and states on the way.

    Parameters
    ----------
    state : state from which it begins; `last_job_changes_nothing` holds for it.
    limit_s : seconds that the forecast may take; then it is known up to the time that it reached.

    Attributes
    ----------
    limit_s : see above.
    forecast : the forecast of all jobs.
    """

    def __init__(self, state: RecordedState, limit_s: float = inf) -> None:
        self._begin, self.limit_s = state, limit_s
        self._queued = 0  # at the beginning; set at the first instant
        self._changes_at = inf
        self._states: list[RecordedState] = []
        self._instants = array("d")  # in groups of four, see `_observe`
        self.forecast = forecast(state, limit_s=limit_s, observe=self._observe)
        table = np.frombuffer(self._instants).reshape(-1, 4)
        self._at, self._free, self._shadow, self._extra = table.T

    def _observe(
        self, core: Core, now: float, events: Sequence[Event], orders: Sequence[Order]
    ) -> None:
        """Record an instant: free processors, and the reservation of the head."""
        partition = core.partitions[0]
        waiting = len(partition.queue)
        if not self._instants:
            self._queued = waiting
        if self._changes_at == inf and (
            any(type(order) is not WakeAt for order in orders)
            or any(type(event) is not Wakeup for event in events)
        ):
            self._changes_at = now
        free = partition.view.free
        reservation = None if partition.state.placing else partition.view.reservation()
        at, extra = (inf, free) if reservation is None else (reservation.at, reservation.spare)
        self._instants.extend((now, free, at, extra))
        kept = len(self._states)
        if kept < STATES and STATES * waiting <= self._queued * (STATES - kept - 1):
            self._states.append(self._begin.later(core))

    def holds_at(self, now: float) -> bool:
        """Whether the same happens if the state of the beginning still exists at a time, s."""
        return now == self._begin.now or self._begin.now < now < self._changes_at

    def state_before_start(self, spec: JobSpec, until: float) -> RecordedState | None:
        """Return the latest state before the start of a job that is submitted last.

        Parameters
        ----------
        spec : its request.
        until : the state is not later than this time, s.

        Returns
        -------
        None : no state is known to be before the start, except that of the beginning.
        """
        if spec.resizable:
            return None
        in_time = spec.walltime_s <= self._shadow - self._at
        fits = (spec.processors <= self._free) & (in_time | (spec.processors <= self._extra))
        first = float(self._at[np.argmax(fits)]) if fits.any() else inf
        before = [state for state in self._states if state.now < first and state.now <= until]
        return before[-1] if before else None


def last_job_changes_nothing(state: RecordedState) -> bool:
    """Whether a rigid job at the end of the queue has no effect on others before it starts.

    With a limited depth it may have one: whether a pass is limited depends on the queue's length.
    """
    scenario, backfill = state.scenario, state.scenario.backfill
    is_plain = (
        type(scenario.order) is Fcfs
        and type(scenario.estimates) is UserEstimates
        and scenario.scheduling is None
        and scenario.backfill_order is None
        and scenario.redirection is None
        and not scenario.partitions
        and not scenario.queues
        and backfill.reservations in (0, 1)
        and backfill.pick == "first"
        and backfill.moments == "always"
        and backfill.max_jobs is None
        and not backfill.kill_at_reservation
    )
    if not is_plain or any(job.resizable or job.spec.is_placed for job in state.jobs):
        return False
    if any(job.to_come is not None for job in state.jobs):  # it would run to the last of all tasks
        return False
    recorded = decode_core(state.record).partitions[0]
    return recorded.depth is None and not recorded.exclusions
