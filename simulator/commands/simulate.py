"""``reshape simulate``: the schedule of a trace or a workload file under a scenario."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any

import click

from reshape.cli.options import HeadedCommand, example
from reshape.collection import no_collection
from scheduler import compiled
from scheduler.text.formats import json_text
from scheduler.text.tables import Table, render
from simulator.commands.simulate_options import (
    HEADINGS,
    Described,
    given,
    simulate_options,
)
from simulator.experiment.run import SCHEDULE, Simulation
from simulator.results import jobs_csv
from simulator.traces.files import check_place, replace_all

#: Columns of the table that compares pools: heading -> (key of the result, format).
_COLUMNS = {
    "ALLOCATIONS": ("allocations", "d"),
    "NODE-HOURS": ("node_hours", ".1f"),
    "USED": ("used_share", ".3f"),
    "TURNAROUND": ("mean_turnaround_s", ".0f"),
    "WAIT": ("mean_wait_s", ".0f"),
    "JOBS": ("jobs", "d"),
    "TOO-LONG": ("too_long", "d"),
    "LOST": ("jobs_lost", "d"),
}


@click.command(
    cls=HeadedCommand,
    headings=HEADINGS,
    context_settings={"max_content_width": 100},
)
@click.argument("trace", type=click.Path(path_type=Path))
@simulate_options
@example(
    "reshape simulate HPC2N.swf.gz --policy easy --backfill-order sjf --json",
    "reshape simulate trace.swf --policy fcfs-pr --resizable 0.5 --speedup amdahl:serial=0.02",
    "reshape simulate trace.swf --machine tree.yaml --select tree --set contiguity=0.25",
    "reshape simulate trace.swf --set jobs.rules.overrun=keep --set backfill.reservations=4",
    "reshape simulate trace.swf --machine centres.yaml --set assign=less-waittime",
    "reshape simulate trace.swf --policy conservative --save experiment.yaml",
    "reshape simulate experiment.yaml --policy easy",
)
@no_collection()
def simulate(trace: Path, **options: Any) -> None:
    """Simulate the jobs of TRACE, a file in the Standard Workload Format, plain or gz.

    TRACE may also be a workload file of resizable jobs, or an experiment file, both in YAML; the
    options change fields of the latter. --set changes the fields without an option of their own:
    docs/simulator.md lists all fields.
    """
    begin = time.monotonic() - _age_s()
    pools: Sequence[str | None] = options["pools"] or (None,)
    _check_results(options, pools)
    described = [Described(trace, options, pool) for pool in pools]
    experiment = described[0].experiment
    if options["save"] is not None:
        experiment.save(options["save"])
    writes_trace = options["swf_file"] is not None or options["out"] is not None
    results: list[dict[str, Any]] = []
    jobs = 0
    for one in described:
        with one.errors():
            run = one.experiment.run(whole_trace=writes_trace)
        jobs += len(run.schedule.jobs)
        results.append(_written(run, options))
    if len(results) == 1:
        result = results[0] | _usage(begin, jobs)
        click.echo(json_text(result) if options["as_json"] else _as_text(result, run))
        report = run.schedule.report
        for note in run.notes:
            if report is None or note != report.sentence:  # which is in the result
                click.echo(f"reshape: {note}", err=True)
        return
    if options["as_json"]:
        whole = {**run.head, "pools": results, **_usage(begin, jobs)}
        click.echo(json_text(whole))
        return
    rows = [
        [*(format(result[key], form) for key, form in _COLUMNS.values()), result["pool"]]
        for result in results
    ]
    click.echo(render(Table([*_COLUMNS, "POOL"], rows, frozenset({"POOL"}))))


def _check_results(options: Mapping[str, Any], pools: Sequence[str | None]) -> None:
    """Check before the simulation that the results can be written."""
    out: Path | None = options["out"]
    if out is not None and len(pools) > 1:
        raise click.UsageError("--out takes the files of one pool; give one --pool")
    if options["save"] is not None and len(pools) > 1:
        raise click.UsageError("--save writes one experiment; give one --pool")
    for name, option in given().items():
        if options["pools"] and name == "swf_file":
            raise click.UsageError(f"{option} does not apply to --pool; leave it out")
    for path in (options["swf_file"], options["save"], out and out / jobs_csv.NAME):
        if path is not None:
            check_place(path, make_parent=path.parent == out)


def _written(run: Simulation, options: Mapping[str, Any]) -> dict[str, Any]:
    """Write the files that the options ask for, and give the numbers."""
    result, out = run.summary, options["out"]
    files: dict[Path, bytes] = {}
    if options["swf_file"] is not None:
        files[options["swf_file"]] = run.swf()
    if out is not None:
        contents = run.files(result)
        files |= {out / name: data for name, data in contents.items()}
        if run.trace is not None and run.pool is None and run.centres is None:
            files[out / SCHEDULE] = run.swf()
    replace_all(files)
    return result


def _as_text(result: Mapping[str, Any], run: Simulation) -> str:
    """Result as text; a number that does not exist is "-"."""
    report = run.schedule.report
    lines = [] if report is None else [report.sentence]
    apart = ("report", "advance_reservations")
    shown = {name: value for name, value in result.items() if name not in apart}
    for name, value in shown.items():
        if isinstance(value, float):
            value = "-" if isnan(value) else f"{value:.10g}"
        lines.append(f"{name:22} {value}")
    return "\n".join(lines)


def _usage(begin: float, jobs: int) -> dict[str, Any]:
    """Seconds since `begin`, jobs a second, memory, and whether the core ran compiled."""
    wall_s = time.monotonic() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "wall_s": round(wall_s, 3),
        "cpu_s": round(time.process_time(), 3),
        "jobs_per_s": round(jobs / wall_s, 1),
        "peak_rss_mib": round(peak / (1 << 20 if sys.platform == "darwin" else 1024), 1),
        "core": compiled.STATE,
    }


def _age_s() -> float:
    """Age of this process in seconds; 0 where the system does not provide it."""
    try:
        with open("/proc/self/stat") as file:
            started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0
