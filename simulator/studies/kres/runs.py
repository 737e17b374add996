"""Balancing K resources: figures 2 and 3 of KRES.

Leinberger, Karypis and Kumar, "Job scheduling in the presence of multiple resource requirements",
section 3. Sizes and run times are those of Feitelson's model of 1996; each job needs K resources,
of which the processors are the first. The arrival rate is the one at which EASY with First-Fit has
the required mean ready queue; all algorithms run with this rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

import simulator as sim
from simulator.workload_models.drawn import DrawnJobs, Floats, poisson
from simulator.workload_models.feitelson96 import Feitelson96
from simulator.workload_models.rate import arrival_for_queue, mean_queue
from simulator.workload_models.requirements import Law, factors, requirements

#: KRES 3: EASY with First-Fit, BL and BB, and conservative backfilling; BB0 is BB without the
#: fullness modifier of section 2.2.
ALGORITHMS: dict[str, Mapping[str, Any]] = {
    "FF": {"name": "easy"},
    "BL": {"name": "easy", "backfill.pick": "bl"},
    "BB": {"name": "easy", "backfill.pick": "bb"},
    "BB0": {"name": "easy", "backfill.pick": "bb", "backfill.fullness": False},
    "CONS": {"name": "conservative"},
}


def run(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Simulate one workload under all algorithms, of which FF determines the rate of arrival.

    Parameters
    ----------
    parameters : seed, jobs, processors (also the units of each other resource), k, law ("uniform"
        or "exponential"), queue (target of the mean ready queue).

    Returns
    -------
    mean_arrival_s, load (of the resource with the largest demand), search_runs, and, by algorithm,
    queue, response_s, weighted_response_s.
    """
    capacity, k = int(parameters["processors"]), int(parameters["k"])
    drawn, arrivals = workload(
        int(parameters["seed"]), int(parameters["jobs"]), capacity, k, parameters["law"]
    )
    resources = {f"r{i}": capacity for i in range(2, k + 1)}

    def simulated(mean_s: float, algorithm: str) -> sim.Simulation:
        trace = drawn.arriving(arrivals * mean_s).trace(capacity, resources=resources)
        return sim.simulate(sim.Jobs(trace), scenario=ALGORITHMS[algorithm])

    assert drawn.resources is not None
    needs = np.column_stack([drawn.processors, drawn.resources])
    work = needs * drawn.run[:, np.newaxis]
    full_s = float(work.sum(axis=0).max()) / capacity / len(drawn)
    rate = arrival_for_queue(
        float(parameters["queue"]), lambda s: mean_queue(simulated(s, "FF").schedule), full_s
    )
    result: dict[str, Any] = {
        "mean_arrival_s": rate.mean_arrival_s,
        "load": full_s / rate.mean_arrival_s,
        "search_runs": rate.runs,
    }
    for name in ALGORITHMS:
        ran = simulated(rate.mean_arrival_s, name)
        response = ran.jobs["turnaround_s"]
        weight = needs.mean(axis=1) * ran.jobs["nominal_run_s"]  # 3.2: requirement times execution
        result[name] = {
            "queue": mean_queue(ran.schedule),
            "response_s": float(response.mean()),
            "weighted_response_s": float((weight * response).sum() / weight.sum()),
        }
    return result


def workload(seed: int, jobs: int, capacity: int, k: int, law: Law) -> tuple[DrawnJobs, Floats]:
    """Draw jobs with K requirements, and submission times of a Poisson process of mean 1 s.

    Sizes, run times and arrivals depend on the seed alone, not on K or the law.
    """
    sizes_rng, needs_rng, arrivals_rng = np.random.default_rng(seed).spawn(3)
    # KRES 3.1 uses "the job size and runtime characteristics", not the repetitions.
    model = Feitelson96(processors=capacity, repeat_order=0.0)
    drawn = model.generate(jobs, sizes_rng)
    needs = requirements(drawn.processors, capacity, factors(jobs, k, law, needs_rng))
    with_needs = msgspec.structs.replace(drawn, processors=needs[:, 0], resources=needs[:, 1:])
    return with_needs, poisson(jobs, arrivals_rng)
