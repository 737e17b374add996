"""A run of the study: one scenario, one task assignment policy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from reshape.errors import ReshapeError, nearest
from simulator.many_centres.run import rules_named, run_centres
from simulator.studies.sites.batches import batches
from simulator.studies.sites.errors import prediction_errors
from simulator.studies.sites.paper import SCENARIOS, centres
from simulator.study.study import SEED, trace_path
from simulator.traces import swf
from simulator.traces.merge import merge
from simulator.traces.normalise import Rules

#: Seconds between two values of a queue over time.
QUEUE_EVERY_S = 21600.0


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
    if name not in SCENARIOS:
        raise ReshapeError(f"unknown scenario {name!r}{nearest(name, SCENARIOS)}")
    files = parameters["merged"].items()
    merged = tuple((centre, trace_path(parameters, file)) for centre, file in files)
    trace = _trace(merged, parameters["days"])
    options = {"seed": parameters[SEED], "scale_estimates": parameters["scale_estimates"]}
    rules = msgspec.structs.replace(rules_named(parameters["policy"], options), keep_quotes=True)
    first = parameters["jobs"] or parameters.get("jobs_of", {}).get(name)
    found = run_centres(trace, centres(name), rules, Rules(), first=first or None)
    return found.numbers() | {
        "moved": found.moved,
        "submitted": len(trace),
        "by_origin": {
            centre.name: found.numbers(found.of_origin(centre.name))
            for centre in found.centres
            if found.of_origin(centre.name).any()
        },
        "prediction_errors": prediction_errors(found),
        "batches": batches(found),
        "queues": found.queues(QUEUE_EVERY_S),
    }


@lru_cache(maxsize=2)
def _trace(merged: tuple[tuple[str, Path], ...], days: float) -> swf.Trace:
    """Merged trace of a run; the runs of one process share it."""
    return merge([swf.read(file) for _, file in merged], [centre for centre, _ in merged], days)
