"""Runs of the study: the first jobs of a trace, a share of them malleable, under one policy.

The jobs are cut into iterations, and a model gives their speedup. A case of the study file states
where it differs from the base case, `BASE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import simulator as sim
from simulator.study.study import ENDINGS, trace_path

#: The base case. `minimum` and `most` are multiples of the request, `data_mib` is for each
#: processor requested, and `without` names a rule of malleable that is switched off.
BASE: Final[dict[str, Any]] = {
    "share": 1.0,
    "minimum": 0.25,
    "most": 4.0,
    "speedup": "amdahl:serial=0.02",
    "iterations": 100,
    "pause_s": 10,
    "data_mib": 0,
    "estimates": "users",
    "without": "",
}
#: Policies of the study -> scenario, or changes of one.
POLICIES: Final[dict[str, dict[str, Any]]] = {
    "easy": {"name": "easy"},
    "molded starts": {"name": "easy"},
    "fcfs-pr": {"name": "fcfs-pr"},
    "pba-pr": {"name": "pba-pr"},
    "max-b-pr": {"name": "max-b-pr"},
    "steady": {"name": "steady"},
    "adaptive starts": {"name": "steady"},
    "equipartition": {"name": "malleable", "resizing.favour_short": 0},  # the same for every job
    "malleable": {"name": "malleable"},
}
#: Policies whose jobs state a smallest size; PRIO's jobs start on their request.
WITH_MINIMUM: Final = ("molded starts", "equipartition", "malleable")
#: Values by which each rule of malleable is switched off.
RULES: Final[dict[str, dict[str, Any]]] = {
    "": {},
    "slack": {"resizing.slack": 100},
    "earn_back": {"resizing.earn_back": 0},
    "favour_short": {"resizing.favour_short": 0},
    "most_paused": {"resizing.most_paused": 1},
    "settle": {"resizing.settle": 5},
}
#: Name of the model in place of a trace, and the size of its machine.
LUBLIN, LUBLIN_PROCESSORS = "lublin", 256


def run(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Simulate the first jobs of a trace.

    Parameters
    ----------
    parameters : `trace` (a file, or "lublin"), `jobs` (number of the first ones), `policy` (of
        `POLICIES`), `draw` (seed of the draw of the malleable jobs, and of the model), and what
        differs from `BASE`.

    Returns
    -------
    Means over the jobs, the longest wait and turnaround (seconds), the largest bounded slowdown,
    `utilization_pct`, and `resizes` of a job.
    """
    case = BASE | dict(parameters)
    scenario, least = POLICIES[case["policy"]] | RULES[case["without"]], 1.0
    if case["policy"] == "adaptive starts":
        scenario = scenario | {"backfill.adaptive_start": case["minimum"]}
    elif case["policy"] in WITH_MINIMUM:
        least = case["minimum"]
    jobs = _jobs(case)
    if case["policy"] != "easy":
        jobs = jobs.with_resizable(
            case["share"],
            case["speedup"],
            iterations=case["iterations"],
            expand_least=least,
            expand_most=case["most"],
            expand_step=0.0,  # steps of one processor
            data_mib=case["data_mib"],
            cost={"pause_s": case["pause_s"], "bytes_per_s": 1e9},
        )
    estimates = "exact" if case["estimates"] == "exact" else None
    seed = case["draw"] if jobs.draws else None
    ran = sim.simulate(jobs, scenario=scenario, estimates=estimates, seed=seed)
    metrics = ran.metrics
    means = ("mean_turnaround_s", "mean_wait_s", "mean_bounded_slowdown")
    changes = metrics.get("expansions", 0) + metrics.get("contractions", 0)
    return {
        **{name: metrics[name] for name in ("jobs", *means, "max_wait_s", "max_bounded_slowdown")},
        "max_turnaround_s": float(ran.jobs["turnaround_s"].max()),
        "utilization_pct": 100 * metrics["utilization"],
        "resizes": changes / metrics["jobs"],
    }


def _jobs(case: Mapping[str, Any]) -> sim.Jobs:
    """First jobs of the trace, or jobs of the model with estimates as of users."""
    trace, count = case["trace"], case["jobs"]
    if trace.endswith(ENDINGS):
        return sim.Jobs.read(trace_path(case, trace)).first(count)
    return sim.Jobs.drawn(trace, jobs=count, processors=LUBLIN_PROCESSORS, estimates="tsafrir")
