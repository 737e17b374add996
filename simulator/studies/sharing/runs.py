"""One simulation of GUIM chapters 6 and 7: a trace with drawn demands on shared nodes.

F. Guim, "Job-guided scheduling strategies for multi-site HPC infrastructures", 6.3: the first
10 000 jobs, nodes of four processors and 6000 MB/s, shortest job backfilled first.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import simulator as sim
from simulator.study.study import TRACES
from simulator.traces import swf
from simulator.traces.normalise import NEEDED
from simulator.workload_models.demands import CAPACITY, MIXES, NAME, Demands

PER_NODE = 4


def run(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Simulate one trace with one mix of demands under one selection.

    Parameters
    ----------
    parameters : seed, trace, processors, jobs, mix ("none" for run times as in the trace, "high",
        "med" or "low"), selection; windows and penalty as of `Sharing`; tolerance_s, by which a job
        may exceed its request before it is killed, s; changes, further fields of the scenario.

    Returns
    -------
    bsld_p95, bsld_mean, wait_p95_s, wait_mean_s, penalised_p95_pct, penalised_mean_pct of the jobs
    that were not killed, and killed.
    """
    fields = {"backfill_order": "sjf", "selection": parameters["selection"]}
    return numbers(simulated(parameters, "easy", fields))


def simulated(
    parameters: Mapping[str, Any], policy: str, fields: Mapping[str, Any]
) -> sim.Simulation:
    """Simulate one trace with one mix of demands.

    Parameters
    ----------
    parameters : as of `run`, without the selection.
    policy, fields : scenario by name, and fields that it gets before those of `changes`.
    """
    mix = parameters["mix"]
    path = str(Path(parameters[TRACES]) / parameters["trace"])
    trace = _trace(path, float(parameters["tolerance_s"]))
    machine: dict[str, Any] = {
        "nodes": int(parameters["processors"]) // PER_NODE,
        "processors_per_node": PER_NODE,
    }
    sharing = None
    if mix != "none":
        trace = Demands(MIXES[mix]).of(trace, int(parameters["seed"]))
        machine["shared_per_node"] = {NAME: CAPACITY}
        sharing = {"windows": parameters["windows"], "penalty": parameters["penalty"]}
    return sim.simulate(
        sim.Jobs(trace).first(int(parameters["jobs"])),
        machine=machine,
        scenario={"name": policy, **fields, **(parameters.get("changes") or {})},
        sharing=sharing,
    )


def numbers(ran: sim.Simulation) -> dict[str, float]:
    """Metrics of the jobs that ran to their ends, and the number of those that were killed.

    Without sharing a job is killed if its run time is cut at the limit.
    """
    jobs = ran.jobs
    over = jobs["state"] == "completed"
    share = jobs.get("penalised_pct", np.zeros(jobs.rows))
    metrics = {"killed": float((jobs["state"] == "killed").sum())}
    for name, unit, values in (
        ("bsld", "", jobs["bounded_slowdown"]),
        ("wait", "_s", jobs["wait_s"]),
        ("penalised", "_pct", share),
    ):
        metrics[f"{name}_p95{unit}"] = float(np.percentile(values[over], 95))
        metrics[f"{name}_mean{unit}"] = float(values[over].mean())
    return metrics


@lru_cache(maxsize=1)
def _trace(path: str, tolerance_s: float) -> swf.Trace:
    """Trace whose jobs may exceed their requests by so much: the requests include it."""
    trace = swf.read(path, fields=NEEDED)
    requested = trace.columns["requested_time"]
    limit = np.where(requested > 0, requested + tolerance_s, requested)
    return msgspec.structs.replace(trace, columns=trace.columns | {"requested_time": limit})
