"""``reshape workload generate``: a trace, or a file of resizable jobs, drawn from a model."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from reshape.cli.options import WholeRange, example
from scheduler.text.formats import counted
from simulator.commands.options import seed_option, set_fields
from simulator.experiment.experiment import Experiment
from simulator.experiment.jobs import Jobs
from simulator.results.schedule import Schedule
from simulator.traces import swf
from simulator.traces.files import check_place, replace_all
from simulator.workload_models import workload_file
from simulator.workload_models.estimates import LEAST_LONGEST_S
from simulator.workload_models.generate import (
    MOST_JOBS,
    MOST_RESOURCES,
    PRIO,
    TraceRequest,
    make,
    prio,
)


@click.command()
@click.argument("model", metavar="MODEL")
@click.option(
    "--jobs",
    type=WholeRange(min=2, max=MOST_JOBS),
    help="Number of jobs.  [default: 1000; prio: 120]",
)
@seed_option
@click.option(
    "--processors",
    type=WholeRange(min=2),
    help="Processors of the machine.  [default: 128; prio: 400]",
)
@click.option(
    "--load", type=float, help="Offered load to reach.  [default: that of the model, else 0.7]"
)
@click.option(
    "--queue",
    type=float,
    help="Mean queue length under EASY to reach, by simulations; in place of --load.",
)
@click.option(
    "--resources",
    type=WholeRange(min=0, max=MOST_RESOURCES),
    default=0,
    show_default=True,
    help="Number of further resources.",
)
@click.option(
    "--law",
    type=click.Choice(["uniform", "exponential"]),
    default="uniform",
    show_default=True,
    help="Distribution of the demands for further resources.",
)
@click.option(
    "--estimates",
    type=click.Choice(["exact", "tsafrir"]),
    default="exact",
    show_default=True,
    help="Requested times: the run times, or those of the model of Tsafrir et al.",
)
@click.option(
    "--longest",
    type=WholeRange(min=LEAST_LONGEST_S),
    help="Largest requested time of that model, in seconds.  [default: 64800]",
)
@click.option(
    "--set", "fields", multiple=True, metavar="NAME=VALUE", help="Set a parameter of the model."
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="File to write."
)
@example(
    "reshape workload generate lublin --jobs 10000 --processors 256 -o lublin.swf.gz",
    "reshape workload generate prio --set resizable=0.5 --seed 3 -o half.yaml",
    "reshape workload generate feitelson96 --queue 64 --resources 3 --seed 2 -o k4.swf",
)
def generate(
    model: str,
    jobs: int | None,
    seed: int,
    processors: int | None,
    longest: int | None,
    fields: tuple[str, ...],
    output: Path,
    **options: object,
) -> None:
    """Draw jobs from MODEL (feitelson96, lublin or prio); the same seed gives the same bytes.

    The first two write a trace, prio a workload file of resizable jobs; simulate reads both.
    """
    if options["load"] is not None and options["queue"] is not None:
        raise click.UsageError("--load and --queue both set the arrival rate; give one of them")
    if longest is not None and options["estimates"] != "tsafrir":
        raise click.UsageError("--longest needs --estimates tsafrir")
    parameters: dict[str, object] = {} if processors is None else {"processors": processors}
    parameters |= set_fields(fields)
    if model == PRIO:
        _check_prio(output)
        parameters |= {} if jobs is None else {"jobs": jobs}
        check_place(output)
        drawn, workload = prio(parameters, seed)
        comment = f"model {PRIO}, seed {seed}, {drawn}"
        replace_all({output: workload_file.encode(workload, comment)})
        click.echo(f"{output}: {counted(len(workload.jobs), 'job')} of model {model}")
        return
    if not output.name.removesuffix(".gz").endswith(".swf"):
        raise click.UsageError(f"{output} does not end in .swf or .swf.gz")
    check_place(output)
    given = options if longest is None else options | {"longest_s": longest}
    wanted = TraceRequest(model, jobs or 1000, seed, parameters=parameters, **given)  # type: ignore[arg-type]
    trace = make(wanted, _under_easy)
    swf.write(output, trace)
    click.echo(f"{output}: {counted(len(trace), 'job')} of model {model}")


def _under_easy(trace: swf.Trace, processors: int) -> Schedule:
    return Experiment(Jobs(trace), processors=processors).run().schedule


def _check_prio(output: Path) -> None:
    """Refuse options that apply to traces only."""
    context = click.get_current_context()
    for name in ("load", "queue", "resources", "law", "estimates", "longest"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"--{name} does not apply to model {PRIO}, which has its own rates, estimates and"
                " sizes; see --set"
            )
    if output.suffix not in workload_file.ENDINGS:
        raise click.UsageError(
            f"{output} does not end in .yaml: a trace cannot express resizable jobs"
        )
