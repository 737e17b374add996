"""Studies of forecasts: how well the start of a job is predicted at its submission.

`predicted_starts`: a trace is simulated. At each submission of a job that has to wait, a forecast
runs the site forward from its present state; jobs to come are left out, as they are not known. The
predicted start is compared with the one of the simulation.

`calibration`: how often a job starts no later than P50 and P90 of its forecast. Every n-th job that
has to wait is forecast at its submission, by futures with arrivals. A calibration learns from the
outcomes of those of these forecasts whose job has started by then. The forecasts of the second half
of the jobs are measured, as the futures have them and after calibration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import simulator as sim
from simulator.study.study import trace_path
from simulator.traces import swf
from simulator.traces.normalise import NEEDED

Floats: TypeAlias = NDArray[np.float64]
#: Run times that forecasts expect: the real ones, the users' estimates, or predictions of the
#: predictor `easy++` has. Any other value is the name of a predictor, by which the site schedules.
EXACT, ESTIMATES, PREDICTIONS = "exact", "estimates", "predictions"


def predicted_starts(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Simulate a trace and measure the errors of the predicted starts.

    Parameters
    ----------
    parameters : `trace`, `policy`, `run_times` ("exact", "estimates", "predictions" or the name of
        a predictor), `first` (number of jobs, 0: all).

    Raises
    ------
    ConfigError : a parameter is unknown.
    """
    run_times = parameters["run_times"]
    trace = swf.read(trace_path(parameters, parameters["trace"]), fields=NEEDED)
    predictor = "tsafrir" if run_times == PREDICTIONS else run_times
    ran = sim.simulate(
        sim.Jobs(trace).first(parameters["first"] or None),
        scenario=parameters["policy"],
        estimates=None if run_times in (EXACT, ESTIMATES) else predictor,
        quotes={"run_times": EXACT if run_times == EXACT else ESTIMATES},
    )
    predicted = ran.jobs["submit_s"].copy()
    predicted[ran.quotes["row"]] = ran.quotes["expected_start_s"]
    return accuracy(ran.jobs["submit_s"], ran.jobs["start_s"], predicted)


def accuracy(
    submitted: Floats,
    started: Floats,
    predicted: Floats,
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


def calibration(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Simulate a trace, and measure the forecasts of its second half.

    Parameters
    ----------
    parameters : `trace`, `policy`, `first` (number of jobs, 0: all), `futures` and `every` (see
        `QuoteRules`), and `seed`.

    Returns
    -------
    `forecasts`, their number; the measures of `quality` with the prefixes `raw_` and, after
    calibration, none.
    """
    jobs = sim.Jobs.read(trace_path(parameters, parameters["trace"]))
    ran = sim.simulate(
        jobs.first(parameters["first"] or None),
        scenario=parameters["policy"],
        quotes={"futures": parameters["futures"], "every": parameters["every"]},
        seed=parameters.get("seed", 0),
    )
    quotes, waits = ran.quotes, ran.jobs["wait_s"]
    measured = quotes["row"] >= ran.jobs.rows // 2
    rows = quotes["row"][measured]
    measures: dict[str, float] = {"forecasts": float(len(rows))}
    for prefix in ("raw_", "") if len(rows) else ():
        names = (f"{prefix}{level}_start_s" for level in ("p10", "p50", "p90"))
        starts = np.column_stack([quotes[name][measured] for name in names])
        quantiles = starts - ran.jobs["submit_s"][rows, None]
        for name, value in quality(waits[rows], quantiles).items():
            measures[prefix + name] = value
    return measures


def quality(waits: Floats, quantiles: Floats) -> dict[str, float]:
    """Coverage, losses and width of quantiles.

    Parameters
    ----------
    waits : (n,) float64, how long each job waited, s.
    quantiles : (n, 3) float64, P10, P50 and P90 of the waits, s.

    Returns
    -------
    Percentages of the waits that P50 and P90 cover; means of the pinball losses of both, minutes,
    which the true quantiles make smallest (R. Koenker and G. Bassett, Econometrica 46, 1978); mean
    time from P10 to P90, minutes. Nothing if there is no job.
    """
    if not len(waits):
        return {}
    measures = {}
    for name, column, level in (("p50", 1, 0.5), ("p90", 2, 0.9)):
        late_s = waits - quantiles[:, column]
        measures[f"{name}_pct"] = 100.0 * float(np.mean(late_s <= 0))
        loss_s = np.maximum(level * late_s, (level - 1) * late_s)
        measures[f"{name}_loss_min"] = float(np.mean(loss_s)) / 60
    measures["width_min"] = float(np.mean(quantiles[:, 2] - quantiles[:, 0])) / 60
    return measures
