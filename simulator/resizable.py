"""Resizable workloads on the command line: a file that describes them, or a trace made resizable.

The jobs of a trace have one size and one run time. To make some of them resizable, the run is cut
into iterations, and a speedup model says how long they take on other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
import msgspec
import numpy as np

from reshape.cli.options import FiniteRange
from reshape.errors import ConfigError
from reshape.speedup import FORMS, Model, parse
from reshape.topology import Topology
from scheduler.core.core import Core
from scheduler.model.machine import Machine
from scheduler.policies.scenario import Scenario
from scheduler.text.located import converted
from simulator.engine.costs import ResizeCost
from simulator.engine.engine import Engine
from simulator.engine.jobs import SimJob
from simulator.engine.outcomes import Result
from simulator.results.schedule import Schedule
from simulator.traces.normalise import TraceJobs
from simulator.workloads.workload_file import Workload

F = TypeVar("F", bound=Callable[..., Any])


class ModelText(click.ParamType[Model]):
    """A speedup model."""

    name = "MODEL"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text of an option."""
        try:
            return parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


class CostText(click.ParamType[ResizeCost]):
    """What a resize costs."""

    name = "COST"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read ``start_s=0.4,join_s=0.05,bytes_per_s=1e9``, each of which may be left out."""
        if isinstance(value, ResizeCost):
            return value
        fields = dict(part.partition("=")[::2] for part in value.split(","))
        try:
            return converted(fields, ResizeCost)
        except ConfigError as error:
            names = ", ".join(ResizeCost.__struct_fields__)
            self.fail(f"{value!r}: {error}; it has {names}, as in start_s=0.4,join_s=0.05", param)


def resizable_options(command: F) -> F:
    """Add the options that make a trace resizable."""
    for option in reversed(
        (
            click.option(
                "--resizable",
                type=FiniteRange(0, 1),
                default=0.0,
                help="Share of the trace's jobs that can be resized.  [default: 0]",
            ),
            click.option(
                "--speedup",
                type=ModelText(),
                default="downey",
                show_default=True,
                help=f"Their speedup: {FORMS}.",
            ),
            click.option(
                "--iterations",
                type=click.IntRange(min=1),
                default=10,
                show_default=True,
                help="Iterations of a resizable job, with a resize point between any two.",
            ),
            click.option(
                "--expand-most",
                type=FiniteRange(min=1),
                default=4.0,
                show_default=True,
                help="Largest size of a resizable job, in times what it asks for.",
            ),
            click.option(
                "--expand-step",
                type=FiniteRange(min=0),
                default=0.25,
                show_default=True,
                help="What an expansion adds, as a share of what the job asks for.",
            ),
            click.option("--data-mib", type=FiniteRange(min=0), default=0.0, help=_DATA),
            click.option("--cost", type=CostText(), default="start_s=0", help=_COST),
            click.option("--seed", type=int, help="Which jobs are resizable; of a generator."),
        )
    ):
        command = option(command)
    return command


_DATA = "Data of a job a processor it asks for, in MiB; moved at a resize.  [default: 0]"
_COST = "What a resize costs, as start_s=0.4,join_s=0.05,bytes_per_s=1e9.  [default: nothing]"


def of_trace(jobs: TraceJobs, processors: int, options: Mapping[str, Any]) -> Workload:
    """Make a share of a trace's jobs resizable, chosen at random; none above the machine's size.

    A job runs as long as it did where it keeps its size.

    Parameters
    ----------
    options : as `resizable_options` names them.
    """
    rng = np.random.default_rng(options["seed"] or 0)
    chosen = rng.permutation(len(jobs)) < round(options["resizable"] * len(jobs))
    iterations = options["iterations"]
    made = []
    for at, spec, run_s, grows in zip(
        jobs.submit_times(), jobs.specs(), jobs.run_times(), chosen.tolist(), strict=True
    ):
        start = spec.processors
        most = min(processors, int(options["expand_most"] * start))
        if not grows or most <= start:
            made.append(SimJob(at, spec, run_s))
            continue
        topology = Topology(step=max(1, round(options["expand_step"] * start)))
        spec = msgspec.structs.replace(spec, max_processors=most, topology=topology)
        data_bytes = round(options["data_mib"] * start * 2**20)
        job = SimJob(at, spec, run_s / iterations, iterations, options["speedup"], data_bytes)
        made.append(job)
    return Workload(processors, made, options["cost"])


def run(
    workload: Workload,
    processors: int,
    chosen: Scenario,
    *,
    jobs: TraceJobs | None = None,
) -> tuple[Schedule, Result]:
    """Simulate a workload with resizable jobs.

    Parameters
    ----------
    jobs : the trace's jobs that the workload was made of, whose overruns the rules have settled; a
        workload without a trace has its jobs ended at their walltimes.
    """
    core = Core(chosen, Machine([("machine", processors)]), kill_at_walltime=jobs is None)
    given = sorted(workload.jobs, key=lambda job: job.at)
    engine = Engine(core, given, cost=workload.cost, start_s=workload.start_s, end_s=workload.end_s)
    result = engine.run()
    return Schedule.of(engine, trace_jobs(given) if jobs is None else jobs), result


def trace_jobs(jobs: list[SimJob]) -> TraceJobs:
    """Columns of jobs given one by one, in the order of their submission; run times as if rigid."""
    count = len(jobs)
    users = {name: number for number, name in enumerate(sorted({job.spec.user for job in jobs}))}
    return TraceJobs(
        lines=np.arange(count),
        numbers=np.arange(1, count + 1),
        submitted=np.array([job.at for job in jobs], float),
        run=np.array([job.iterations * job.iteration_s for job in jobs], float),
        estimate=np.array([job.spec.walltime_s for job in jobs], float),
        processors=np.array([job.spec.processors for job in jobs], np.int64),
        users=np.array([users[job.spec.user] for job in jobs], np.int64),
        priorities=np.array([job.spec.priority for job in jobs], float),
        cut=np.zeros(count, bool),
    )


def numbers(schedule: Schedule, result: Result, tau: float) -> dict[str, Any]:
    """Metrics of a run, named as those of a trace; with what the resizes changed."""
    found = msgspec.structs.asdict(schedule.numbers(tau))
    metrics = result.metrics(tau)
    more = ("utilization", "mean_execution_s", "expansions", "contractions")
    return found | {name: getattr(metrics, name) for name in more}
