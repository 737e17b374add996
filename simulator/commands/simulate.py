"""``reshape simulate``: the schedule of a trace or a workload file under a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
from click.core import ParameterSource

from reshape.cli.helptext import example
from reshape.cli.options import FiniteRange
from reshape.errors import nearest
from scheduler.config import machine_file as platform
from scheduler.config.centres_file import names_centres
from scheduler.config.machine_file import Platform
from scheduler.model.sharing import PenaltyRule, Windows
from scheduler.policies.registry import known, name_of
from scheduler.policies.scenario import Scenario
from scheduler.text import json_text
from scheduler.virtual_clock.collection import no_collection
from simulator.commands.centres import APPLICABLE, simulate_centres
from simulator.commands.options import rule_options, rules_of, scenario_of, set_fields
from simulator.commands.resizable_options import resizability, resizable_options
from simulator.commands.statistics_options import (
    add_statistics,
    asks_for_statistics,
    check_statistics,
    job_values,
    statistics_lines,
    statistics_options,
)
from simulator.commands.usage import Usage
from simulator.engine.sharing import Sharing
from simulator.results import jobs_csv, paraver
from simulator.results.metrics import OF_RESIZABLE
from simulator.results.schedule import Schedule
from simulator.run import predicts, run
from simulator.traces import swf
from simulator.traces.files import check_place, replace_all
from simulator.traces.normalise import (
    LABELS,
    NEEDED,
    CleaningReport,
    Rules,
    machine_size,
    normalise,
)
from simulator.workloads import workload_file
from simulator.workloads.resizable_trace import of_trace

ESTIMATES_EXACT = "exact"
COUNT = "count"
#: Options for workload files; for traces of which no job is resizable; of which some are.
OF_FILES = frozenset(
    ("trace", "processors", "policy", "reservations", "queue_order", "backfill_order", "estimates",
     "kill_at_reservation", "fields", "tau", "out", "as_json", "seed", "statistic", "sample",
     "price")
)  # fmt: skip
OF_CENTRES = frozenset(("assign", "dispatch"))
OF_SHARING = frozenset(("penalty", "overtime", "demand_error"))
OF_RIGID = OF_SHARING | frozenset(
    (
        "event_order",
        "select",
        "machine_file",
        "contiguity_speedup",
        "dispersal_exponent",
        "dispersal",
        "sharing",
        "paraver",
    )
)
WITH_RESIZABLE = frozenset(
    ("speedup", "iterations", "expand_most", "expand_step", "data_mib", "cost", "seed")
)


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--processors", type=click.IntRange(min=1), help="Of the machine (the header's).")
@click.option("--policy", default="easy", show_default=True, help="Scenario or policy, by name.")
@click.option("--reservations", type=click.IntRange(min=0), help="Waiting jobs that hold one.")
@click.option("--queue-order", help="fcfs, sjf, lxwf, priority or another by name.")
@click.option("--backfill-order", help="Order in which jobs are tried behind the first one.")
@click.option("--estimates", help="user, exact (run times), tsafrir, ...; see docs/predictions.md.")
@click.option(
    "--event-order",
    type=click.Choice(["batch", "sequential"]),
    default="batch",
    show_default=True,
    help="One scheduling pass an instant, or one an event.",
)
@click.option(
    "--select",
    default=COUNT,
    show_default=True,
    help="count, or allocate individual processors: first-fit, tree, submesh, ...; see docs.",
)
@click.option(
    "--machine",
    "machine_file",
    type=click.Path(path_type=Path),
    help="Nodes and network, see docs/machines.md; or several centres, see docs/sites.md.",
)
@click.option("--assign", default="less-waittime", show_default=True, help="Centre of each job.")
@click.option("--dispatch", multiple=True, metavar="FIELD=VALUE", help="Of the dispatcher.")
@click.option(
    "--contiguity-speedup",
    type=FiniteRange(min=0, max=1, max_open=True),
    help="Share of its run time that a job saves where its processors are contiguous.",
)
@click.option(
    "--dispersal-exponent",
    type=FiniteRange(min=0),
    help="The farther apart the processors, the less is saved: power of the nearness; see docs.",
)
@click.option("--dispersal", is_flag=True, help="Measure how far apart the processors of jobs are.")
@click.option(
    "--sharing",
    type=click.Choice(get_args(Windows)),
    help="Jobs slow their neighbours on a node down: windows from the table, or at all changes.",
)
@click.option(
    "--penalty",
    type=click.Choice(get_args(PenaltyRule)),
    help="Of a window: demand / capacity - 1, or demand / capacity (the machine's: excess).",
)
@click.option(
    "--overtime",
    type=click.Choice(["kill", "allow"]),
    default="kill",
    show_default=True,
    help="Jobs that sharing prolongs beyond their estimates.",
)
@click.option(
    "--demand-error",
    type=FiniteRange(min=0, max=1),
    default=0.0,
    help="Jobs demand up to this share more or less than they declare; see --seed.",
)
@click.option("--kill-at-reservation", is_flag=True, help="EASY's reservation is enforced.")
@click.option("--set", "fields", multiple=True, metavar="FIELD=VALUE", help="Field of the policy.")
@click.option("--jobs", type=click.IntRange(min=1), help="Only the first ones, by submission.")
@click.option("--tau", type=FiniteRange(min=0, min_open=True), default=60.0, show_default=True)
@statistics_options
@resizable_options
@rule_options
@click.option("--lenient", is_flag=True, help="Leave out malformed lines, and count them.")
@click.option("--out", type=click.Path(path_type=Path), help="Directory for all results.")
@click.option("--swf", "swf_file", type=click.Path(path_type=Path), help="Trace with the waits.")
@click.option("--paraver", is_flag=True, help="Also put a Paraver trace into --out; may be large.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@example(
    "reshape simulate KTH-SP2.swf.gz",
    "reshape simulate HPC2N.swf.gz --policy easy --backfill-order sjf --json",
    "reshape simulate trace.swf --policy conservative --swf waits.swf.gz",
    "reshape simulate trace.swf --policy fcfs-pr --resizable 0.5 --speedup amdahl:serial=0.02",
    "reshape simulate workload.yaml --policy fcfs-pr",
    "reshape simulate trace.swf --machine tree.yaml --select tree --contiguity-speedup 0.25",
    "reshape simulate fusion.swf --machine centres.yaml --assign less-waittime --dispatch ask=2",
    "reshape simulate trace.swf --statistic wait_s=mean,p95 --statistic queued_jobs=max",
    "reshape simulate demands.swf --machine nodes.yaml --sharing table --backfill-order sjf",
)
@no_collection()
def simulate(trace: Path, **options: Any) -> None:
    """Simulate the jobs of TRACE, a file in the Standard Workload Format, plain or gz.

    TRACE may also be a workload file of resizable jobs in YAML, and --resizable makes a share of
    the jobs of a trace resizable. See docs/simulator.md.
    """
    usage = Usage()
    of_file = trace.suffix in workload_file.ENDINGS
    _check_kind(of_file, bool(options["resizable"]))
    at_centres = options["machine_file"] is not None and names_centres(options["machine_file"])
    check_statistics(options, priced=at_centres)
    if of_file or options["resizable"]:
        _simulate_resizable(trace, options, usage)
        return
    if at_centres:
        _check_centres()
        numbers = simulate_centres(trace, options, usage)
        click.echo(json_text.dumps(numbers) if options["as_json"] else as_text(numbers, None))
        return
    rules = rules_of(options, exact=options["estimates"] == ESTIMATES_EXACT)
    chosen = chosen_scenario(options, rules)
    is_counted = (
        options["select"] == COUNT
        and options["sharing"] is None
        and not hasattr(chosen.selection, "place")
    )
    machine_file: Path | None = options["machine_file"]
    for name in OF_CENTRES & _given().keys():
        raise click.UsageError(f"--{name} needs a --machine file that names several centres")
    machine = None if machine_file is None else platform.read(machine_file)
    out: Path | None = options["out"]
    if options["paraver"] and out is None:
        raise click.UsageError("--paraver needs a directory for its files; give --out DIR")
    _check_places(options)
    writes_swf = options["swf_file"] is not None or out is not None
    read = swf.read(trace, fields=_fields(chosen, writes_swf), lenient=options["lenient"])
    if machine is None:
        machine = platform.flat(options["processors"] or machine_size(read))
    schedule = run(
        read,
        machine,
        chosen,
        rules,
        event_order=options["event_order"],
        counted=is_counted,
        first=options["jobs"],
        contiguity_speedup=options["contiguity_speedup"],
        dispersal_exponent=_exponent(options, machine),
        dispersal=options["dispersal"],
        sharing=_sharing(options, machine, read),
    )
    report = schedule.report
    metrics = msgspec.structs.asdict(schedule.metrics(options["tau"]))
    result: dict[str, Any] = {"trace": read.path, "policy": options["policy"]}
    result |= {"processors": machine.processors}
    result |= {name: value for name, value in metrics.items() if name not in OF_RESIZABLE}
    if schedule.fragmentation is not None:
        result |= msgspec.structs.asdict(schedule.fragmentation)
    if schedule.dispersal is not None:
        result |= schedule.dispersal.means()
    if schedule.penalties is not None:
        result |= msgspec.structs.asdict(schedule.penalties)
    if report is not None:
        result |= {"report": msgspec.structs.asdict(report)}
    workload = trace.name.removesuffix(".gz").removesuffix(".swf")
    files: dict[Path, bytes] = {}
    if asks_for_statistics(options):
        selection = COUNT if is_counted else name_of("selection", chosen.selection)
        values = job_values(schedule, options, machine_file or trace, selection)
        add_statistics(values, options, result, files)
    if options["swf_file"] is not None:
        files[options["swf_file"]] = swf_bytes(schedule, read, options["policy"])
    if out is not None:
        files[out / jobs_csv.NAME] = jobs_csv.encode(schedule, workload)
        if options["paraver"]:
            began = (read.declared("UnixStartTime") or 0) + int(schedule.jobs.submitted[0])
            jobs = jobs_csv.JobTable.of(schedule, workload)
            for name, data in paraver.encode(jobs, machine.processors, began).items():
                files[out / name] = data
        files[out / "schedule.swf"] = swf_bytes(schedule, read, options["policy"])
        files[out / "metrics.json"] = (json_text.dumps(result, indent=2) + "\n").encode()
    replace_all(files)
    result |= usage.so_far(len(schedule.jobs))
    click.echo(json_text.dumps(result) if options["as_json"] else as_text(result, report))


def _simulate_resizable(trace: Path, options: dict[str, Any], usage: Usage) -> None:
    """Simulate a workload file, or a trace of which a share is made resizable."""
    rules = rules_of(options, exact=options["estimates"] == ESTIMATES_EXACT)
    chosen = chosen_scenario(options, rules)
    out: Path | None = options["out"]
    _check_places(options)
    result: dict[str, Any] = {"trace": str(trace), "policy": options["policy"]}
    read, report = None, None
    if trace.suffix in workload_file.ENDINGS:
        workload = workload_file.read(trace, options["seed"])
        processors = options["processors"] or workload.processors
        if processors is None:
            raise click.UsageError(f"{trace} names no processors; give --processors")
    else:
        writes_swf = options["swf_file"] is not None or out is not None
        read = swf.read(trace, fields=_fields(chosen, writes_swf), lenient=options["lenient"])
        processors = options["processors"] or machine_size(read)
        jobs, report = normalise(read, processors, rules, labels=predicts(chosen))
        jobs = jobs if options["jobs"] is None else jobs.first(options["jobs"])
        workload = of_trace(jobs, processors, resizability(options))
    schedule = run(workload, processors, chosen)
    result |= {"processors": processors}
    result |= msgspec.structs.asdict(schedule.metrics(options["tau"]))
    if report is not None:
        result |= {"report": msgspec.structs.asdict(report)}
    files: dict[Path, bytes] = {}
    if asks_for_statistics(options):
        selection = name_of("selection", chosen.selection)
        values = job_values(schedule, options, trace, selection)
        add_statistics(values, options, result, files)
    if read is not None and options["swf_file"] is not None:
        files[options["swf_file"]] = swf_bytes(schedule, read, options["policy"])
    if out is not None:
        name = trace.name.removesuffix(".gz").rpartition(".")[0]
        files[out / jobs_csv.NAME] = jobs_csv.encode(schedule, name)
        files[out / "metrics.json"] = (json_text.dumps(result, indent=2) + "\n").encode()
    replace_all(files)
    result |= usage.so_far(len(schedule.jobs))
    click.echo(json_text.dumps(result) if options["as_json"] else as_text(result, report))


def _exponent(options: Mapping[str, Any], machine: Platform) -> float:
    """Exponent of the gain of contiguity; inf without the option."""
    exponent: float | None = options["dispersal_exponent"]
    if exponent is None:
        return inf
    if machine.network is None or options["contiguity_speedup"] is None:
        raise click.UsageError(
            "--dispersal-exponent needs a gain that it changes, and a network; give"
            " --contiguity-speedup and --machine FILE"
        )
    return exponent


def _sharing(options: Mapping[str, Any], machine: Platform, trace: swf.Trace) -> Sharing | None:
    """How nodes are shared, by the options, the machine and the header of the trace."""
    if options["sharing"] is None:
        return None
    amounts = machine.shared_per_node or trace.shared_capacities()
    if not amounts:
        raise click.UsageError(
            "--sharing: neither the machine nor the trace names a shared resource; give --machine"
            " with shared_per_node"
        )
    return Sharing(
        machine.processors_per_node,
        amounts,
        windows=options["sharing"],
        penalty=options["penalty"] or machine.shared_penalty,
        overtime=options["overtime"],
        demand_error=options["demand_error"],
        seed=options["seed"],
    )


def _fields(chosen: Scenario, writes_swf: bool) -> Sequence[str]:
    """Columns of the trace to read."""
    if writes_swf:
        return swf.FIELDS
    return (*NEEDED, *LABELS.values()) if predicts(chosen) else NEEDED


def _check_places(options: Mapping[str, Any]) -> None:
    """Check before the simulation that the results can be written."""
    out: Path | None = options["out"]
    for place in (options["swf_file"], out and out / jobs_csv.NAME):
        if place is not None:
            check_place(place, make_parent=place.parent == out)


def _given() -> dict[str | None, str]:
    """Options on the command line: name of the parameter -> option."""
    context = click.get_current_context()
    return {
        parameter.name: parameter.opts[0]
        for parameter in context.command.params
        if context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    }


def _check_centres() -> None:
    """Refuse options that do not apply to a machine of several centres."""
    for name, option in _given().items():
        if name not in APPLICABLE and not (name or "").startswith("rule_"):
            raise click.UsageError(
                f"{option} does not apply to several centres; leave it out, or set it for each"
                " centre in the machine file"
            )


def _check_kind(of_file: bool, made_resizable: bool) -> None:
    """Refuse options that do not apply to this kind of workload."""
    given = _given()
    for name, option in given.items():
        if name in OF_CENTRES and "machine_file" not in given:
            raise click.UsageError(f"{option} needs --machine with several centres")
        if of_file and name not in OF_FILES:
            raise click.UsageError(f"{option} does not apply to a workload file; leave it out")
        if made_resizable and name in OF_RIGID:
            raise click.UsageError(f"{option} and --resizable exclude each other; leave one out")
        if name in OF_SHARING and "sharing" not in given:
            raise click.UsageError(f"{option} needs --sharing; give it as well")
        if name == "seed" and "demand_error" in given:
            continue
        if not of_file and not made_resizable and name in WITH_RESIZABLE:
            raise click.UsageError(f"{option} needs --resizable; give it as well")


def chosen_scenario(options: dict[str, Any], rules: Rules) -> Scenario:
    """Scenario that the options describe.

    Raises
    ------
    click.UsageError : a wrong name or value, or options that contradict each other.
    """
    changes: dict[str, Any] = {}
    for option, field in (
        ("reservations", "backfill.reservations"),
        ("queue_order", "order"),
        ("backfill_order", "backfill_order"),
    ):
        if options[option] is not None:
            changes[field] = options[option]
    if options["select"] != COUNT:
        changes["selection"] = options["select"]
    if options["estimates"] is not None:
        name, names = options["estimates"], known("estimates")
        if name != ESTIMATES_EXACT and name not in names and ":" not in name:
            offered = nearest(name, (ESTIMATES_EXACT, *names))
            raise click.UsageError(f"unknown estimates {name!r}{offered}")
        changes["estimates"] = "user" if name == ESTIMATES_EXACT else name
    if options["kill_at_reservation"]:
        changes["backfill.kill_at_reservation"] = True
    base = scenario_of(options["policy"], {})
    chosen = scenario_of(base, changes | set_fields(options["fields"]))
    _check(options, rules, base, chosen)
    return chosen


def _check(options: dict[str, Any], rules: Rules, base: Scenario, chosen: Scenario) -> None:
    """Refuse options that contradict each other or would be ignored."""
    asked, named = options["reservations"], base.backfill.reservations
    if asked is not None and named != 1 and asked != named:
        raise click.UsageError(
            f"--policy {options['policy']} is backfilling of "
            f"{'all' if named is None else named} reservations, not of {asked};"
            " give --policy easy with --reservations"
        )
    if options["backfill_order"] is not None and chosen.backfill.reservations != 1:
        raise click.UsageError(
            "--backfill-order needs EASY with 1 reservation; otherwise jobs are tried in the"
            " --queue-order"
        )
    if options["processors"] is not None and options["machine_file"] is not None:
        raise click.UsageError("--machine names the number of processors; leave --processors out")
    if options["contiguity_speedup"] is not None and options["select"] == COUNT:
        raise click.UsageError(
            "--contiguity-speedup with --select count: jobs have no places; give --select tree or"
            " another that allocates individual processors"
        )
    if options["dispersal"] and (options["select"] == COUNT or options["machine_file"] is None):
        raise click.UsageError(
            "--dispersal: jobs have no places in a network; give --machine FILE and --select"
        )
    if getattr(chosen.selection, "needs_network", False) and options["machine_file"] is None:
        raise click.UsageError(
            f"--select {options['select']} needs a machine with a network; give --machine FILE"
        )
    if options["kill_at_reservation"] and rules.overrun != "keep":
        raise click.UsageError(
            f"--kill-at-reservation with --overrun {rules.overrun}: no job exceeds its estimate;"
            " give --overrun keep"
        )


def swf_bytes(schedule: Schedule, trace: swf.Trace, policy: str) -> bytes:
    """The trace with its wait column filled, as a file."""
    note = f"waits simulated by reshape, policy {policy}, {schedule.processors} processors"
    return swf.encode(schedule.trace(trace), note)


def as_text(result: dict[str, Any], report: CleaningReport | None) -> str:
    """Result as text."""
    lines = [] if report is None else [report.sentence]
    shown = {name: value for name, value in result.items() if name not in ("report", "statistics")}
    shown |= statistics_lines(result)
    for name, value in shown.items():
        lines.append(f"{name:22} {f'{value:.10g}' if isinstance(value, float) else value}")
    return "\n".join(lines)
