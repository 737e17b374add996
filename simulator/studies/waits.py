"""Study: how well the start of a job is predicted at its submission.

A trace is simulated. At each submission of a job that has to wait, a forecast runs the site forward
from its present state; jobs to come are left out, as they are not known. The predicted start is
compared with the one of the simulation. If futures are asked for, the share of the starts that come
no later than P50 and P90 of the futures tells how well these are calibrated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from reshape.collection import no_collection
from scheduler.core.core import Core
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.futures import Futures, Spread
from scheduler.forecasts.recorded_state import PAST_JOBS, RecordedState
from scheduler.model.events import Event, JobEnded, JobSubmitted
from scheduler.model.machine import Machine
from scheduler.model.orders import Order
from scheduler.policies.scenarios import scenario
from simulator.engine.engine import Engine
from simulator.study.study import trace_path
from simulator.traces import swf
from simulator.traces.normalise import NEEDED, Rules, TraceJobs, machine_size, normalise

#: Run times that forecasts expect: the real ones, the users' estimates, or predictions of the
#: predictor `easy++` has. Any other value is the name of a predictor, by which the site schedules.
EXACT, ESTIMATES, PREDICTIONS = "exact", "estimates", "predictions"


class Predicted:
    """Predicts the start of each job that waits, at its submission.

    Parameters
    ----------
    core : core of the simulation.
    jobs : jobs of the simulation.
    exact : forecasts use the real run times.
    futures, every, seed : number of futures for the quantiles of each `every`-th job that waits,
        and the seed of their draws; 0 futures: no quantiles.

    Attributes
    ----------
    starts : predicted start of each job, s; that of a job that starts at once is its submission.
    spreads : quantiles of the start, by job.
    """

    def __init__(
        self,
        core: Core,
        jobs: TraceJobs,
        *,
        exact: bool,
        futures: int = 0,
        every: int = 1,
        seed: int = 0,
    ) -> None:
        self.starts = np.array(jobs.submit_times())
        self.spreads: dict[int, Spread] = {}
        self._core, self._count = core, len(jobs)
        self._run_s = dict(enumerate(jobs.run_times(), 1)) if exact else {}
        self._shares = (jobs.run / jobs.estimate).tolist()  # of the estimates, by job
        self._ratios: deque[float] = deque(maxlen=PAST_JOBS)
        self._futures, self._every, self._seed = futures, every, seed
        self._waited = 0

    def __call__(self, time: float, events: list[Event], orders: list[Order]) -> None:
        """Predict the starts of the jobs that were submitted at this instant and are queued."""
        if self._futures:
            self._ratios.extend(self._shares[e.job - 1] for e in events if type(e) is JobEnded)
        queue = self._core.partitions[0].queue
        waiting = [e.job for e in events if type(e) is JobSubmitted and e.job in queue]
        if not waiting:
            return
        state = RecordedState.of_core(self._core, last=self._count)
        found = forecast(state, run_s=self._run_s)
        for job in waiting:
            self.starts[job - 1] = found.start(job)
            self._waited += 1
            if self._futures and self._waited % self._every == 0:
                several = Futures(replace(state, ratios=list(self._ratios)), job)
                self.spreads[job] = several.spreads(self._futures, self._seed + job).start


def run(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Simulate a trace and measure the errors of the predicted starts.

    Parameters
    ----------
    parameters : `trace`, `policy`, `run_times` ("exact", "estimates", "predictions" or the name of
        a predictor), `first` (number of jobs, 0: all), `futures` and `every` (see `Predicted`),
        `seed`.

    Raises
    ------
    ConfigError : a parameter is unknown.
    """
    run_times, first = parameters["run_times"], parameters["first"]
    trace = swf.read(trace_path(parameters, parameters["trace"]), fields=NEEDED)
    processors = machine_size(trace)
    jobs, _ = normalise(trace, processors, Rules())
    jobs = jobs.first(first) if first else jobs
    changes = {"estimates": "tsafrir" if run_times == PREDICTIONS else run_times}
    core = Core(
        scenario(parameters["policy"], {} if run_times in (EXACT, ESTIMATES) else changes),
        Machine([("machine", processors)]),
        kill_at_walltime=False,
        keep_ended=False,
    )
    predicted = Predicted(
        core,
        jobs,
        exact=run_times == EXACT,
        futures=parameters.get("futures", 0),
        every=parameters.get("every", 1),
        seed=parameters.get("seed", 0),
    )
    with no_collection():
        result = Engine(core, jobs, watch=predicted).run()
    started = np.array(result.started)
    found = accuracy(np.array(jobs.submit_times()), started, predicted.starts)
    return found | coverage(started, predicted.spreads)


def coverage(
    started: np.ndarray[Any, np.dtype[np.float64]], spreads: Mapping[int, Spread]
) -> dict[str, float]:
    """Calibration of quantiles: how often the real start comes no later than each.

    Parameters
    ----------
    started : (n,) float64, real starts, s.
    spreads : quantiles of the start of some jobs, by number from 1.

    Returns
    -------
    `futures_jobs`, and the percentages `p50_coverage_pct` and `p90_coverage_pct`; nothing if there
    are no quantiles.
    """
    if not spreads:
        return {}
    found = {"futures_jobs": float(len(spreads))}
    for name in ("p50", "p90"):
        covered = [
            getattr(spread, name) is None or started[job - 1] <= getattr(spread, name)
            for job, spread in spreads.items()
        ]
        found[f"{name}_coverage_pct"] = 100.0 * sum(covered) / len(covered)
    return found


def accuracy(
    submitted: np.ndarray[Any, np.dtype[np.float64]],
    started: np.ndarray[Any, np.dtype[np.float64]],
    predicted: np.ndarray[Any, np.dtype[np.float64]],
) -> dict[str, float]:
    """Measures of the errors, predicted minus real start; (n,) float64 each, seconds.

    Returns
    -------
    jobs, the percentage of them that waited, the percentage whose error is at most 1 and 15
    minutes, and of the jobs that waited: the percentages within 1 and 15 minutes and within 10 % of
    the wait, the median of the absolute errors and the mean error.
    """
    error = predicted - started
    wait = started - submitted
    waited = (wait > 0) | (predicted > submitted)

    def share(holds: Any) -> float:
        return 100.0 * float(np.mean(holds)) if len(holds) else 100.0

    late = error[waited]
    return {
        "jobs": float(len(error)),
        "waited_pct": share(waited),
        "within_1_min_pct": share(np.abs(error) <= 60),
        "within_15_min_pct": share(np.abs(error) <= 900),
        "waited_within_1_min_pct": share(np.abs(late) <= 60),
        "waited_within_15_min_pct": share(np.abs(late) <= 900),
        "waited_within_10_percent_pct": share(np.abs(late) <= 0.1 * wait[waited]),
        "median_error_s": float(np.median(np.abs(late))) if len(late) else 0.0,
        "mean_error_s": float(np.mean(late)) if len(late) else 0.0,
    }
