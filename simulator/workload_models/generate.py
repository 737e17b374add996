"""Traces from models: jobs, demands, estimates, and times of submission for a load.

PRIO's model makes resizable jobs, which a trace cannot express; its workload is a workload file.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import numpy as np

from reshape.collection import no_collection
from reshape.errors import ConfigError, nearest
from reshape.speedup import parse
from scheduler.config import machine_file
from scheduler.policies.scenarios import scenario
from scheduler.text.located import converted
from simulator.engine.costs import ResizeCost
from simulator.engine.engine import Engine, simulated_core
from simulator.results.schedule import Schedule
from simulator.traces.normalise import normalise
from simulator.traces.swf import Trace
from simulator.workload_models.drawn import (
    DrawnJobs,
    Floats,
    Law,
    arrival_for_queue,
    factors,
    mean_queue,
    poisson,
    requirements,
)
from simulator.workload_models.estimates import LEAST_LONGEST_S, TsafrirEstimates
from simulator.workload_models.rigid_models import Feitelson96, Lublin
from simulator.workload_models.workload import PrioWorkload, Workload

Model: TypeAlias = Feitelson96 | Lublin
MODELS: dict[str, type[Model]] = {"feitelson96": Feitelson96, "lublin": Lublin}
PRIO = "prio"  # the model of resizable jobs
DEFAULT_LOAD = 0.7  # of a model without arrivals
DEFAULT_JOBS = 1000
MOST_JOBS = 10**8
MOST_RESOURCES = 100
NotBelow0: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class TraceRequest(msgspec.Struct, frozen=True):
    """Request for a generated trace.

    Parameters
    ----------
    model, jobs, seed : name of the model, number of jobs, seed of all draws.
    parameters : of the model, by name; numbers may be text.
    load : offered load (processor-seconds requested over those installed while jobs are submitted),
        or queue : mean queue of EASY; None and None: that of the model.
    resources : number of further resources; law : distribution of the demands.
    estimates : "exact", or "tsafrir" with the largest estimate `longest_s`.
    """

    model: str
    jobs: int
    seed: int
    parameters: Mapping[str, Any] = {}
    load: float | None = None
    queue: float | None = None
    resources: Annotated[int, msgspec.Meta(ge=0, le=MOST_RESOURCES)] = 0
    law: Law = "uniform"
    estimates: Literal["exact", "tsafrir"] = "exact"
    longest_s: Annotated[int, msgspec.Meta(ge=LEAST_LONGEST_S)] = TsafrirEstimates().longest_s


def request_of(model: str, options: Mapping[str, Any], seed: int) -> TraceRequest:
    """Request for a trace of a model by options: fields of the request, or parameters of the model.

    Raises
    ------
    ConfigError : see `model_of`; the number of jobs or a field of the request is wrong.
    """
    named = ("load", "queue", "resources", "law", "estimates", "longest_s")
    own = {name: value for name, value in options.items() if name in named}
    rest = {name: value for name, value in options.items() if name not in (*named, "jobs")}
    model_of(model, rest)
    jobs = options.get("jobs", DEFAULT_JOBS)
    if isinstance(jobs, bool) or not (isinstance(jobs, int) and 0 < jobs <= MOST_JOBS):
        raise ConfigError(
            f"must be a whole number >= 1 and <= {MOST_JOBS}, got {jobs!r}",
            field="jobs.options.jobs",
        )
    wanted = {"model": model, "jobs": jobs, "seed": seed, "parameters": rest}
    made = converted(wanted | own, TraceRequest, "jobs.options")
    needs = {"longest_s": made.estimates == "tsafrir", "law": made.resources > 0}
    for name, has_effect in needs.items():
        if name in own and not has_effect:
            fix = "estimates: tsafrir" if name == "longest_s" else "resources"
            raise ConfigError(
                f"has no effect without {fix}; leave it out, or give that as well",
                field=f"jobs.options.{name}",
            )
    if made.load is not None and made.queue is not None:
        raise ConfigError(
            "load and queue both set the arrival rate; give one", field="jobs.options"
        )
    return made


def model_of(name: str, parameters: Mapping[str, Any]) -> Model:
    """Model of this name with some parameters changed.

    Raises
    ------
    ConfigError : an unknown model or parameter (the nearest is offered), or a wrong value.
    """
    if name not in MODELS:
        raise ConfigError(f"unknown model {name!r}{nearest(name, (*MODELS, PRIO))}", field="model")
    return converted(parameters, MODELS[name], name)


def prio(parameters: Mapping[str, Any], seed: int) -> tuple[PrioWorkload, Workload]:
    """Draw the workload of PRIO section 4, as `reshape study prio-sweet-spot` does.

    Parameters
    ----------
    parameters : of `PrioWorkload`, by name; numbers, and the speedup model, may be text. `cost`,
        `start_s` and `end_s` are those of `Workload`, by default none.

    Raises
    ------
    ConfigError : an unknown parameter, or a wrong value.
    """
    fields = dict(parameters)
    if isinstance(fields.get("speedup"), str):
        try:
            fields["speedup"] = msgspec.to_builtins(parse(fields["speedup"]))
        except ValueError as error:
            raise ConfigError(str(error), field=f"{PRIO}.speedup") from None
    start_s, end_s = (
        converted(fields.pop(name, 0.0), NotBelow0, f"{PRIO}.{name}")
        for name in ("start_s", "end_s")
    )
    cost = converted(fields.pop("cost", {}), ResizeCost, f"{PRIO}.cost")
    model = converted(fields, PrioWorkload, PRIO)
    jobs = model.generate(np.random.default_rng(seed))
    return model, Workload(model.processors, jobs, cost, start_s, end_s)


def make(wanted: TraceRequest) -> Trace:
    """Make a trace; the same request gives the same bytes.

    Raises
    ------
    ConfigError : see `model_of`; a load or a queue that is not above 0, or not finite.
    ReshapeError : no rate of arrival gives the wanted queue.
    """
    for name in ("load", "queue"):
        value = getattr(wanted, name)
        if value is not None and not 0 < value < inf:
            raise ConfigError(f"must be > 0 and finite, got {value}", field=name)
    model = model_of(wanted.model, wanted.parameters)
    capacity = model.processors
    jobs_rng, needs_rng, arrivals_rng, estimates_rng = np.random.default_rng(wanted.seed).spawn(4)
    drawn = model.generate(wanted.jobs, jobs_rng)
    resources = {f"r{i}": capacity for i in range(2, wanted.resources + 2)}
    if resources:
        random = factors(wanted.jobs, wanted.resources + 1, wanted.law, needs_rng)
        needs = requirements(drawn.processors, capacity, random)
        drawn = msgspec.structs.replace(drawn, processors=needs[:, 0], resources=needs[:, 1:])
    if wanted.estimates == "tsafrir":
        guesses = TsafrirEstimates(longest_s=wanted.longest_s)
        estimates = guesses.generate(np.maximum(np.rint(drawn.run), 1), estimates_rng)
        drawn = msgspec.structs.replace(drawn, estimate=estimates.astype(np.float64))
    at = drawn.submitted
    at = poisson(wanted.jobs, arrivals_rng) if at is None else at
    scale = _scale(wanted, drawn, at, capacity, resources)
    notes = msgspec.to_builtins(wanted) | {"parameters": msgspec.to_builtins(model)}
    header = [
        "; Version: 2.2",
        "; Computer: none, generated by reshape workload generate",
        *(f"; Note: {name} {value}" for name, value in notes.items() if value is not None),
        f"; Note: mean time between submissions {scale * float(at[-1]) / len(at):.6g} s",
    ]
    return drawn.arriving(at * scale).trace(capacity, header, resources)


def _scale(
    wanted: TraceRequest,
    drawn: DrawnJobs,
    at: Floats,
    capacity: int,
    resources: Mapping[str, int],
) -> float:
    """Factor of the times of submission that gives the load or the queue wanted."""
    load = wanted.load
    if load is None and drawn.submitted is None:
        load = DEFAULT_LOAD
    full = drawn.work / (capacity * float(at[-1] - at[0])) if len(at) > 1 else 1.0
    if wanted.queue is None:
        return full / load if load is not None else 1.0

    def queue_at(scale: float) -> float:
        trace = drawn.arriving(at * scale).trace(capacity, resources=resources)
        return mean_queue(under_easy(trace, capacity))

    return arrival_for_queue(wanted.queue, queue_at, full).mean_arrival_s


def under_easy(trace: Trace, processors: int) -> Schedule:
    """Simulate the jobs of a trace under EASY on a number of processors."""
    (machine,) = machine_file.flat(processors).machines(trace.capacities(), counted=True).values()
    core = simulated_core(scenario("easy"), machine, kill_at_walltime=False, keep_ended=False)
    with no_collection():
        return Engine(core, normalise(trace, processors)[0]).run()
