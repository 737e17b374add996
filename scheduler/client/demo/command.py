"""``reshape demo``: run one workload in several ways, and compare the runs.

The metrics of the runs are compared as a table and as JSON, and a page shows both runs.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

import click
import msgspec
from rich.console import Console

from reshape.cli.options import WholeRange, example
from reshape.errors import ConfigError, ReshapeError
from scheduler.client.api.client import read_output
from scheduler.client.demo.workload import (
    FEWEST_PROCESSORS,
    JOBS,
    run_workload,
    shown_progress,
    workload,
)
from scheduler.client.options import json_option
from scheduler.client.web.document import report
from scheduler.client.web.journal_run import MOST_JOBS, recorded_run
from scheduler.journal.journal_reader import reading
from scheduler.policies.scenarios import scenario as find_scenario
from scheduler.protocol.messages import JobInfo
from scheduler.text.job_output import last_lines
from scheduler.text.tables import Table, render


def is_verified(job: JobInfo) -> bool:
    """Whether a job completed and verified its own result."""
    return job.state == "COMPLETED" and job.facts.get("verified") is True


#: Metrics that the simulator predicts, by their names in the table.
PREDICTED = {
    "mean turnaround": "mean_turnaround_s",
    "mean wait": "mean_wait_s",
    "makespan": "makespan_s",
}
LIMITS = (
    "The computing applications (Jacobi, LU) show that resizing works and keeps results correct."
    " They cannot become faster if there are more processors than cores. The synthetic applications"
    " sleep according to a speedup model; the comparison of times relies on them. The simulator"
    " knows the models of the synthetic applications. For the others it takes the iteration times"
    " that the run had; how long starts and resizes take is measured in both runs."
)


class Results(msgspec.Struct, frozen=True):
    """Results of a demo, as written to results.json.

    Parameters
    ----------
    static, resizable : metrics of the runs, by the names of `reshape replay --json`, and
        `jobs_verified`, the number of jobs that verified their own result.
    predicted : run -> the same metrics as the simulator predicts them.
    report : path of the page that shows both runs.
    """

    seed: int
    processors: int
    scenario: str
    static: dict[str, Any]
    resizable: dict[str, Any]
    predicted: dict[str, dict[str, Any]]
    report: str


def summary_table(results: Results) -> Table:
    """Table of the metrics of both runs side by side."""
    both = results.static, results.resizable
    rows: list[tuple[str, ...]] = []
    for label, name in PREDICTED.items():
        foreseen = (results.predicted[run][name] for run in ("static", "resizable"))
        rows.append((label, *_seconds(*(run[name] for run in both))))
        rows.append(("  predicted by the simulator", *_seconds(*foreseen)))
    used = [100 * run["utilization"] for run in both]
    change = f"{used[1] - used[0]:+.1f} points"
    rows.append(("utilisation", *(f"{part:.1f} %" for part in used), change))
    rows.append(("verified", *(f"{run['jobs_verified']} of {run['jobs']}" for run in both), ""))
    for name in ("expansions", "contractions"):
        rows.append((name, *(str(run[name]) for run in both), ""))
    return Table(("", "STATIC", "RESIZABLE", "CHANGE"), rows, frozenset({""}))


def takeaways(results: Results) -> list[str]:
    """Three sentences about a comparison, with its numbers."""
    static, resizable, predicted = results.static, results.resizable, results.predicted
    foreseen = _change_pct(
        *(predicted[run]["mean_turnaround_s"] for run in ("static", "resizable"))
    )
    before_s, after_s = static["mean_turnaround_s"], resizable["mean_turnaround_s"]
    came = _change_pct(before_s, after_s)
    used = [f"{100 * run['utilization']:.0f} %" for run in (static, resizable)]
    verified = static["jobs_verified"] + resizable["jobs_verified"]
    resizes = resizable["expansions"] + resizable["contractions"]
    return [
        f"A job waited {static['mean_wait_s']:.1f} s for the processors that it requests, and"
        f" {resizable['mean_wait_s']:.1f} s under {results.scenario}, where it starts on fewer if"
        " it states a minimum, and expands later.",
        f"From submission to end a job took {after_s:.1f} s instead of {before_s:.1f} s"
        f" ({came:+.0f} %; the simulator predicted {foreseen:+.0f} %), and jobs held {used[1]} of"
        f" the machine instead of {used[0]}.",
        f"The {resizes} resizes on the way changed no result: {verified} of"
        f" {static['jobs'] + resizable['jobs']} runs of programs verified theirs.",
    ]


def _seconds(before: float, after: float) -> tuple[str, str, str]:
    """Cells of two times, and of the change."""
    change = f"{_change_pct(before, after):+.1f} %" if before >= 0.05 else "-"
    return f"{before:.1f} s", f"{after:.1f} s", change


def _change_pct(before: float, after: float) -> float:
    return 100 * (after / before - 1) if before else 0.0


def failures(name: str, jobs: Sequence[JobInfo]) -> list[str]:
    """List the jobs of a run that failed or are not verified, with the end of their output."""
    texts = []
    for job in jobs:
        if is_verified(job):
            continue
        how = "is not verified" if job.state == "COMPLETED" else f"ended as {job.state}"
        code = f"exit code {job.exit_code}:{job.signal}"
        why = f", {job.reason}" if job.reason else ""
        try:
            output = last_lines(read_output(job).decode(errors="replace"))
        except ReshapeError as error:
            output = str(error)
        texts.append(
            f"{name} run: job {job.job} ({' '.join(job.argv)}) {how} ({code}{why})\n"
            f"  {job.output}:\n{indent(output or '(empty)', '    ')}"
        )
    return texts


def write_json(results: msgspec.Struct, folder: Path) -> Path:
    """Write results.json."""
    path = folder / "results.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")
    return path


@click.command()
@click.option(
    "--processors",
    type=WholeRange(min=FEWEST_PROCESSORS),
    default=8,
    show_default=True,
    help="Number of virtual processors.",
)
@click.option(
    "--scenario", default="malleable", show_default=True, help="Scenario of the resizable run."
)
@click.option(
    "--seed",
    type=WholeRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the workload.",
)
@click.option(
    "--jobs", type=WholeRange(min=1), default=JOBS, show_default=True, help="Number of jobs."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="reshape-demo",
    show_default=True,
    help="Directory for the page of both runs, results.json and the output of the jobs.",
)
@json_option
@example("reshape demo --processors 8 --seed 1 --out demo1")
def demo(processors: int, scenario: str, seed: int, jobs: int, out: Path, as_json: bool) -> None:
    """Run a mixed workload of real MPI programs, static and resizable.

    In the first run all jobs wait for the sizes that they request, and keep them (EASY
    backfilling). In the second run they have minima and maxima as well, and --scenario decides on
    their sizes. Both take about two minutes on two cores. The exit code is 1 if a job failed or
    did not verify its result.
    """
    try:
        find_scenario(scenario)
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="'--scenario'") from None
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # as on Ctrl-C
    console = Console(stderr=as_json)
    job_list = workload(processors, seed, jobs)
    runs: dict[str, list[JobInfo]] = {}
    fixed = [job.static for job in job_list]
    for name, its, submitted in (("static", "easy", fixed), ("resizable", scenario, job_list)):
        with shown_progress(console, f"{name} ({its})", processors) as progress:
            runs[name] = run_workload(submitted, processors, its, out / name, progress)
    replays = {name: _replayed(out, name) for name in runs}
    metrics = {
        name: replays[name]["live"] | {"jobs_verified": sum(map(is_verified, done))}
        for name, done in runs.items()
    }
    title = f"Demonstration, static and resizable, seed {seed}"
    results = Results(
        seed=seed,
        processors=processors,
        scenario=scenario,
        static=metrics["static"],
        resizable=metrics["resizable"],
        predicted={name: replay["predicted"] for name, replay in replays.items()},
        report=str(write_page(out, list(runs), title)),
    )
    path = write_json(results, out)
    if as_json:
        click.echo(path.read_text(), nl=False)
    else:
        console.print(f"\n{render(summary_table(results))}\n", highlight=False)
        console.print(LIMITS, highlight=False)
        for number, text in enumerate(takeaways(results), 1):
            console.print(f"{number}. {text}", highlight=False)
        click.echo(f"\n{path}")
        click.echo(f"Open in a browser: {results.report}")
    failed = [text for name, done in runs.items() for text in failures(name, done)]
    for text in failed:
        click.echo(text, err=True)
    sys.exit(1 if failed else 0)


def _replayed(out: Path, name: str) -> Mapping[str, Any]:
    """Measure a run, and predict it from its submissions and the costs of the machine in both.

    Programs that compute on more virtual processors than there are cores have the same speed on any
    size.

    Raises
    ------
    ReshapeError : the journal cannot be replayed.
    """
    static, resizable = str(out / "static"), str(out / "resizable")
    command = [sys.executable, "-m", "reshape", "replay", str(out / name), "--predict", "--json"]
    command += ["--costs", static, "--costs", resizable, "--speedup", "amdahl:serial=1"]
    done = subprocess.run(command, capture_output=True, check=False)
    if not done.stdout:
        raise ReshapeError(f"no prediction of the {name} run: {done.stderr.decode().strip()}")
    replay: dict[str, Any] = msgspec.json.decode(done.stdout)
    return replay


def write_page(folder: Path, names: Sequence[str], title: str) -> Path:
    """Write a page with runs and what was decided; their journals are in folders of their names."""
    runs = []
    for name in names:
        with reading(folder / name) as journal:
            runs.append(recorded_run(journal, name, stories=MOST_JOBS))
    path = folder / "run.html"
    path.write_bytes(report(runs, title))
    return path
