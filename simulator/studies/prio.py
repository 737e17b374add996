"""The experiments of PRIO section 4: what resizing gains, on the paper's job mixes.

A run is one job mix under one scenario. A mix is a seed; all scenarios, shares of resizable jobs
and classes of users are compared on the same mixes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reshape.speedup import Prio
from scheduler.core.core import Core
from scheduler.core.machine import Machine
from scheduler.policies.scenarios import scenario
from simulator.engine import Engine
from simulator.metrics import Outcome
from simulator.runtimes import ResizeCost
from simulator.statistics import mean
from simulator.workload import PrioWorkload

SIZES = ("small", "medium", "large")
CLASSES = ("gold", "platinum")


def run(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate one mix under one scenario.

    Parameters
    ----------
    parameters : `seed`; `scenario`; `set` (fields of the scenario to change, those that belong to
        another resizing policy left out); `workload` (fields of `PrioWorkload`, of `speedup` those
        of `Prio`); `start_s`, `resize_s` (until a job, or a group that joins, is up, seconds).

    Returns
    -------
    means over the jobs, seconds; `utilization_pct`; `expansions`, `contractions`, `killed`; and
    under `groups` the means of each size and class of user.
    """
    fields = dict(parameters["workload"])
    workload = PrioWorkload(**fields | {"speedup": Prio(**fields.get("speedup", {}))})
    chosen = scenario(parameters["scenario"])
    known = getattr(chosen.resizing, "__struct_fields__", ())
    changes = {
        name: value
        for name, value in parameters["set"].items()
        if not name.startswith("resizing.") or name.removeprefix("resizing.") in known
    }
    core = Core(
        scenario(parameters["scenario"], changes), Machine([("cluster", workload.processors)])
    )
    jobs = workload.generate(np.random.default_rng(parameters["seed"]))
    cost = ResizeCost(start_s=parameters["resize_s"])
    result = Engine(core, jobs, cost=cost, start_s=parameters["start_s"]).run()
    metrics = result.metrics()
    groups = {
        f"{size} {user}": _means(
            [o for o in result.outcomes if (o.spec.name, o.spec.user) == (size, user)]
        )
        for size in SIZES
        for user in CLASSES
    }
    return {
        **_means(result.outcomes),
        "utilization_pct": 100 * metrics.utilization,
        "expansions": metrics.expansions,
        "contractions": metrics.contractions,
        "killed": metrics.killed,
        "groups": groups,
    }


def _means(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Means of some jobs, seconds; the paper's completion time is the turnaround."""
    return {
        "jobs": len(outcomes),
        "mean_completion_s": mean([outcome.turnaround_s for outcome in outcomes]),
        "mean_execution_s": mean([outcome.execution_s for outcome in outcomes]),
        "mean_wait_s": mean([outcome.wait_s for outcome in outcomes]),
    }
