"""One simulation of GUIM chapter 7: a trace with drawn demands under a selection, or RUA.

F. Guim, "Job-guided scheduling strategies for multi-site HPC infrastructures", 7.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

import simulator as sim
from simulator.studies.sharing.runs import numbers, simulated

Floats: TypeAlias = NDArray[np.float64]
HOUR_S = 3600.0
#: Strategy -> selection and further fields of the scenario. FF is that of chapter 6, whose numbers
#: tables 7.1 to 7.7 repeat; "LCT=1" is LessConsumeThreshold with a factor of 1.
STRATEGIES: Final[dict[str, dict[str, Any]]] = {
    "FF": {"selection": "equi-distribute"},
    "LC": {"selection": "less-consume"},
    "LCT=1": {"selection": "less-consume-threshold", "selection.factor": 1.0},
    "LCT=1.15": {"selection": "less-consume-threshold", "selection.factor": 1.15},
    "LCT=1.25": {"selection": "less-consume-threshold", "selection.factor": 1.25},
    "LCT=1.5": {"selection": "less-consume-threshold", "selection.factor": 1.5},
    "RUA": {},
}


def run(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Simulate one trace with one mix of demands under one strategy.

    Parameters
    ----------
    parameters : as of `simulator.studies.sharing.runs.run`, with `strategy` (see `STRATEGIES`) in
        place of `selection`.

    Returns
    -------
    What that function returns, and cpus_p95: 95th percentile over the hours of the mean number of
    processors in use.

    Raises
    ------
    KeyError : the strategy is unknown.
    """
    strategy = parameters["strategy"]
    fields = dict(STRATEGIES[strategy])
    if strategy != "RUA":
        fields["backfill_order"] = "sjf"
    ran = simulated(parameters, "rua" if strategy == "RUA" else "easy", fields)
    used = processors_by_hour(ran)
    return {**numbers(ran), "cpus_p95": float(np.percentile(used, 95))}


def processors_by_hour(simulated: sim.Simulation) -> Floats:
    """Mean number of processors in use in each hour from the first start on, (hours,) float64.

    The last hour, which is not complete, is left out unless it is the only one.
    """
    jobs = simulated.jobs
    ran = ~np.isnan(jobs["end_s"])
    started, ended = jobs["start_s"][ran], jobs["end_s"][ran]
    processors = jobs["processors"][ran].astype(float)
    at = np.concatenate([started, ended])
    change = np.concatenate([processors, -processors])
    order = np.argsort(at, kind="stable")
    at, used = at[order], np.cumsum(change[order])
    area = np.concatenate([[0.0], np.cumsum(used[:-1] * np.diff(at))])
    hours = max(1, int((at[-1] - at[0]) // HOUR_S))
    edges = at[0] + HOUR_S * np.arange(hours + 1)
    used_by_hour: Floats = np.diff(np.interp(edges, at, area)) / HOUR_S
    return used_by_hour
