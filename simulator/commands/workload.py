"""``reshape workload``: describe, convert, cut and generate traces."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np
from click.core import ParameterSource

from reshape.cli.options import FiniteRange, WholeRange, example
from scheduler.text.formats import counted, json_text
from simulator.commands.options import (
    json_option,
    lenient_option,
    processors_option,
    rule_options,
    rules_of,
    seed_option,
    set_fields,
)
from simulator.traces import swf
from simulator.traces.derived import choose, cut, offered_load, scaled
from simulator.traces.derived import merge as merged_trace
from simulator.traces.files import as_csv, check_place, replace_all
from simulator.traces.normalise import NEEDED, CleaningReport, machine_size, normalise
from simulator.traces.trace_jobs import TraceJobs
from simulator.workload_models import workload_file
from simulator.workload_models.drawn import CAPACITY, LEVELS, MIXES, NAME, Demands
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
    _check_is_trace(output)
    check_place(output)
    given = options if longest is None else options | {"longest_s": longest}
    wanted = TraceRequest(model, jobs or 1000, seed, parameters=parameters, **given)  # type: ignore[arg-type]
    trace = make(wanted)
    swf.write(output, trace)
    click.echo(f"{output}: {counted(len(trace), 'job')} of model {model}")


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


def _check_is_trace(path: Path) -> None:
    """Refuse the name of a file that no command reads as a trace."""
    if not path.name.removesuffix(".gz").endswith(".swf"):
        raise click.UsageError(f"{path} does not end in .swf or .swf.gz")


DAY_S = 86400.0


@click.group()
def workload() -> None:
    """Describe, convert and generate traces in the Standard Workload Format."""


workload.add_command(generate)


@workload.command()
@click.argument("trace", type=click.Path(path_type=Path))
@processors_option
@rule_options
@lenient_option
@json_option
@example("reshape workload info trace.swf.gz --json")
def info(
    trace: Path,
    processors: int | None,
    lenient: bool,
    as_json: bool,
    **rules: Any,
) -> None:
    """Describe TRACE: its irregularities, and the jobs that the rules keep."""
    read = swf.read(trace, fields=NEEDED, lenient=lenient)
    size = processors or machine_size(read)
    jobs, report = normalise(read, size, rules_of(rules))
    facts = summary(jobs, size)
    if as_json:
        result = {"trace": read.path} | facts | {"report": msgspec.structs.asdict(report)}
        click.echo(json_text(result))
        return
    click.echo(_text(read, report, facts))


@workload.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.argument("to", type=click.Path(path_type=Path))
@click.option(
    "--load",
    type=FiniteRange(min=0, min_open=True),
    required=True,
    help="Offered load to reach, such as 0.9.",
)
@processors_option
@rule_options
@lenient_option
@example("reshape workload scale KTH-SP2.swf.gz busy.swf.gz --load 0.9")
def scale(
    trace: Path, to: Path, load: float, processors: int | None, lenient: bool, **rules: Any
) -> None:
    """Write TRACE as TO with the times between submissions stretched or shortened to a load.

    The offered load is the work of the jobs that the rules keep over the processor-seconds
    installed between the first and the last submission, as reshape workload info prints it.
    """
    _check_is_trace(to)
    check_place(to)
    read = swf.read(trace, lenient=lenient)
    size = processors or machine_size(read)
    jobs, _ = normalise(read, size, rules_of(rules))
    before = offered_load(jobs, size)
    made = scaled(read, jobs, size, load)
    after = offered_load(normalise(made, size, rules_of(rules))[0], size)
    remark = f"submit times of {trace.name} scaled from load {before:.6g} to {load:g}"
    replace_all({to: swf.encode(made, remark)})
    click.echo(f"{to}: {counted(len(made), 'job')}, offered load {before:.4g} -> {after:.4g}")


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
    rows = zip(*(read.columns[field].tolist() for field in swf.FIELDS), strict=True)
    replace_all({to: swf.encode(read) if form == "swf" else as_csv(swf.FIELDS, rows)})
    click.echo(f"{to}: {counted(len(read), 'job')}")


@workload.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="Directory.")
@click.option(
    "--weeks",
    "count",
    type=WholeRange(min=1),
    default=20,
    show_default=True,
    help="Largest number of weeks.",
)
@click.option(
    "--utilization",
    type=FiniteRange(min=0),
    default=0.7,
    show_default=True,
    help="Least utilization of a week.",
)
@seed_option
@processors_option
@lenient_option
@json_option
@example("reshape workload weeks RICC.swf.gz --weeks 20 --utilization 0.7 -o weeks")
def weeks(
    trace: Path,
    out: Path,
    count: int,
    utilization: float,
    seed: int,
    processors: int | None,
    lenient: bool,
    as_json: bool,
) -> None:
    """Cut busy weeks out of TRACE, each a trace of its own in the directory of -o.

    A week has the jobs submitted in its 168 hours. Its utilization is the share of the machine that
    the jobs of the log held in it. If more weeks than requested are busy enough, --seed draws.
    """
    read = swf.read(trace, lenient=lenient)
    choice = choose(read, processors or machine_size(read), count, utilization, seed)
    stem = trace.name.removesuffix(".gz").removesuffix(".swf")
    files = {
        out / f"{stem}-week-{week.number:03}.swf.gz": swf.encode(
            cut(read, week), f"week {week.number}, from second {week.begin:.15g} of {trace.name} on"
        )
        for week in choice.weeks
    }
    report = msgspec.to_builtins(choice) | {"trace": read.path, "seed": seed}
    files[out / "weeks.json"] = (json_text(report, indent=2) + "\n").encode()
    for path in files:
        check_place(path, make_parent=True)
    replace_all(files)
    if as_json:
        click.echo(json_text(report))
        return
    click.echo(choice.sentence)
    if len(choice.weeks) < count:
        click.echo(
            f"{counted(count, 'week')} requested: no more weeks have that utilization", err=True
        )
    for week in choice.weeks:
        jobs = counted(week.jobs, "job")
        click.echo(f"week {week.number:3}  utilization {week.utilization:.3f}  {jobs}")


@workload.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.argument("to", type=click.Path(path_type=Path))
@click.option(
    "--mix",
    default="high",
    show_default=True,
    help="Percentages of jobs for the levels, such as 80-10-10; or high, med or low.",
)
@click.option(
    "--levels",
    default="-".join(map(str, LEVELS)),
    show_default=True,
    help="Levels of the demand of a process.",
)
@click.option(
    "--capacity",
    type=WholeRange(min=1),
    default=CAPACITY,
    show_default=True,
    help="Capacity of a node.",
)
@click.option("--name", default=NAME, show_default=True, help="Name of the shared resource.")
@seed_option
@lenient_option
@example("reshape workload demands CTC-SP2.swf.gz ctc-high.swf.gz --mix high --seed 1")
def demands(
    trace: Path,
    to: Path,
    mix: str,
    levels: str,
    capacity: int,
    name: str,
    seed: int,
    lenient: bool,
) -> None:
    """Draw the demands of the processes of each job of TRACE for a resource that nodes share.

    TO is the trace with these demands in an extra column, and the capacity of a node in its header.
    The defaults follow GUIM 6.3: MB/s of memory bandwidth. See docs/sharing.md.
    """
    _check_is_trace(to)
    if not name or set(name) & set("= \t"):
        raise click.UsageError(f"--name {name!r} must be a word without =")
    shares = MIXES[mix] if mix in MIXES else _whole_numbers("--mix", mix, "80-10-10")
    try:
        model = Demands(shares, _whole_numbers("--levels", levels, "2000-500"), capacity, name)
    except ValueError as error:
        raise click.UsageError(f"--mix {mix} --levels {levels}: {error}") from None
    check_place(to)
    swf.write(to, model.of(swf.read(trace, lenient=lenient), seed))
    click.echo(f"{to}: demands for {name}, {mix}, seed {seed}")


@workload.command()
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="File.")
@click.option(
    "--days",
    type=FiniteRange(min=0, min_open=True),
    help="Take only the first days of each trace.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    help="Name of the partition of a trace; once for each trace.  [default: names of the files]",
)
@lenient_option
@example("reshape workload merge CTC.swf.gz SDSC.swf.gz --days 120 -o fusion.swf.gz")
def merge(
    traces: tuple[Path, ...], out: Path, days: float | None, names: tuple[str, ...], lenient: bool
) -> None:
    """Merge TRACES into one, each from time 0 on; the partition of a job identifies its trace.

    See docs/sites.md for simulations of several centres.
    """
    _check_is_trace(out)
    if names and len(names) != len(traces):
        raise click.UsageError(
            f"{counted(len(names), 'name')} for {counted(len(traces), 'trace')}; give --name once"
            " for each trace, in their order"
        )
    check_place(out)
    read = [swf.read(trace, lenient=lenient) for trace in traces]
    merged = merged_trace(read, names, inf if days is None else days)
    swf.write(out, merged)
    click.echo(f"{out}: {counted(len(merged), 'job')} of {counted(len(traces), 'trace')}")


def _whole_numbers(option: str, text: str, example_text: str) -> tuple[int, ...]:
    """Read numbers that are separated by ``-``."""
    try:
        return tuple(map(int, text.split("-")))
    except ValueError:
        raise click.UsageError(
            f"{option} {text!r}: write whole numbers, as in {example_text}"
        ) from None


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
    if trace.oddities.first_skipped:
        lines.append(f"first line skipped: {trace.oddities.first_skipped}")
    for name, value in facts.items():
        lines.append(f"{name:20} {value:.6g}" if isinstance(value, float) else f"{name:20} {value}")
    lines.append(f"{'span in days':20} {facts['span_s'] / DAY_S:.1f}")
    return "\n".join(lines)
