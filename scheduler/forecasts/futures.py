"""Futures: forecasts with drawn run times, and the quantiles of their starts and ends.

Run times differ from estimates. Each future draws the run time of every job, see
`scheduler.forecasts.run_times`. Without a predictor and past jobs, jobs run for their estimates.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from math import inf
from multiprocessing import get_all_start_methods, get_context
from typing import NamedTuple

import numpy as np

from scheduler.forecasts.answers import Spread
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.forecasts.run_times import RunTimes
from scheduler.model.events import JobSpec

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
    known: Sequence[tuple[float, JobSpec]], now: float, until: float, rng: np.random.Generator
) -> list[tuple[float, JobSpec]]:
    """Repeat the latest submissions from a random moment on, at their distances in time.

    So the arrivals of a future come in bursts as those of the past did, and of one user together
    (a circular block bootstrap: D. N. Politis and J. P. Romano, 1992).

    Parameters
    ----------
    known : times (s) and requests of the latest submissions, in order of time.
    now, until : time of the present, and of the last submission at most, s.

    Returns
    -------
    (time in seconds, request) in order of time; none if fewer than two submissions are known.
    """
    if until <= now or len(known) < 2 or known[0][0] >= now:
        return []
    times = np.array([at for at, _ in known])
    span_s = now - times[0]
    after_s = (times - times[0] - span_s * rng.random()) % span_s
    order = np.argsort(after_s, kind="stable")
    order = order[now + after_s[order] <= until]
    return [(now + float(after_s[index]), known[index][1]) for index in order.tolist()]
