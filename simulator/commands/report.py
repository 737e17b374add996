"""``reshape report``: runs as one page that opens without a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import click

from reshape.cli.options import WholeRange, example
from reshape.errors import ReshapeError
from scheduler.client.options import Walltime
from scheduler.client.web.document import FORMATS, report
from scheduler.client.web.journal_run import recorded_run
from scheduler.client.web.run_data import RunData
from scheduler.journal.journal_reader import reading
from simulator.commands.options import JOURNAL, METRICS, metrics_file
from simulator.results import jobs_csv
from simulator.results.report import run_of_schedule
from simulator.traces.files import check_place, replace_all
from simulator.what_if import what_if

_NAMES = {"html": "run.html", "perfetto": "run.json", "document": "run.bin"}
#: The file of a sweep starts with this.
_LINE = b'{"run":'


@click.command("report")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write.  [default: run.html, run.json or run.bin]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="html",
    show_default=True,
    help="A page; a trace for ui.perfetto.dev with a track for each processor; or the document"
    " that a page draws.",
)
@click.option("--title", help="Title of the page.  [default: the names of the sources]")
@click.option(
    "--stories",
    type=WholeRange(min=0),
    default=2000,
    show_default=True,
    metavar="NUMBER",
    help="Tell the decisions about this many jobs of each journal, the latest ones.",
)
@click.option("--policy", help="Simulate a live run under this scenario, and show both.")
@click.option(
    "--last",
    type=Walltime(),
    help="With --policy: leave out jobs that were submitted longer ago than this.",
)
@example(
    "reshape report ~/.reshape -o run.html",
    "reshape report easy conservative -o both.html",
    "reshape report ~/.reshape --policy easy --last 6h -o whatif.html",
)
def report_command(
    sources: tuple[Path, ...],
    out: Path | None,
    form: str,
    title: str | None,
    stories: int,
    policy: str | None,
    last: float | None,
) -> None:
    """Write runs as one page: who ran where and when, and why.

    A source is the directory of a service, a journal, the results of reshape simulate --out, a
    folder with several of these, or the file of a sweep. Runs of several sources are one below the
    other on the same axis of time. The page needs no server and no network.
    """
    if last is not None and policy is None:
        raise click.UsageError("--last applies to a simulation: give --policy")
    out = out or Path(_NAMES[form])
    runs: list[RunData] = []
    tables: list[dict[str, Any]] = []
    for source in sources:
        if policy is not None:
            with reading(source) as journal:
                name = source.resolve().name
                both, table = what_if(journal, name, policy, inf if last is None else last)
            runs += both
            tables.append(table)
        elif is_sweep(source):
            tables.append(_sweep(source))
        else:
            runs += [_run(each, stories) for each in _single(source)]
    name = title or ", ".join(source.resolve().name for source in sources)
    check_place(out, make_parent=True)
    replace_all({out: report(runs, name, form, tables)})
    click.echo(out)


def _single(source: Path) -> Iterator[Path]:
    """Yield the runs of a source: itself, or those in its subfolders."""
    if not source.exists():
        raise ReshapeError(f"there is no {source}: name a directory of a service or of results")
    if source.is_file() or _has_run(source):
        yield source
        return
    within = sorted(each for each in source.iterdir() if each.is_dir() and _has_run(each))
    if not within:
        raise ReshapeError(
            f"{source} has no run: neither it nor a folder in it has a {JOURNAL} or a"
            f" {jobs_csv.NAME}"
        )
    yield from within


def _has_run(folder: Path) -> bool:
    return (folder / JOURNAL).is_file() or (folder / jobs_csv.NAME).is_file()


def _run(source: Path, stories: int) -> RunData:
    if source.is_file() or (source / JOURNAL).is_file():
        folder = source.resolve().parent if source.is_file() else source.resolve()
        with reading(source) as journal:
            return recorded_run(journal, folder.name, stories)
    schedule, workload = jobs_csv.read(source / jobs_csv.NAME)
    metrics = metrics_file(source / METRICS)
    size = metrics.get("processors")
    parts = (source.resolve().name, workload, str(metrics.get("policy", "")))
    run = run_of_schedule(
        schedule,
        ", ".join(part for part in dict.fromkeys(parts) if part),
        size if isinstance(size, int) else 0,
    )
    utilization = metrics.get("utilization")
    run.utilization = utilization if isinstance(utilization, float) else None
    return run


def is_sweep(source: Path) -> bool:
    """Whether a file has the results of a sweep, a line of JSON each."""
    if not source.is_file():
        return False
    with source.open("rb") as file:
        return file.read(len(_LINE)) == _LINE


def _sweep(source: Path) -> dict[str, Any]:
    """Read the results of a sweep as a table: a row for each point, with its axes and metrics."""
    try:
        lines = source.read_bytes().splitlines()
    except OSError as error:
        raise ReshapeError(f"{source} cannot be read: {error.strerror}") from None
    points = []
    for number, line in enumerate(lines, 1):
        try:
            run = json.loads(line)
            points.append({**run["parameters"], **run["result"]})
        except (ValueError, KeyError, TypeError):
            if number < len(lines):  # the sweep may be writing the last one
                raise ReshapeError(f"{source}:{number}: is not a point of a sweep") from None
    heads = list(dict.fromkeys(name for point in points for name in point))
    rows = [[_shown(point.get(name)) for name in heads] for point in points]
    return {"title": source.name, "heads": heads, "rows": rows}


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)
