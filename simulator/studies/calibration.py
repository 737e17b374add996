"""Study: how often a job starts no later than P50 and P90 of its forecast.

A trace is simulated, and every n-th job that has to wait is forecast at its submission, by futures
with arrivals. A calibration learns from the outcomes of those of these forecasts whose job has
started by then. The forecasts of the second half of the jobs are measured, as the futures have them
and after calibration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import simulator as sim
from simulator.study.study import trace_path

Floats: TypeAlias = NDArray[np.float64]


def run(parameters: Mapping[str, Any]) -> dict[str, float]:
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
    first, jobs = parameters["first"], sim.Jobs.read(trace_path(parameters, parameters["trace"]))
    ran = sim.simulate(
        jobs.first(first) if first else jobs,
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
