"""``reshape simulate --pool``: a machine whose nodes a batch system grants to an elastic pool."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from reshape.errors import ReshapeError
from reshape.key_values import key_values
from scheduler.policies.scenario import Scenario
from scheduler.pools.options import KEYS, PoolOptions, parse_pool_options
from scheduler.text import json_text
from scheduler.text.tables import Table, render
from simulator.commands.resizable_options import resizability
from simulator.commands.usage import Usage
from simulator.pools.waits import read_waits
from simulator.results import jobs_csv
from simulator.run import predicts
from simulator.traces import swf
from simulator.traces.files import check_place, replace_all
from simulator.traces.normalise import CleaningReport, Rules, TraceJobs, normalise
from simulator.workloads import workload_file
from simulator.workloads.resizable_trace import of_trace
from simulator.workloads.workload import Workload

if TYPE_CHECKING:  # `simulate` imports this module for its options, also without pools
    from simulator.pools.pooled_site import EndedAllocation
    from simulator.pools.run import PoolRun

Command = TypeVar("Command", bound=Callable[..., Any])
ALLOCATIONS = "allocations.csv"
#: Options that do not apply, because the nodes are those of the pool.
REFUSED = frozenset(
    ("processors", "machine_file", "event_order", "assign", "dispatch", "sharing",
     "contiguity_speedup", "dispersal_exponent", "dispersal", "paraver", "statistic", "sample",
     "price", "swf_file", "kill_at_reservation", "advance_file")
)  # fmt: skip
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


def pool_options(command: Command) -> Command:
    """Add the options that describe pools to a command."""
    for option in (
        click.option(
            "--pool-wait",
            default="0",
            metavar="TIME|TRACE",
            show_default=True,
            help="Wait of an allocation in the batch system, or a trace with waits; see --seed.",
        ),
        click.option(
            "--pool",
            "pools",
            multiple=True,
            metavar="NAME=VALUE,...",
            help="The nodes come from an elastic pool: nodes=1-8,time_limit=2:00:00,processors=4, "
            "...; several pools are compared. See docs/pool.md.",
        ),
    ):
        command = option(command)
    return command


def simulate_pools(
    trace: Path,
    options: Mapping[str, Any],
    chosen: Scenario,
    rules: Rules,
    usage: Usage,
) -> None:
    """Simulate a workload for each of the pools, and print what came of it.

    Raises
    ------
    click.UsageError : a value of an option is wrong.
    """
    from simulator.pools.run import run_pool

    pools = [_parse(text) for text in options["pools"]]
    out: Path | None = options["out"]
    if out is not None and len(pools) > 1:
        raise click.UsageError("--out takes the files of one pool; give one --pool")
    if out is not None:
        check_place(out / jobs_csv.NAME, make_parent=True)
    try:
        waits = read_waits(options["pool_wait"], lenient=options["lenient"])
    except ReshapeError as error:
        raise click.UsageError(f"--pool-wait: {error}") from None
    read = None
    if trace.suffix not in workload_file.ENDINGS:
        read = swf.read(trace, lenient=options["lenient"])
    results: list[dict[str, Any]] = []
    jobs = 0
    for text, pool in zip(options["pools"], pools, strict=True):
        workload, report = _workload(trace, read, options, pool, chosen, rules)
        found = run_pool(workload, chosen, pool, waits, options["seed"] or 0)
        jobs += len(found.schedule.jobs)
        results.append(_numbers(found, options["tau"], report) | {"pool": text})
        if out is not None:
            replace_all(_files(out, trace, results[-1], found))
    head = {"trace": str(trace), "policy": options["policy"], "pool_wait": options["pool_wait"]}
    _print(head, results, usage.so_far(jobs), as_json=options["as_json"])


def _parse(text: str) -> PoolOptions:
    try:
        return parse_pool_options(key_values(text.split(","), KEYS))
    except ValueError as error:
        raise click.UsageError(f"--pool {text}: {error}") from None


def _workload(
    trace: Path,
    read: swf.Trace | None,
    options: Mapping[str, Any],
    pool: PoolOptions,
    chosen: Scenario,
    rules: Rules,
) -> tuple[TraceJobs | Workload, CleaningReport | None]:
    """Jobs for the nodes of a pool."""
    if read is None:
        return workload_file.read(trace, options["seed"]), None
    processors = pool.max_nodes * pool.processors
    jobs, report = normalise(read, processors, rules, labels=predicts(chosen))
    jobs = jobs if options["first"] is None else jobs.first(options["first"])
    if options["resizable"]:
        return of_trace(jobs, processors, resizability(dict(options))), report
    return jobs, report


def _numbers(found: PoolRun, tau: float, report: CleaningReport | None) -> dict[str, Any]:
    """Metrics of the schedule and of the pool, by name."""
    result: dict[str, Any] = {"processors": found.schedule.processors}
    result |= msgspec.structs.asdict(found.schedule.metrics(tau))
    result |= msgspec.structs.asdict(found.metrics)
    return result if report is None else result | {"report": msgspec.structs.asdict(report)}


def _files(out: Path, trace: Path, result: Mapping[str, Any], found: PoolRun) -> dict[Path, bytes]:
    """Contents of the files of ``--out``."""
    name = trace.name.removesuffix(".gz").rpartition(".")[0]
    return {
        out / jobs_csv.NAME: jobs_csv.encode(found.schedule, name),
        out / ALLOCATIONS: encode_allocations(found.allocations),
        out / "metrics.json": (json_text.dumps(result, indent=2) + "\n").encode(),
    }


def encode_allocations(allocations: Sequence[EndedAllocation]) -> bytes:
    """Write a line for each allocation, in the order of their ends; times in seconds."""
    from simulator.pools.pooled_site import EndedAllocation

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(EndedAllocation.__struct_fields__)
    for each in allocations:
        values = msgspec.structs.asdict(each) | {"names": " ".join(each.names)}
        writer.writerow("" if value is None else value for value in values.values())
    return text.getvalue().encode()


def _print(
    head: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    usage: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """Print one result with all of its numbers, or a table that compares several."""
    if as_json:
        whole = {**head, **results[0], **usage}
        if len(results) > 1:
            whole = {**head, "pools": results, **usage}
        click.echo(json_text.dumps(whole))
        return
    if len(results) == 1:
        for name, value in {**head, **results[0], **usage}.items():
            if name != "report":
                text = f"{value:.10g}" if isinstance(value, float) else value
                click.echo(f"{name:22} {text}")
        return
    rows = [
        [*(format(result[key], form) for key, form in _COLUMNS.values()), result["pool"]]
        for result in results
    ]
    click.echo(render(Table([*_COLUMNS, "POOL"], rows, frozenset({"POOL"}))))
