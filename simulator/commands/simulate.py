"""``reshape simulate``: the schedule of a trace or a workload file under a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isnan
from pathlib import Path
from typing import Any

import click
import msgspec

from reshape.cli.helptext import example
from reshape.collection import no_collection
from scheduler.config import machine_file as platform
from scheduler.config.machine_file import Platform
from scheduler.policies.registry import name_of
from scheduler.policies.scenario import Scenario
from scheduler.policies.selection.first_fit import FirstFit
from scheduler.text import json_text
from simulator.commands.options import rules_of
from simulator.commands.pools import REFUSED, simulate_pools
from simulator.commands.resizable_options import resizability
from simulator.commands.simulate_options import (
    COUNT,
    EXACT,
    OF_CENTRES,
    check_centres,
    check_kind,
    chosen_scenario,
    given,
    simulate_options,
)
from simulator.commands.statistics_options import (
    add_statistics,
    asks_for_statistics,
    check_statistics,
    job_values,
    statistics_lines,
)
from simulator.commands.usage import Usage
from simulator.engine.sharing import Sharing
from simulator.many_centres.centres_file import names_centres
from simulator.results import jobs_csv, paraver
from simulator.results.metrics import OF_RESIZABLE
from simulator.results.notes import notes
from simulator.results.schedule import Schedule
from simulator.run import predicts, rules_of_run, run
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
from simulator.workloads import advance_reservations, workload_file
from simulator.workloads.advance_reservations import PlannedReservation
from simulator.workloads.resizable_trace import of_trace
from simulator.workloads.workload import Workload


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@simulate_options
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
    "reshape simulate trace.swf --pool nodes=0-16,processors=8,time_limit=12:00:00 --pool-wait 30",
)
@no_collection()
def simulate(trace: Path, **options: Any) -> None:
    """Simulate the jobs of TRACE, a file in the Standard Workload Format, plain or gz.

    TRACE may also be a workload file of resizable jobs in YAML, and --resizable makes a share of
    the jobs of a trace resizable. See docs/simulator.md.
    """
    usage = Usage()
    of_file = trace.suffix in workload_file.ENDINGS
    at_centres = options["machine_file"] is not None and names_centres(options["machine_file"])
    check_kind(of_file, bool(options["resizable"]))
    if options["pools"]:
        _simulate_pools(trace, options, usage)
        return
    check_statistics(options, priced=at_centres)
    if (of_file or options["resizable"]) and not at_centres:
        _simulate_resizable(trace, options, usage)
        return
    if at_centres:
        check_centres()
        from simulator.commands.centres import simulate_centres  # a quarter of a short run

        numbers = simulate_centres(trace, options, usage)
        click.echo(json_text.dumps(numbers) if options["as_json"] else as_text(numbers, None))
        return
    rules = rules_of(options, exact=options["estimates"] == EXACT)
    chosen = chosen_scenario(options, rules)
    is_counted = (
        options["select"] == COUNT
        and options["sharing"] is None
        and options["advance_file"] is None
        and chosen.selection == FirstFit()
    )
    machine_file: Path | None = options["machine_file"]
    for name in OF_CENTRES & given().keys():
        raise click.UsageError(f"--{name} needs a --machine file that names several centres")
    machine = None if machine_file is None else platform.read(machine_file)
    out: Path | None = options["out"]
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
        first=options["first"],
        contiguity_speedup=options["contiguity_speedup"],
        dispersal_exponent=_exponent(options, machine),
        dispersal=options["dispersal"],
        sharing=_sharing(options, machine, read),
        advance=_advance(options),
    )
    report = schedule.report
    metrics = msgspec.structs.asdict(schedule.metrics(options["tau"]))
    result: dict[str, Any] = {"trace": read.path, "policy": options["policy"]}
    result |= {"processors": machine.processors}
    result |= {name: value for name, value in metrics.items() if name not in OF_RESIZABLE}
    result |= _of_places(schedule) | _of_reservations(schedule)
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
            files |= _paraver(schedule, read, workload, out)
        files[out / "schedule.swf"] = swf_bytes(schedule, read, options["policy"])
        files[out / "metrics.json"] = (json_text.dumps(result, indent=2) + "\n").encode()
    replace_all(files)
    result |= usage.so_far(len(schedule.jobs))
    click.echo(json_text.dumps(result) if options["as_json"] else as_text(result, report))
    _echo_notes(schedule, chosen, is_rigid=True)


def _echo_notes(schedule: Schedule, chosen: Scenario, *, is_rigid: bool) -> None:
    """Print what the numbers do not show by themselves, beside the results."""
    for note in notes(schedule, chosen, is_rigid=is_rigid):
        click.echo(f"reshape: {note}", err=True)


def _simulate_pools(trace: Path, options: dict[str, Any], usage: Usage) -> None:
    """Simulate a workload on the nodes of pools."""
    for name, option in given().items():
        if name in REFUSED:
            raise click.UsageError(f"{option} does not apply to --pool; leave it out")
    rules = rules_of(options, exact=options["estimates"] == EXACT)
    simulate_pools(trace, options, chosen_scenario(options, rules), rules, usage)


def _simulate_resizable(trace: Path, options: dict[str, Any], usage: Usage) -> None:
    """Simulate a workload file, or a trace of which a share is made resizable."""
    rules = rules_of(options, exact=options["estimates"] == EXACT)
    chosen = chosen_scenario(options, rules)
    out: Path | None = options["out"]
    _check_places(options)
    counts = options["select"] == COUNT
    if counts and "select" in given():
        raise click.UsageError(
            "--select count: resizable jobs get individual processors; give --select first-fit, or"
            " leave it out"
        )
    result: dict[str, Any] = {"trace": str(trace), "policy": options["policy"]}
    read, report = None, None
    machine_file: Path | None = options["machine_file"]
    machine = None if machine_file is None else platform.read(machine_file)
    most = options["processors"] if machine is None else machine.processors
    if trace.suffix in workload_file.ENDINGS:
        workload = workload_file.read(trace, options["seed"])
        processors = most or workload.processors
        if processors is None:
            raise click.UsageError(f"{trace} names no processors; give --processors")
    else:
        writes_swf = options["swf_file"] is not None or out is not None
        read = swf.read(trace, fields=_fields(chosen, writes_swf), lenient=options["lenient"])
        processors = most or machine_size(read)
    machine = platform.flat(processors) if machine is None else machine
    sharing = _sharing(options, machine, read)
    if read is not None:
        workload, report = _made_resizable(read, processors, options, chosen, rules, sharing)
    schedule = run(
        workload,
        machine,
        chosen,
        event_order=options["event_order"],
        counted=None if counts else False,
        contiguity_speedup=options["contiguity_speedup"],
        dispersal_exponent=_exponent(options, machine),
        dispersal=options["dispersal"],
        sharing=sharing,
        advance=_advance(options),
    )
    result |= {"processors": processors}
    result |= msgspec.structs.asdict(schedule.metrics(options["tau"]))
    result |= _of_places(schedule) | _of_reservations(schedule)
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
        if options["paraver"]:
            files |= _paraver(schedule, read, name, out)
        files[out / "metrics.json"] = (json_text.dumps(result, indent=2) + "\n").encode()
    replace_all(files)
    result |= usage.so_far(len(schedule.jobs))
    click.echo(json_text.dumps(result) if options["as_json"] else as_text(result, report))
    _echo_notes(schedule, chosen, is_rigid=not any(job.spec.resizable for job in workload.jobs))


def _made_resizable(
    read: swf.Trace,
    processors: int,
    options: Mapping[str, Any],
    chosen: Scenario,
    rules: Rules,
    sharing: Sharing | None,
) -> tuple[Workload, CleaningReport]:
    """Workload of a trace of which a share is made resizable, and a report on its cleaning."""
    gains = bool(options["contiguity_speedup"])
    rules, kills = rules_of_run(rules, sharing, contiguous_gain=gains)
    jobs, report = normalise(read, processors, rules, labels=predicts(chosen))
    jobs = jobs if options["first"] is None else jobs.first(options["first"])
    return of_trace(jobs, processors, resizability(options), kills=kills), report


def _advance(options: Mapping[str, Any]) -> list[PlannedReservation]:
    """Advance reservations of the file of the options; none without one."""
    file: Path | None = options["advance_file"]
    return [] if file is None else advance_reservations.read(file)


def _of_places(schedule: Schedule) -> dict[str, Any]:
    """What places and neighbours of the jobs amount to, as results."""
    found: dict[str, Any] = {}
    if schedule.fragmentation is not None:
        found |= msgspec.structs.asdict(schedule.fragmentation)
    if schedule.dispersal is not None:
        found |= schedule.dispersal.means()
    if schedule.penalties is not None:
        found |= msgspec.structs.asdict(schedule.penalties)
    return found


def _paraver(
    schedule: Schedule, trace: swf.Trace | None, workload: str, out: Path
) -> dict[Path, bytes]:
    """Files of a Paraver trace."""
    began = 0 if trace is None else trace.declared("UnixStartTime") or 0
    began += int(schedule.jobs.submitted[0])
    jobs = jobs_csv.JobTable.of(schedule, workload)
    files = paraver.encode(jobs, schedule.processors, began)
    return {out / name: data for name, data in files.items()}


def _of_reservations(schedule: Schedule) -> dict[str, Any]:
    """Advance reservations as results."""
    if not schedule.advance:
        return {}
    found = [
        {
            "name": each.name,
            "begin_s": each.begin,
            "end_s": each.end,
            "processors": str(each.processors),
        }
        for each in schedule.advance
    ]
    return {"advance_reservations": found}


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


def _sharing(
    options: Mapping[str, Any], machine: Platform, trace: swf.Trace | None
) -> Sharing | None:
    """How nodes are shared, by the options, the machine and the header of the trace."""
    if options["sharing"] is None:
        return None
    amounts = machine.shared_per_node or ({} if trace is None else trace.shared_capacities())
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
    if options["paraver"] and out is None:
        raise click.UsageError("--paraver needs a directory for its files; give --out DIR")
    for place in (options["swf_file"], out and out / jobs_csv.NAME):
        if place is not None:
            check_place(place, make_parent=place.parent == out)


def swf_bytes(schedule: Schedule, trace: swf.Trace, policy: str) -> bytes:
    """The trace with its wait column filled, as a file."""
    note = f"waits simulated by reshape, policy {policy}, {schedule.processors} processors"
    return swf.encode(schedule.trace(trace), note)


def as_text(result: dict[str, Any], report: CleaningReport | None) -> str:
    """Result as text; a number that does not exist is "-"."""
    lines = [] if report is None else [report.sentence]
    apart = ("report", "statistics", "advance_reservations")
    shown = {name: value for name, value in result.items() if name not in apart}
    shown |= statistics_lines(result)
    for name, value in shown.items():
        if isinstance(value, float):
            value = "-" if isnan(value) else f"{value:.10g}"
        lines.append(f"{name:22} {value}")
    return "\n".join(lines)
