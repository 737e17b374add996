"""Example study: the gain of backfilling, and the order in which it examines the queued jobs.

Each seed keeps the jobs of the trace and permutes the times between their submissions.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np

import simulator as sim
from reshape.errors import ConfigError
from simulator.study.study import trace_path
from simulator.traces import swf


def run(parameters: Mapping[str, Any]) -> dict[str, float | None]:
    """Simulate a trace under one policy.

    Parameters
    ----------
    parameters : `trace`, `policy`, `backfill_order` (or None), `load` (times between submissions
        are divided by it), `tau` (seconds) and `seed`.

    Raises
    ------
    ConfigError : the load is not a finite number above 0.
    """
    load = parameters["load"]
    if not (isinstance(load, int | float) and 0 < load < inf):
        raise ConfigError(f"must be a number above 0, got {load!r}", field="load")
    trace = swf.read(trace_path(parameters, parameters["trace"]))
    gaps = np.diff(np.sort(trace.columns["submit"]))
    gaps = np.random.default_rng(parameters["seed"]).permutation(gaps)
    trace.columns["submit"] = np.concatenate([[0.0], np.cumsum(gaps / load)])
    order = parameters["backfill_order"] or "none"
    ran = sim.simulate(
        sim.Jobs(trace),
        scenario={"name": parameters["policy"], "backfill_order": order},
        tau_s=parameters["tau"],
    )
    names = ("mean_wait_s", "mean_bounded_slowdown", "utilization")
    return {name: ran.metrics[name] for name in names}
