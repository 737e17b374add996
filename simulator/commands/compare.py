"""``reshape compare``: two runs of the same jobs, job by job."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

import click
import numpy as np

from reshape.cli.options import WholeRange, example
from reshape.errors import ReshapeError
from scheduler.text.formats import counted, json_text
from scheduler.text.tables import Table, render
from simulator.commands.options import json_option
from simulator.results import jobs_csv
from simulator.results.schedule import Schedule
from simulator.traces.trace_jobs import TraceJobs

METRICS = (
    "mean_wait_s", "max_wait_s", "mean_turnaround_s", "mean_bounded_slowdown",
    "max_bounded_slowdown", "makespan_s",
)  # fmt: skip
QUANTILES = {"min": 0, "p5": 5, "p25": 25, "median": 50, "p75": 75, "p95": 95, "max": 100}
EXPERIMENTS = (".yaml", ".yml")


@click.command()
@click.argument("one", metavar="A", type=click.Path(path_type=Path))
@click.argument("other", metavar="B", type=click.Path(path_type=Path))
@click.option(
    "--most",
    type=WholeRange(min=0),
    default=5,
    show_default=True,
    help="Number of jobs to show that gained, and that lost most.",
)
@click.option("--tau", type=float, default=60.0, show_default=True,
              help="Bound of the bounded slowdown, in seconds.")  # fmt: skip
@json_option
@example(
    "reshape compare results/easy results/conservative",
    "reshape compare easy.yaml conservative.yaml --json",
    "reshape compare HPC2N.swf.gz easy.yaml",
)
def compare(one: Path, other: Path, most: int, tau: float, as_json: bool) -> None:
    """Compare two runs of the same jobs: what each job gains or loses from A to B.

    A and B are each a directory of results or a jobs.csv (reshape simulate --out); an experiment
    file, which is simulated; or a trace, of which the recorded waits are taken. Jobs are the same
    if they have the same number.
    """
    if not tau >= 0:
        raise click.UsageError(f"--tau {tau}: must be >= 0")
    first, second = _read(one), _read(other)
    rows, others = _rows(first), _rows(second)
    common = [name for name in rows if name in others]
    if not common:
        raise ReshapeError(f"{one} and {other} have no job in common, by their numbers")
    first = _some(first, [rows[name] for name in common])
    second = _some(second, [others[name] for name in common])
    result = {
        "a": str(one),
        "b": str(other),
        **_compared(common, first, second, most, tau),
        "only_a": len(rows) - len(common),
        "only_b": len(others) - len(common),
    }
    click.echo(json_text(result) if as_json else _as_text(result))


def _rows(run: Schedule) -> dict[str, int]:
    """Index of each job that ran, by its name."""
    names = jobs_csv.job_names(run)
    return {names[row]: row for row in np.flatnonzero(run.ran).tolist()}


def _some(run: Schedule, rows: list[int]) -> Schedule:
    """Some of the jobs, by their indices, without what each held over time."""
    jobs = run.jobs.select(np.array(rows))
    return Schedule(jobs, run.processors, run.started[rows], run.ended[rows], run.killed[rows])


def _compared(
    names: list[str], one: Schedule, other: Schedule, most: int, tau: float
) -> dict[str, Any]:
    """Differences of runs of the jobs of these names, in the same order."""
    later_s = other.started - one.started
    order = np.argsort(later_s, kind="stable")
    quantiles = np.percentile(later_s, [*QUANTILES.values()])
    spread = dict(zip(QUANTILES, quantiles.tolist(), strict=True))
    metrics = (attrgetter(*METRICS)(run.metrics(tau)) for run in (one, other))
    gained = [i for i in order[:most].tolist() if later_s[i] < 0]
    lost = [i for i in order[::-1][:most].tolist() if later_s[i] > 0]
    return {
        "jobs": len(later_s),
        "earlier": int((later_s < 0).sum()),
        "same": int((later_s == 0).sum()),
        "later": int((later_s > 0).sum()),
        "metrics": {
            name: {"a": a, "b": b, "difference": b - a}
            for name, a, b in zip(METRICS, *metrics, strict=True)
        },
        "starts": {"mean": float(later_s.mean())} | spread,
        "gained": [_job(names[i], one, other, i) for i in gained],
        "lost": [_job(names[i], one, other, i) for i in lost],
    }


def _job(name: str, one: Schedule, other: Schedule, row: int) -> dict[str, Any]:
    starts = float(one.started[row]), float(other.started[row])
    return {
        "job": name,
        "processors": int(one.jobs.processors[row]),
        "submit_s": float(one.jobs.submitted[row]),
        "start_a_s": starts[0],
        "start_b_s": starts[1],
        "later_s": starts[1] - starts[0],
    }


def _as_text(result: dict[str, Any]) -> str:
    lines = [f"A  {result['a']}", f"B  {result['b']}", ""]
    rows = [[name, *map(_text, row.values())] for name, row in result["metrics"].items()]
    lines.append(render(Table(["METRIC", "A", "B", "B - A"], rows, frozenset({"METRIC"}))))
    lines.append(
        f"\nOf {counted(result['jobs'], 'job')}, {result['earlier']} start earlier in B,"
        f" {result['same']} at the same time, {result['later']} later."
    )
    for name in ("a", "b"):
        if result[f"only_{name}"]:
            jobs = counted(result[f"only_{name}"], "job")
            lines.append(f"{jobs} started in {name.upper()} only.")
    lines.append("\nStart in B - start in A, s:")
    starts = result["starts"]
    lines.append(render(Table([*starts], [[*map(_text, starts.values())]], frozenset())))
    for key in ("gained", "lost"):
        if result[key]:
            headings = ["JOB", "PROCESSORS", "SUBMITTED", "START IN A", "START IN B", "B - A"]
            rows = [[_text(value) for value in job.values()] for job in result[key]]
            lines.append(f"\nJobs that {key} most:\n{render(Table(headings, rows, frozenset()))}")
    return "\n".join(lines)


def _text(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _read(path: Path) -> Schedule:
    """The run that a path names."""
    if path.suffix in EXPERIMENTS:
        from simulator.experiment.experiment import Experiment  # late: it loads the simulator

        return Experiment.from_file(path).run().schedule
    if path.name.endswith((".swf", ".swf.gz")):
        return _recorded(path)
    return jobs_csv.read(path / jobs_csv.NAME if path.is_dir() else path)[0]


def _recorded(path: Path) -> Schedule:
    """Jobs of a trace with their recorded waits, of which it must have some."""
    from simulator.traces import swf

    fields = ("submit", "wait", "run", "processors", "requested_processors")
    trace = swf.read(path, fields=fields)
    submit, wait, run, held, requested = (trace.columns[name].astype(np.float64) for name in fields)
    kept = (submit >= 0) & (wait >= 0) & (run >= 0)
    if not kept.any():
        raise ReshapeError(f"{path}: no job has a recorded wait (field 3) and run time (field 4)")
    lines = np.flatnonzero(kept)
    lines = lines[np.argsort(submit[lines], kind="stable")]
    started = submit[lines] + wait[lines]
    jobs = TraceJobs.of(
        trace.columns["job"][lines].astype(np.int64),
        submit[lines],
        run[lines],
        np.where(requested > 0, requested, held)[lines].astype(np.int64),
    )
    largest = max(1, int(jobs.processors.max()))
    return Schedule(jobs, largest, started, started + run[lines], jobs.cut)
