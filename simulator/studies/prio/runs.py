"""The experiments of PRIO section 4: the gain of resizing on the paper's job mixes.

A run is one job mix under one scenario. A mix is a seed; all scenarios, shares of resizable jobs
and classes of users are compared on the same mixes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

import simulator as sim
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from simulator.experiment.tables import Columns
from simulator.results.statistics import Interval, mean, mean_interval
from simulator.studies.papers import paper as paper_of
from simulator.studies.results import mean_difference
from simulator.study.study import Row
from simulator.workload_models.generate import prio as workload_of

paper = paper_of("prio")
Result: TypeAlias = Mapping[str, Any]
#: Selects a number of a run.
Pick: TypeAlias = Callable[[Result], float]
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
    for index in ended:
        kinds.setdefault((specs[index].name, specs[index].user), []).append(index)
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
    of_others = {field for other in paper.names for field in _resizing_fields(scenario(other))}
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


def name_of(parameters: Mapping[str, Any]) -> str:
    """Name of a case: "pba-pr", "pba-pr 50 %", "static with priority"."""
    name = str(parameters["scenario"])
    if parameters["user_priorities"]:
        return f"{name} with priority"
    share = parameters["resizable"]
    return name if share in (0, 1) else f"{name} {100 * share:g} %"


def of(field: str, size: str | None = None, user: str | None = None) -> Pick:
    """Select the mean of a field over all jobs, those of a size, or those of a priority class."""
    if size is None and user is None:
        return lambda result: float(result[field])

    def pick(result: Result) -> float:
        groups = [
            group
            for name, group in result["groups"].items()
            if size in (None, name.split()[0]) and user in (None, name.split()[1])
        ]
        jobs = sum(group["jobs"] for group in groups)
        return float(sum(group["jobs"] * group[field] for group in groups if group["jobs"]) / jobs)

    return pick


class Mixes:
    """Results of all cases on the mixes (seeds) that they have in common.

    Parameters
    ----------
    cases : name -> seed -> result.
    seeds : in ascending order.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.cases: dict[str, dict[int, Result]] = {}
        for row in rows:
            runs = self.cases.setdefault(name_of(row.parameters), {})
            runs[row.parameters["seed"]] = row.result
        common = [set(runs) for runs in self.cases.values()]
        self.seeds = sorted(set.intersection(*common)) if common else []

    def __contains__(self, name: str) -> bool:
        """Whether this case was run."""
        return name in self.cases

    def values(self, name: str, pick: Pick) -> list[float]:
        """Number of each mix under a case, in the order of the seeds."""
        return [pick(self.cases[name][seed]) for seed in self.seeds]

    def mean(self, name: str, pick: Pick) -> Interval:
        """Mean over the mixes."""
        return mean_interval(self.values(name, pick))

    def improvement(self, name: str, pick: Pick, base: str = "static") -> Interval:
        """Reduction against another case in per cent, mean over the mixes."""
        return mean_interval(self.improvements(name, pick, base))

    def improvements(self, name: str, pick: Pick, base: str = "static") -> list[float]:
        """Reduction against another case in per cent, for each mix."""
        pairs = zip(self.values(name, pick), self.values(base, pick), strict=True)
        return [100 * (1 - value / reference) if reference else 0.0 for value, reference in pairs]

    def gain(self, name: str, pick: Pick, base: str = "static") -> Interval:
        """Difference from another case, mean over the mixes."""
        return mean_difference(self.values(name, pick), self.values(base, pick))

    def spread(self, name: str, pick: Pick) -> tuple[float, float, float, float, float]:
        """Mean, standard deviation, maximum, minimum and range over the mixes (tables 2 and 4)."""
        values = self.values(name, pick)
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        low, high = min(values), max(values)
        return sum(values) / len(values), deviation, high, low, high - low
