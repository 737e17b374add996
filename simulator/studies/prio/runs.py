"""The experiments of PRIO section 4: the gain of resizing on the paper's job mixes.

A run is one job mix under one scenario. A mix is a seed; all scenarios, shares of resizable jobs
and classes of users are compared on the same mixes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import simulator as sim
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from simulator.experiment.tables import Columns
from simulator.results.statistics import mean
from simulator.studies.prio.paper import NAMES
from simulator.workload_models.generate import prio as workload_of

SIZES = ("small", "medium", "large")
USERS = ("gold", "platinum")


def run(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate one mix under one scenario.

    Parameters
    ----------
    parameters : `seed`, `scenario`; `resizable`, `user_priorities` and `workload` (other fields of
        `PrioWorkload`, with those of `Prio` as `speedup`); `set` (fields of the scenario to change;
        fields that only another scenario has are ignored); `start_s`, `resize_s` (start time of a
        job and of a joining group, seconds; the job computes meanwhile); `pause_s` (time that an
        expansion stops the job, seconds).

    Returns
    -------
    Means over the jobs, seconds; `utilization_pct`; `expansions`, `contractions`, `killed`; and
    under `groups` the means by size and priority class.
    """
    name = parameters["scenario"]
    fields = dict(parameters["workload"])
    fields |= {name: parameters[name] for name in ("resizable", "user_priorities", "start_s")}
    fields["cost"] = {"start_s": parameters["resize_s"], "join_s": parameters["pause_s"]}
    _, mix = workload_of(fields, parameters["seed"])
    chosen = {"name": name, **own_changes(name, parameters["set"])}
    ran = sim.simulate(sim.Jobs(mix), scenario=chosen)
    specs = [job.spec for job in sorted(mix.jobs, key=lambda job: job.at)]
    ended = np.flatnonzero(~np.isnan(ran.jobs["end_s"])).tolist()
    kinds: dict[tuple[str, str], list[int]] = {}
    for place in ended:
        kinds.setdefault((specs[place].name, specs[place].user), []).append(place)
    return {
        **_means(ran.jobs, ended),
        "utilization_pct": 100 * ran.metrics["utilization"],
        **{name: ran.metrics[name] for name in ("expansions", "contractions", "killed")},
        "groups": {
            f"{size} {user}": _means(ran.jobs, kinds.get((size, user), []))
            for size in SIZES
            for user in USERS
        },
    }


def own_changes(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes without fields that only other scenarios have; fields that none has are kept."""
    of_others = {field for other in NAMES for field in _resizing_fields(scenario(other))}
    left_out = of_others - _resizing_fields(scenario(name))
    return {field: changes[field] for field in changes if field not in left_out}


def _resizing_fields(chosen: Scenario) -> set[str]:
    return {f"resizing.{name}" for name in getattr(chosen.resizing, "__struct_fields__", ())}


def _means(jobs: Columns, rows: Sequence[int]) -> dict[str, float]:
    """Means over the jobs of some rows, seconds; the paper calls the turnaround completion time."""
    chosen = list(rows)
    return {
        "jobs": len(chosen),
        "mean_completion_s": mean(jobs["turnaround_s"][chosen].tolist()),
        "mean_execution_s": mean(jobs["run_s"][chosen].tolist()),
        "mean_wait_s": mean(jobs["wait_s"][chosen].tolist()),
    }
