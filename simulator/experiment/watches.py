"""Watches of a simulation: decisions about one job, and forecasts of jobs at their submission."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from reshape.errors import ConfigError
from scheduler.core.core import Core
from scheduler.forecasts.answers import Spread
from scheduler.forecasts.calibration import Calibration, ForecastOutcome
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.futures import Futures, last_arrival
from scheduler.forecasts.recorded_state import KEPT_JOBS, RecordedState
from scheduler.model.events import Event, JobEnded, JobSpec, JobSubmitted
from scheduler.model.job import Job, JobState
from scheduler.model.orders import (
    AnswerRequest,
    Continue,
    Contract,
    Expand,
    Kill,
    Order,
    Reason,
    Requeue,
    Start,
)
from simulator.experiment.settings import QuoteRules
from simulator.results.jobs_csv import names_of
from simulator.traces.trace_jobs import TraceJobs

#: Orders about a job that a simulation gives.
_TOLD = (AnswerRequest, Continue, Contract, Expand, Kill, Requeue, Start)


class JobDecisions:
    """Collects the decisions about a job; a watch of the event loop.

    Parameters
    ----------
    cores : of the simulation.
    jobs : of the simulation.
    name : of the job, as the column `job` of the results has it.

    Attributes
    ----------
    rows : time (s), decision, rule, reason and index of the core of each, in order.

    Raises
    ------
    ConfigError : no job has the name.
    """

    def __init__(self, cores: Sequence[Core], jobs: TraceJobs, name: str) -> None:
        names = names_of(jobs.numbers)
        if name not in names:
            fix = "give a value of the column job of the results"
            raise ConfigError(f"no simulated job has the number {name!r}; {fix}", field="job")
        self._cores, self._job = cores, names.index(name) + 1
        self.rows: list[tuple[float, str, str, str, int]] = []
        self._latest: dict[int, tuple[object, ...]] = {}  # by the index of the core

    def __call__(self, time: float, events: Sequence[Event], orders: Sequence[Order]) -> None:
        """Note the orders of an instant for the job, and why it still waits after them."""
        for order in orders:
            if isinstance(order, _TOLD) and order.job == self._job:
                self._note(time, type(order).__name__.lower(), order.reason, self._place())
        for index, core in enumerate(self._cores):
            if any(self._job in partition.queue for partition in core.partitions):
                self._note(time, "wait", core.reason_pending(self._job), index)

    def _place(self) -> int:
        """Index of the core at which the job runs, or else waits."""
        live = (i for i, core in enumerate(self._cores) if self._job in core.live)
        queued = (i for i, core in enumerate(self._cores) if self._job in core.jobs)
        return next(live, next(queued, 0))

    def _note(self, time: float, decision: str, reason: Reason, index: int) -> None:
        """Add a row unless decision, rule and the job waited for are as before at this core."""
        same = (decision, reason.rule, reason.facts.get("head"))
        if same != self._latest.get(index):
            self.rows.append((time, decision, reason.rule, reason.sentence, index))
            self._latest[index] = same


class QuotedStart(NamedTuple):
    """What was forecast of a job at its submission.

    Parameters
    ----------
    job : its place by submission, from 1.
    start_s : expected start without further arrivals, s; inf: never.
    spread, raw : quantiles of the start with arrivals, after calibration by the outcomes of earlier
        forecasts and before it; None without futures.
    """

    job: int
    start_s: float
    spread: Spread | None = None
    raw: Spread | None = None


class StartQuotes:
    """Forecasts jobs at their submission; a watch of the event loop.

    Parameters
    ----------
    core : of the simulation.
    specs, submitted : requests and times of submission (s) of all jobs, in order.
    run_s : run time by job, s, that forecasts expect; empty: the estimates.
    seed : of the draws of the futures.

    Attributes
    ----------
    starts : forecasts, in the order of submission.
    """

    def __init__(
        self,
        core: Core,
        specs: Sequence[JobSpec],
        submitted: Sequence[float],
        rules: QuoteRules,
        *,
        run_s: Mapping[int, float],
        seed: int,
    ) -> None:
        self.starts: list[QuotedStart] = []
        self._core, self._specs, self._submitted = core, specs, submitted
        self._rules, self._run_s, self._seed = rules, run_s, seed
        self._raw: dict[int, Spread] = {}
        self._started: dict[int, float] = {}
        self._past: deque[Job] = deque(maxlen=KEPT_JOBS)
        self._outcomes: list[ForecastOutcome] = []
        self._waited = 0

    def __call__(self, time: float, events: Sequence[Event], orders: Sequence[Order]) -> None:
        """Note ends and starts, and forecast jobs that were submitted at this instant and wait."""
        if self._rules.futures:
            self._learn(time, events, orders)
        waiting = [event.job for event in events if type(event) is JobSubmitted]
        waiting = [job for job in waiting if any(job in p.queue for p in self._core.partitions)]
        every = self._rules.every
        jobs = [
            job for i, job in enumerate(waiting, self._waited + 1) if i % every == 0
        ]  # fmt: skip
        self._waited += len(waiting)
        if not jobs:
            return
        state = RecordedState.of_core(self._core, last=len(self._specs))
        expected = forecast(state, run_s=self._run_s, only=jobs)
        for job in jobs:
            quoted = QuotedStart(job, expected.start(job))
            self.starts.append(self._with_quantiles(quoted, state))

    def _learn(self, time: float, events: Sequence[Event], orders: Sequence[Order]) -> None:
        """Note the jobs that ended, and the outcomes of forecasts."""
        for event in events:
            if type(event) is JobEnded:
                number = event.job
                job = Job(number, self._specs[number - 1], self._submitted[number - 1])
                job.state, job.ended_at = JobState.COMPLETED, time
                job.started_at = self._started.pop(number)
                self._past.append(job)
        for order in orders:
            if type(order) is Start:
                self._started[order.job] = time
                if order.job in self._raw:
                    spread, at = self._raw[order.job], self._submitted[order.job - 1]
                    self._outcomes.append(ForecastOutcome.of(spread, at, time))

    def _with_quantiles(self, quoted: QuotedStart, state: RecordedState) -> QuotedStart:
        """The same with the quantiles of its futures, if these are wanted."""
        if not self._rules.futures:
            return quoted
        state = replace(state, past=list(self._past))
        until = last_arrival(state.now, quoted.start_s)
        several = Futures(state, quoted.job, arrive_until=until)
        spreads = several.spreads(self._rules.futures, self._seed + quoted.job)
        self._raw[quoted.job] = spreads.start
        corrected = Calibration(self._outcomes).corrected(spreads, state.now).start
        return quoted._replace(spread=corrected, raw=spreads.start)
