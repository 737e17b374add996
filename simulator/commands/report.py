"""``reshape report``: runs as one page that opens without a server."""

from __future__ import annotations

import json
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import click

from reshape.cli.options import WholeRange, example
from reshape.errors import ReshapeError
from scheduler.client.options import WALLTIME
from scheduler.client.web.document import FORMATS, report
from scheduler.client.web.journal_run import recorded_run
from scheduler.client.web.run_data import RunData
from scheduler.journal.clock import noted_ahead_s
from scheduler.journal.journal_reader import JournalReader, reading
from scheduler.policies.scenarios import scenario
from scheduler.text.formats import counted, format_time
from simulator.live_runs import RecordedRun, costs, engine_of, measured
from simulator.results import jobs_csv
from simulator.results.report import run_of_schedule
from simulator.study.runner import is_result_file
from simulator.traces.files import check_place, replace_all

#: The journal in the directory of a service, and the metrics beside the results of a simulation.
JOURNAL, METRICS = "journal.db", "metrics.json"
#: Times of two runs that are compared, with the names of `RunData.totals`, or of a field.
_COMPARED = {
    "mean wait": "wait_s",
    "mean turnaround": "turnaround_s",
    "longest wait": "longest_wait_s",
    "from the first submission to the last end": "now",
}
_NAMES = {"html": "run.html", "perfetto": "run.json", "document": "run.bin"}


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
    help="Show the decisions about this many of the latest jobs of each journal.",
)
@click.option("--policy", help="Simulate a live run under this scenario, and show both.")
@click.option(
    "--last",
    type=WALLTIME,
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
        elif is_result_file(source):
            tables.append(_sweep(source))
        else:
            runs += [_run(each, stories) for each in _single(source)]
    name = title or ", ".join(source.resolve().name for source in sources)
    check_place(out, make_parent=True)
    replace_all({out: report(runs, name, form, tables)})
    click.echo(out)


def _single(source: Path) -> list[Path]:
    """Return the runs of a source: itself, or those in its subfolders."""
    if not source.exists():
        raise ReshapeError(f"there is no {source}: name a directory of a service or of results")
    if source.is_file() or _has_run(source):
        return [source]
    within = [each for each in sorted(source.iterdir()) if each.is_dir() and _has_run(each)]
    if not within:
        needed = f"a {JOURNAL} or a {jobs_csv.NAME}"
        raise ReshapeError(f"{source} has no run: neither it nor a folder in it has {needed}")
    return within


def _has_run(folder: Path) -> bool:
    return (folder / JOURNAL).is_file() or (folder / jobs_csv.NAME).is_file()


def _run(source: Path, stories: int) -> RunData:
    path = source.resolve()
    if path.is_file() or (path / JOURNAL).is_file():
        with reading(source) as journal:
            return recorded_run(journal, path.parent.name if path.is_file() else path.name, stories)
    schedule, workload = jobs_csv.read(source / jobs_csv.NAME)
    metrics = jobs_csv.read_metrics(source / METRICS)
    size = metrics.get("processors")
    if size is not None and not (type(size) is int and 0 < size < 2**31):
        raise ReshapeError(
            f"{source / METRICS}: processors must be a whole number >= 1, got {size!r}"
        )
    if metrics.get("redirected"):  # a redirection group has further ones
        size = max(size or 0, schedule.processors)
    about = path.name, workload, str(metrics.get("policy", ""))
    run = run_of_schedule(schedule, ", ".join(filter(None, dict.fromkeys(about))), size or 0)
    utilization = metrics.get("utilization")
    run.utilization = utilization if isinstance(utilization, float) else None
    return run


def what_if(
    journal: JournalReader, name: str, policy: str, last_s: float = inf
) -> tuple[list[RunData], dict[str, Any]]:
    """Simulate the jobs of a journal that have ended, by the times that were measured of them.

    Parameters
    ----------
    name : of the live run, for people.
    policy : name of the other scenario.
    last_s : leave out jobs that were submitted longer ago, s.

    Returns
    -------
    runs : live and simulated; the same job has the same number in both. Times count from the
        earliest submission on.
    table : of the means of both, as `scheduler.client.web.document.report` takes them.

    Raises
    ------
    ReshapeError : there is no such scenario, the journal is not complete, or no such job has ended.
    """
    alternative = scenario(policy)
    batches, _ = journal.readable_batches()
    recorded = RecordedRun.of(batches)
    since = (batches[-1].events[0].at if batches else 0.0) - last_s
    jobs = [job for job in recorded.jobs if job.submitted_at >= since]
    if not jobs:
        raise ReshapeError(f"{name}: no job has started and ended in this time")
    in_order = sorted(jobs, key=lambda job: job.submitted_at)
    kept = {job.id for job in jobs}
    pairs = zip(recorded.jobs, measured(recorded), strict=True)
    simulated = [each for job, each in pairs if job.id in kept]
    engine = engine_of(recorded, alternative, simulated, costs=costs(recorded), allocations=True)
    schedule = engine.run()
    origin = in_order[0].submitted_at + noted_ahead_s(journal)
    live = recorded_run(journal, f"{name}, as it was", only=kept, origin=origin)
    live.origin, live.now = None, max(row.ended or 0.0 for row in live.jobs)
    other = run_of_schedule(schedule, f"simulated under {policy}", live.processors, live.hosts)
    rows = {row.number: row for row in live.jobs}
    for row, job in zip(other.jobs, in_order, strict=True):
        same = rows[job.id]
        row.number, row.label, row.name, row.user = job.id, same.label, same.name, same.user
    runs = [live, other]
    for run in runs:
        run.utilization = run.held_s / (run.processors * run.now) if run.now else 0.0
    return runs, {
        "title": f"The same {counted(len(jobs), 'job')} under {policy}",
        "heads": ["", *(run.name for run in runs), "change"],
        "rows": _comparison(live, other),
    }


def _comparison(live: RunData, other: RunData) -> list[list[str]]:
    """Return means of both and the change, a row each."""
    rows = []
    for title, name in _COMPARED.items():
        before, after = ((run.totals | {"now": run.now})[name] for run in (live, other))
        change = after / before - 1 if before else nan
        texts = ["-" if isnan(seconds) else format_time(seconds) for seconds in (before, after)]
        rows.append([title, *texts, "-" if isnan(change) else f"{100 * change:+.0f} %"])
    used = [100 * (run.utilization or 0.0) for run in (live, other)]
    texts = [f"{part:.1f} %" for part in used]
    return [*rows, ["utilisation", *texts, f"{used[1] - used[0]:+.1f} points"]]


def _sweep(source: Path) -> dict[str, Any]:
    """Read the results of a sweep as a table: a row for each point, with its axes and metrics."""
    points = []
    lines = source.read_bytes().rpartition(b"\n")[0]  # the sweep may be writing the last one
    for number, line in enumerate(lines.splitlines(), 1):
        try:
            run = json.loads(line)
            points.append({**run["parameters"], **run["result"]})
        except (ValueError, KeyError, TypeError):
            raise ReshapeError(f"{source}:{number}: is not a point of a sweep") from None
    heads = list(dict.fromkeys(name for point in points for name in point))
    rows = [[_shown(point.get(name)) for name in heads] for point in points]
    return {"title": source.name, "heads": heads, "rows": rows}


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)
