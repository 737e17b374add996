"""Futures: forecasts with drawn run times, and the quantiles of their starts and ends.

Run times differ from estimates. Each future draws the run time of every job.

If the predictor of the core has quantiles for a job, the run time is drawn from them. Otherwise
the ratio of run time to walltime is drawn from past jobs that are like it: users repeat their jobs,
and the jobs that hold most of a machine are not like most jobs. The run time of a running job is
drawn from the part of its distribution beyond the time for which it has run. Without a predictor
and past jobs, jobs run for their estimates.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import frexp, inf
from multiprocessing import get_all_start_methods, get_context
from typing import NamedTuple

import numpy as np

from scheduler.forecasts.answers import Spread
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.recorded_state import PAST_JOBS, RecordedState
from scheduler.model.events import JobSpec
from scheduler.model.job import Job

#: Probabilities of the quantiles of a predictor; between them the distribution is linear.
PROBABILITIES = (0.01, *(step / 20 for step in range(1, 20)), 0.99)
#: Past jobs that are like a job are enough if there are as many as this.
LEAST = 10


class RunTimes(NamedTuple):
    """Distributions of the run times of the jobs of a state.

    Parameters
    ----------
    state : with the jobs.
    ratios : run time divided by walltime of past jobs, ascending, by what they have in common; see
        `_likenesses`.
    quantiles : job number -> run times (s) at `PROBABILITIES`, for jobs for which the predictor has
        them.
    alike : job number -> what `_alike` returns for the jobs that all futures have.
    """

    state: RecordedState
    ratios: Mapping[Hashable, Sequence[float]]
    quantiles: Mapping[int, Sequence[float]]
    alike: dict[int, list[Sequence[float]]]

    @classmethod
    def of(cls, state: RecordedState, specs: Sequence[JobSpec] = ()) -> RunTimes:
        """Ask the predictor of a state about its jobs, and about jobs that are submitted to it."""
        core = state.core()
        quantiles = {}
        for job in _all_jobs(state, specs):
            predictor = core.partition_of(job).predictor
            predicted = None if predictor is None else predictor.quantiles(job, PROBABILITIES)
            if predicted is not None:
                quantiles[job.id] = _ascending(predicted)
        ratios: dict[Hashable, list[float]] = {}
        for job in state.past[-PAST_JOBS:]:
            ratio = run_ratio(job)
            if ratio is not None:
                for likeness in _likenesses(job.spec):
                    ratios.setdefault(likeness, []).append(ratio)
        ascending = {like: sorted(values) for like, values in ratios.items()}
        alike = {job.id: _alike(ascending, job.spec) for job in _all_jobs(state, specs)}
        return cls(state, ascending, quantiles, alike)

    def drawn(self, specs: Iterable[JobSpec], rng: np.random.Generator) -> dict[int, float]:
        """Draw the run times of all jobs of the state, and of jobs that are submitted to it.

        Returns
        -------
        job number -> run time from the start to the end, s. A job has no entry if there is no past
        job and no quantile, or if it has run for longer than all of them.
        """
        if not self.ratios and not self.quantiles:
            return {}
        jobs = _all_jobs(self.state, specs)
        drawn: dict[int, float] = {}
        for job, u in zip(jobs, rng.random(len(jobs)).tolist(), strict=True):
            passed_s = 0.0 if job.started_at is None else self.state.now - job.started_at
            if job.id in self.quantiles:
                run_s = _from_quantiles(self.quantiles[job.id], passed_s, u)
            else:
                alike = self.alike.get(job.id)
                if alike is None:
                    alike = _alike(self.ratios, job.spec)
                run_s = _from_ratios(alike, job.spec.walltime_s, passed_s, u)
            if run_s is not None:
                limit_s = job.spec.walltime_s if self.state.kill_at_walltime else run_s
                drawn[job.id] = min(run_s, limit_s)
        return drawn


#: What all jobs have in common.
ALL: Hashable = ()


def _likenesses(spec: JobSpec) -> tuple[Hashable, ...]:
    """What a job has in common with others, from the most alike to all jobs.

    These are its user, name and walltime; user and walltime; the user; and the walltime up to a
    factor of two.
    """
    user, walltime_s = spec.user, spec.walltime_s
    return (user, spec.name, walltime_s), (user, walltime_s), (user,), frexp(walltime_s)[1], ALL


def _alike(ratios: Mapping[Hashable, Sequence[float]], spec: JobSpec) -> list[Sequence[float]]:
    """Return ratios of past jobs, those of the jobs most like this one first."""
    by_likeness = ((like, ratios.get(like, ())) for like in _likenesses(spec))
    return [values for like, values in by_likeness if len(values) >= LEAST or like == ALL]


def _from_ratios(
    alike: Iterable[Sequence[float]], walltime_s: float, passed_s: float, u: float
) -> float | None:
    """Draw a ratio above the share of the walltime that has passed."""
    for ratios in alike:
        passed = bisect_right(ratios, passed_s / walltime_s) if passed_s > 0 else 0
        if passed < len(ratios):
            return ratios[passed + int(u * (len(ratios) - passed))] * walltime_s
    return None


def run_ratio(job: Job) -> float | None:
    """Run time of an ended job divided by its walltime; None if it did not run."""
    if job.started_at is None or job.ended_at is None:
        return None
    return (job.ended_at - job.started_at) / job.spec.walltime_s


def _from_quantiles(quantiles: Sequence[float], passed_s: float, u: float) -> float | None:
    """Draw a run time above the one that has passed."""
    if passed_s >= quantiles[-1]:
        return None
    below = 0.0
    if passed_s > quantiles[0]:
        below = float(np.interp(passed_s, quantiles, PROBABILITIES))
    return max(passed_s, float(np.interp(below + u * (1.0 - below), PROBABILITIES, quantiles)))


def _ascending(quantiles: Iterable[float]) -> list[float]:
    """Quantiles of a predictor, which may be a user's own, made ascending."""
    ascending = np.maximum.accumulate(np.fromiter(quantiles, dtype=np.float64))
    return ascending.tolist()  # type: ignore[no-any-return]


def _all_jobs(state: RecordedState, specs: Iterable[JobSpec]) -> list[Job]:
    """Jobs of a state, and those that are submitted to it."""
    submitted = [Job(state.last + i, spec, state.now) for i, spec in enumerate(specs, 1)]
    return [*state.jobs, *submitted]


LEVELS = (10, 50, 90)
#: Futures with arrivals have them for this multiple of the expected wait.
ARRIVALS_OF_WAIT = 2.0
#: Seconds after which a process of a pool notices that its parent has died.
PARENT_S = 0.5


class Spreads(NamedTuple):
    """Quantiles of the start and of the end of a job."""

    start: Spread
    end: Spread


class Futures:
    """What several forecasts of one state have in common; each draws other run times.

    Parameters
    ----------
    state : where they begin.
    job : number of the job whose start and end are asked for.
    specs, horizon_s : see `forecast`.
    arrive_until : further jobs are submitted until this time, s; see `drawn_arrivals`.
    """

    def __init__(
        self,
        state: RecordedState,
        job: int,
        specs: Sequence[JobSpec] = (),
        horizon_s: float = inf,
        arrive_until: float = -inf,
    ) -> None:
        self._state, self._job, self._specs = state, job, specs
        self._horizon_s, self._arrive_until = horizon_s, arrive_until
        self._run_times = RunTimes.of(state, specs)
        self._arrivals = state.arrivals if arrive_until > state.now else []

    @property
    def predicted(self) -> int:
        """Number of jobs whose run times are drawn from the quantiles of a predictor."""
        return len(self._run_times.quantiles)

    def spreads(self, count: int, seed: int = 0, workers: int = 1) -> Spreads:
        """Compute the quantiles over a number of forecasts.

        Parameters
        ----------
        count, seed : number of forecasts, and the seed of the draws.
        workers : processes that compute; the result does not depend on their number.

        Raises
        ------
        ValueError : a count below 1.
        """
        if count < 1:
            raise ValueError(f"count must be >= 1, got {count}")
        draws = np.random.default_rng(seed).spawn(count)
        workers = min(workers, count)
        if workers > 1 and "fork" in get_all_start_methods():
            # The state is inherited, which costs less than to send it to each process.
            context = get_context("fork")
            begin = (self, os.getpid())
            with ProcessPoolExecutor(workers, context, _begin_worker, begin) as pool:
                times = list(pool.map(_one_of_inherited, draws))
        else:
            times = [self.one(draw) for draw in draws]
        starts, ends = zip(*times, strict=True)
        return Spreads(_quantiles(starts), _quantiles(ends))

    def one(self, draw: np.random.Generator) -> tuple[float, float]:
        """Start and end of the job in one future, s; inf beyond the horizon."""
        later = drawn_arrivals(self._arrivals, self._state.now, self._arrive_until, draw)
        specs = [*self._specs, *(spec for _, spec in later)]
        run = forecast(
            self._state,
            self._specs,
            horizon_s=self._horizon_s,
            run_s=self._run_times.drawn(specs, draw),
            only=[self._job],
            later=later,
        )
        return run.start(self._job), run.end(self._job)


_inherited: list[Futures] = []


def _begin_worker(futures: Futures, parent: int) -> None:
    """Keep the futures that a process of the pool computes, and end the process with its parent."""
    _inherited[:] = [futures]
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent has died: a killed parent cannot close its pool."""
    while os.getppid() == parent:
        time.sleep(PARENT_S)
    os._exit(1)


def _quantiles(times: Sequence[float]) -> Spread:
    """Quantiles of times (s), each an observed one."""
    return Spread.of(np.percentile(times, LEVELS, method="inverted_cdf").tolist())


def _one_of_inherited(draw: np.random.Generator) -> tuple[float, float]:
    return _inherited[0].one(draw)


def last_arrival(now: float, start: float | None) -> float:
    """Time of the last arrival in the futures of a job with an expected start, s."""
    return -inf if start is None else now + ARRIVALS_OF_WAIT * (start - now)


def drawn_arrivals(
    arrivals: Sequence[tuple[float, JobSpec]], now: float, until: float, rng: np.random.Generator
) -> list[tuple[float, JobSpec]]:
    """Repeat the latest submissions from a random moment on, at their distances in time.

    So the arrivals of a future come in bursts as those of the past did, and of one user together
    (a circular block bootstrap: D. N. Politis and J. P. Romano, 1992).

    Parameters
    ----------
    arrivals : times (s) and requests of the latest submissions, in order of time.
    now, until : time of the present, and of the last submission at most, s.

    Returns
    -------
    (time in seconds, request) in order of time; none if fewer than two submissions are known.
    """
    if until <= now or len(arrivals) < 2 or arrivals[0][0] >= now:
        return []
    times = np.array([at for at, _ in arrivals])
    span_s = now - times[0]
    after_s = (times - times[0] - span_s * rng.random()) % span_s
    order = np.argsort(after_s, kind="stable")
    order = order[now + after_s[order] <= until]
    return [(now + float(after_s[index]), arrivals[index][1]) for index in order.tolist()]
