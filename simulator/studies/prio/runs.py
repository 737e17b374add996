"""The experiments of PRIO section 4: the gain of resizing on the paper's job mixes.

A run is one job mix under one scenario. A mix is a seed; all scenarios, shares of resizable jobs
and classes of users are compared on the same mixes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from scheduler.text.located import converted
from simulator.engine.costs import ResizeCost
from simulator.results.schedule import Schedule
from simulator.results.statistics import mean
from simulator.run import run as simulate
from simulator.studies.prio.paper import NAMES
from simulator.workload_models.prio import PrioWorkload
from simulator.workload_models.workload import Workload

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
    workload = _workload(parameters)
    name = parameters["scenario"]
    chosen = scenario(name, own_changes(name, parameters["set"]))
    jobs = workload.generate(np.random.default_rng(parameters["seed"]))
    cost = ResizeCost(start_s=parameters["resize_s"], join_s=parameters["pause_s"])
    mix = Workload(workload.processors, jobs, cost, start_s=parameters["start_s"])
    schedule = simulate(mix, workload.processors, chosen)
    metrics = schedule.metrics()
    specs = [job.spec for job in sorted(jobs, key=lambda job: job.at)]
    ended = [place for place, end in enumerate(schedule.ended) if not np.isnan(end)]
    kinds: dict[tuple[str, str], list[int]] = {}
    for place in ended:
        kinds.setdefault((specs[place].name, specs[place].user), []).append(place)
    return {
        **_means(schedule, ended),
        "utilization_pct": 100 * metrics.utilization,
        "expansions": metrics.expansions,
        "contractions": metrics.contractions,
        "killed": metrics.killed,
        "groups": {
            f"{size} {user}": _means(schedule, kinds.get((size, user), []))
            for size in SIZES
            for user in USERS
        },
    }


def _workload(parameters: Mapping[str, Any]) -> PrioWorkload:
    fields = dict(parameters["workload"])
    fields |= {name: parameters[name] for name in ("resizable", "user_priorities")}
    return converted(fields, PrioWorkload, "workload")


def own_changes(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes without fields that only other scenarios have; fields that none has are kept."""
    of_others = {field for other in NAMES for field in _resizing_fields(scenario(other))}
    left_out = of_others - _resizing_fields(scenario(name))
    return {field: changes[field] for field in changes if field not in left_out}


def _resizing_fields(chosen: Scenario) -> set[str]:
    return {f"resizing.{name}" for name in getattr(chosen.resizing, "__struct_fields__", ())}


def _means(schedule: Schedule, places: Sequence[int]) -> dict[str, float]:
    """Means over jobs, seconds; the paper calls the turnaround completion time.

    Parameters
    ----------
    places : of the jobs in the schedule.
    """
    submitted, chosen = schedule.jobs.submitted, list(places)
    return {
        "jobs": len(chosen),
        "mean_completion_s": mean((schedule.ended - submitted)[chosen].tolist()),
        "mean_execution_s": mean(schedule.run_s[chosen].tolist()),
        "mean_wait_s": mean(schedule.wait[chosen].tolist()),
    }
