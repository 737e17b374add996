"""``reshape workload``: describe, convert and generate traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from reshape.cli.options import WholeRange, example
from reshape.errors import ConfigError
from scheduler.text.formats import counted, json_text
from simulator.commands.options import (
    given,
    json_option,
    lenient_option,
    processors_option,
    set_fields,
)
from simulator.traces import swf
from simulator.traces.derived import DAY_S, offered_load
from simulator.traces.files import as_csv, check_place, replace_all
from simulator.traces.normalise import NEEDED, CleaningReport, machine_size, normalise
from simulator.traces.trace_jobs import TraceJobs
from simulator.workload_models import workload_file
from simulator.workload_models.estimates import LEAST_LONGEST_S
from simulator.workload_models.generate import (
    MOST_JOBS,
    MOST_RESOURCES,
    PRIO,
    make,
    prio,
    request_of,
)


@click.command()
@click.argument("model", metavar="MODEL")
@click.option(
    "--jobs",
    type=WholeRange(min=2, max=MOST_JOBS),
    help="Number of jobs.  [default: 1000; prio: 120]",
)
@click.option(
    "--seed",
    type=WholeRange(min=0),
    default=1,
    show_default=True,
    help="Seed of all random draws.",
)
@click.option(
    "--processors",
    type=WholeRange(min=2),
    help="Processors of the machine.  [default: 128; prio: 400]",
)
@click.option("--load", type=float, help="Offered load to reach.  [default: as the model, or 0.7]")
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
    help="Number of other resources.",
)
@click.option(
    "--law",
    type=click.Choice(["uniform", "exponential"]),
    default="uniform",
    show_default=True,
    help="Distribution of the demands for other resources.",
)
@click.option(
    "--estimates",
    type=click.Choice(["exact", "tsafrir"]),
    default="exact",
    show_default=True,
    help="Requested times: the run times, or drawn from the model of Tsafrir et al.",
)
@click.option(
    "--longest",
    "longest_s",
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
    seed: int,
    processors: int | None,
    fields: tuple[str, ...],
    output: Path,
    **options: object,
) -> None:
    """Draw jobs from MODEL (feitelson96, lublin or prio); the same seed gives the same bytes.

    The first two write a trace, prio a workload file of resizable jobs; simulate reads both.
    """
    parameters: dict[str, object] = {} if processors is None else {"processors": processors}
    parameters |= set_fields(fields)
    parameters |= {name: options[name] for name in given() if name in options}
    if model == PRIO:
        _check_prio(output)
        check_place(output)
        drawn, workload = prio(parameters, seed)
        comment = f"model {PRIO}, seed {seed}, {drawn}"
        replace_all({output: workload_file.encode(workload, comment)})
        click.echo(f"{output}: {counted(len(workload.jobs), 'job')} of model {model}")
        return
    _check_is_trace(output)
    check_place(output)
    try:
        request = request_of(model, parameters, seed)
    except ConfigError as error:
        field = (error.field or "").removeprefix("jobs.options").removeprefix(".")
        where = given().get(field, field)
        raise click.UsageError(f"{where}: {error.message}" if where else error.message) from None
    trace = make(request)
    swf.write(output, trace)
    click.echo(f"{output}: {counted(len(trace), 'job')} of model {model}")


def _check_prio(output: Path) -> None:
    """Refuse options that apply to traces only."""
    for name, option in given().items():
        if name in ("load", "queue", "resources", "law", "estimates", "longest_s"):
            raise click.UsageError(
                f"{option} does not apply to model {PRIO}, which has its own rates, estimates and"
                " sizes; see --set"
            )
    if output.suffix not in workload_file.ENDINGS:
        raise click.UsageError(
            f"{output} does not end in .yaml: a trace cannot express resizable jobs"
        )


def _check_is_trace(path: Path) -> None:
    """Refuse the name of a file that no command reads as a trace."""
    if not path.name.removesuffix(".gz").endswith(".swf"):
        raise click.UsageError(f"{path} does not end in .swf or .swf.gz")


@click.group()
def workload() -> None:
    """Describe, convert and generate traces in the Standard Workload Format."""


workload.add_command(generate)


@workload.command()
@click.argument("trace", type=click.Path(path_type=Path))
@processors_option
@lenient_option
@json_option
@example("reshape workload info trace.swf.gz --json")
def info(
    trace: Path,
    processors: int | None,
    lenient: bool,
    as_json: bool,
) -> None:
    """Describe TRACE: its irregularities, and the jobs that are left by default."""
    read = swf.read(trace, fields=NEEDED, lenient=lenient)
    size = processors or machine_size(read)
    jobs, report = normalise(read, size)
    facts = summary(jobs, size)
    if as_json:
        result = {"trace": read.path} | facts | {"report": msgspec.structs.asdict(report)}
        click.echo(json_text(result))
        return
    click.echo(_text(read, report, facts))


@workload.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.argument("to", type=click.Path(path_type=Path))
@lenient_option
@example("reshape workload convert trace.swf.gz trace.csv")
def convert(trace: Path, to: Path, lenient: bool) -> None:
    """Write TRACE as TO, whose name determines the form: .swf, .swf.gz, .csv or .csv.gz."""
    form = to.name.removesuffix(".gz").rpartition(".")[2]
    if form not in ("swf", "csv"):
        raise click.UsageError(f"{to} does not end in .swf, .swf.gz, .csv or .csv.gz")
    check_place(to)
    read = swf.read(trace, lenient=lenient)
    rows = zip(*(column.tolist() for column in read.columns.values()), strict=True)
    replace_all({to: swf.encode(read) if form == "swf" else as_csv(read.columns, rows)})
    click.echo(f"{to}: {counted(len(read), 'job')}")


def summary(jobs: TraceJobs, processors: int) -> dict[str, Any]:
    """Numbers that describe jobs on a machine of `processors` processors; times in seconds.

    `offered_load` is the work of the jobs over the processor-seconds installed between the first
    and the last submission.
    """
    span = float(jobs.submitted[-1] - jobs.submitted[0])
    return {
        "jobs": len(jobs),
        "processors": processors,
        "users": int((np.unique(jobs.users) >= 0).sum()),
        "span_s": span,
        "offered_load": offered_load(jobs, processors),
        "mean_run_s": float(jobs.run.mean()),
        "median_run_s": float(np.median(jobs.run)),
        "mean_estimate_s": float(jobs.estimate.mean()),
        "mean_processors": float(jobs.processors.mean()),
        "largest_processors": int(jobs.processors.max()),
    }


def _text(trace: swf.Trace, report: CleaningReport, facts: dict[str, Any]) -> str:
    lines = [report.sentence]
    if trace.first_skipped:
        lines.append(f"first line skipped: {trace.first_skipped}")
    for name, value in facts.items():
        lines.append(f"{name:20} {value:.6g}" if isinstance(value, float) else f"{name:20} {value}")
    lines.append(f"{'span in days':20} {facts['span_s'] / DAY_S:.1f}")
    return "\n".join(lines)
