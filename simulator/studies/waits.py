"""Study: how well the start of a job is predicted at its submission.

A trace is simulated. At each submission of a job that has to wait, a forecast runs the site forward
from its present state; jobs to come are left out, as they are not known. The predicted start is
compared with the one of the simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import simulator as sim
from simulator.study.study import trace_path
from simulator.traces import swf
from simulator.traces.normalise import NEEDED

#: Run times that forecasts expect: the real ones, the users' estimates, or predictions of the
#: predictor `easy++` has. Any other value is the name of a predictor, by which the site schedules.
EXACT, ESTIMATES, PREDICTIONS = "exact", "estimates", "predictions"


def run(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Simulate a trace and measure the errors of the predicted starts.

    Parameters
    ----------
    parameters : `trace`, `policy`, `run_times` ("exact", "estimates", "predictions" or the name of
        a predictor), `first` (number of jobs, 0: all).

    Raises
    ------
    ConfigError : a parameter is unknown.
    """
    run_times, first = parameters["run_times"], parameters["first"]
    trace = swf.read(trace_path(parameters, parameters["trace"]), fields=NEEDED)
    predictor = "tsafrir" if run_times == PREDICTIONS else run_times
    jobs = sim.Jobs(trace)
    ran = sim.simulate(
        jobs.first(first) if first else jobs,
        scenario=parameters["policy"],
        estimates=None if run_times in (EXACT, ESTIMATES) else predictor,
        quotes={"run_times": EXACT if run_times == EXACT else ESTIMATES},
    )
    predicted = ran.jobs["submit_s"].copy()
    predicted[ran.quotes["row"]] = ran.quotes["expected_start_s"]
    return accuracy(ran.jobs["submit_s"], ran.jobs["start_s"], predicted)


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
