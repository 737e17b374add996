"""A run of the study: one scenario, one task assignment policy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

import simulator as sim
from reshape.errors import ReshapeError, nearest
from scheduler.policies.scenarios import scenario
from simulator.experiment.tables import Columns
from simulator.many_centres.centres_file import CentreDescription
from simulator.many_centres.schedule import TAU_S, CentresSchedule
from simulator.studies.papers import paper
from simulator.studies.sites.batches import batches
from simulator.study.study import SEED, trace_path
from simulator.traces import swf
from simulator.traces.merge import merge

Floats: TypeAlias = NDArray[np.float64]
PAPER: Final = paper("sites")
#: Rules of a centre -> its scenario.
RULES: Final[dict[str, Any]] = {
    "sjbf": {"name": "easy", "backfill_order": "sjf"},
    "easy": {"name": "easy"},
    "fcfs": {"name": "fcfs"},
}
#: Seconds between two values of a queue over time.
QUEUE_EVERY_S = 21600.0
#: Number of parts of the jobs, in the order of their submission, for errors over time.
PARTS = 10


def run(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate the centres.

    Parameters
    ----------
    parameters : `scenario`, `policy`, `merged` (name of a centre -> trace), `days` (of each merged
        trace), `jobs` (number of jobs; 0: all), `jobs_of` (name of a scenario -> its number of jobs
        if `jobs` is 0), `scale_estimates`.

    Raises
    ------
    ReshapeError : there is no such scenario or policy.
    """
    name = parameters["scenario"]
    if name not in PAPER.scenarios:
        raise ReshapeError(f"unknown scenario {name!r}{nearest(name, PAPER.scenarios)}")
    files = parameters["merged"].items()
    merged = tuple((centre, trace_path(parameters, file)) for centre, file in files)
    trace = _trace(merged, parameters["days"])
    first = parameters["jobs"] or parameters.get("jobs_of", {}).get(name)
    ran = sim.simulate(
        sim.Jobs(trace).first(first) if first else sim.Jobs(trace),
        machine=centres(name),
        assign=parameters["policy"],
        dispatch={"seed": parameters[SEED], "scale_estimates": parameters["scale_estimates"]},
        quotes={},
    )
    simulated = ran.centres
    assert simulated is not None
    return simulated.numbers() | {
        "moved": simulated.moved,
        "submitted": len(trace),
        "by_origin": {
            centre.name: simulated.numbers(simulated.of_origin(centre.name))
            for centre in simulated.centres
            if simulated.of_origin(centre.name).any()
        },
        "prediction_errors": prediction_errors(simulated, ran.quotes),
        "batches": batches(simulated),
        "queues": simulated.queues(QUEUE_EVERY_S),
    }


def centres(name: str) -> list[CentreDescription]:
    """Centres of a scenario.

    Raises
    ------
    KeyError : there is no such scenario.
    """
    made = []
    for centre, (factor, rules) in PAPER.scenarios[name].items():
        size, *price = PAPER.centres[centre]
        fields = dict(RULES[rules])
        own = scenario(fields.pop("name"), fields)
        made.append(CentreDescription(centre, size, own, factor, *price))
    return made


@lru_cache(maxsize=2)
def _trace(merged: tuple[tuple[str, Path], ...], days: float) -> swf.Trace:
    """Merged trace of a run; the runs of one process share it."""
    return merge([swf.read(file) for _, file in merged], [centre for centre, _ in merged], days)


def prediction_errors(
    simulated: CentresSchedule, quotes: Columns
) -> dict[str, dict[str, Any]] | None:
    """Compute errors in percent of the true value; None if no quote was kept.

    GUIM does not say of what the errors are percentages. Waits and run times below 60 s count as
    60 s in the denominator, as in the bounded slowdown.

    Returns
    -------
    variable -> `median`, `iqr` (interquartile range), `p95` and `medians`, those of `PARTS` equal
    parts of the jobs in the order of their submission
    """
    ran = simulated.ran[quotes["row"]]
    if not ran.any():
        return None
    jobs = quotes["row"][ran]
    factors = np.array([centre.cpu_factor for centre in simulated.centres])[simulated.ran_at[jobs]]
    wait_s, run_s = simulated.schedule.wait[jobs], simulated.schedule.run_s[jobs]
    quoted_s, expected_s = quotes["wait_s"][ran], np.maximum(1.0, quotes["run_s"][ran] * factors)
    errors = {
        "wait_s": _percent(quoted_s, wait_s, TAU_S),
        "run_s": _percent(expected_s, run_s, TAU_S),
        "slowdown": _percent(1.0 + quoted_s / expected_s, simulated.slowdown[jobs], 1.0),
    }
    return {name: _summary(values) for name, values in errors.items() if len(values)}


def _percent(predicted: Floats, true: Floats, least: float) -> Floats:
    """Errors in percent of the true values, where there is a prediction."""
    values = 100.0 * np.abs(predicted - true) / np.maximum(true, least)
    return values[np.isfinite(values)]


def _summary(errors: Floats) -> dict[str, Any]:
    low, middle, high, p95 = np.percentile(errors, (25, 50, 75, 95))
    return {
        "median": float(middle),
        "iqr": float(high - low),
        "p95": float(p95),
        "medians": [float(np.median(part)) for part in np.array_split(errors, PARTS) if len(part)],
    }
