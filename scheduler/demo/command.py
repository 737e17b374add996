"""``reshape demo``: run one workload in several ways, and compare the runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import click
import msgspec
from rich.console import Console

from reshape.cli.options import WholeRange, example
from reshape.errors import ConfigError, ReshapeError
from scheduler.demo.picture import Panel, draw, save
from scheduler.demo.report import (
    Predicted,
    Results,
    RunMetrics,
    as_json,
    failures,
    measure,
    print_report,
    write_json,
)
from scheduler.demo.run import RunProgress, run_workload
from scheduler.demo.workload import FEWEST_PROCESSORS, JOBS, KINDS, DemoJob, workload
from scheduler.journal.journal_reader import reading
from scheduler.policies.scenarios import scenario as find_scenario
from scheduler.protocol.messages import JobInfo
from scheduler.web.document import report
from scheduler.web.journal_run import ALL_STORIES, recorded_run

STATIC = "easy"
RESIZABLE = "malleable"


@click.command()
@click.option(
    "--processors",
    type=WholeRange(min=FEWEST_PROCESSORS),
    default=8,
    show_default=True,
    help="Number of virtual processors.",
)
@click.option(
    "--scenario", default=RESIZABLE, show_default=True, help="Scenario of the resizable run."
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
    help="Directory for pictures, results.json and the output of the jobs.",
)
@click.option("--json", "as_json_", is_flag=True, help="Write the results as JSON.")
@example("reshape demo --processors 8 --seed 1 --out demo1")
def demo(processors: int, scenario: str, seed: int, jobs: int, out: Path, as_json_: bool) -> None:
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
    signal.signal(signal.SIGTERM, _terminated)
    failed = _compare_with_static(processors, scenario, seed, jobs, out, as_json_)
    for text in failed:
        click.echo(text, err=True)
    sys.exit(1 if failed else 0)


def _compare_with_static(
    processors: int, scenario: str, seed: int, jobs: int, out: Path, as_json_: bool
) -> list[str]:
    """Run the workload static and resizable; return a text for each job that failed."""
    console = Console(stderr=as_json_)
    job_list = workload(processors, seed, jobs)
    runs: dict[str, list[JobInfo]] = {}
    fixed = [job.static for job in job_list]
    for name, its, submitted in (("static", STATIC, fixed), ("resizable", scenario, job_list)):
        with RunProgress(console, f"{name} ({its})", processors) as progress:
            runs[name] = run_workload(submitted, processors, its, out / name, progress)
    metrics = {name: measure(done, processors) for name, done in runs.items()}
    pictures = _draw(job_list, runs, metrics, processors, scenario, seed, out)
    results = Results(
        seed=seed,
        processors=processors,
        scenario=scenario,
        static=metrics["static"],
        resizable=metrics["resizable"],
        predicted={name: _predict(out, name) for name in runs},
        pictures=[str(path) for path in pictures],
        report=str(_write_report(list(runs), out, seed)),
    )
    path = write_json(results, out)
    if as_json_:
        click.echo(as_json(results))
    else:
        print_report(console, results, job_list, runs["static"], runs["resizable"])
        console.print(f"\n{', '.join(results.pictures)}, {path}", highlight=False, soft_wrap=True)
        console.print(f"Open in a browser: {results.report}", highlight=False, soft_wrap=True)
    return [text for name, done in runs.items() for text in failures(name, done)]


class _Replayed(msgspec.Struct):
    """What is of use here in the answer of ``reshape replay --predict``."""

    predicted: Predicted


def _predict(out: Path, name: str) -> Predicted:
    """Let the simulator predict a run from its submissions and the costs of the machine in both.

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
    return msgspec.json.decode(done.stdout, type=_Replayed).predicted


def _write_report(names: Sequence[str], out: Path, seed: int) -> Path:
    """Write a page with both runs and what was decided."""
    runs = []
    for name in names:
        with reading(out / name) as journal:
            runs.append(recorded_run(journal, name, stories=ALL_STORIES))
    path = out / "run.html"
    path.write_bytes(report(runs, f"Demonstration, static and resizable, seed {seed}"))
    return path


def _draw(
    jobs: Sequence[DemoJob],
    runs: dict[str, list[JobInfo]],
    metrics: dict[str, RunMetrics],
    processors: int,
    scenario: str,
    seed: int,
    out: Path,
) -> list[Path]:
    names = {"static": f"static ({STATIC})", "resizable": f"resizable ({scenario})"}
    panels = []
    for run, its in metrics.items():
        text = (
            f"{names[run]}: mean turnaround {its.mean_turnaround_s:.1f} s, "
            f"utilisation {100 * its.utilization:.0f} %, makespan {its.makespan_s:.0f} s"
        )
        if its.expansions:
            text += f", {its.expansions} x expanded, {its.contractions} x contracted"
        begin = min(job.submitted_at for job in runs[run])
        panels.append(Panel(text, runs[run], processors, begin))
    kinds = {
        info.job: job.kind
        for kind in KINDS
        for info, job in zip(runs["static"], jobs, strict=True)
        if job.kind == kind
    }
    title = (
        f"{len(jobs)} MPI jobs on {processors} processors, the same workload twice (seed {seed})"
    )
    return save(draw(panels, kinds, title), out, "gantt")


def _terminated(number: int, frame: FrameType | None) -> None:
    """Exit as on Ctrl-C, so that the context managers end the service and its jobs."""
    sys.exit(128 + number)
