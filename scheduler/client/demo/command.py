"""``reshape demo``: run one workload in several ways, and compare the runs.

Each run has a temporary service, which is always ended with all its processes. The progress is a
live table on a terminal, otherwise one line every few seconds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType, TracebackType

import click
import msgspec
import psutil
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reshape.cli.options import WholeRange, example
from reshape.errors import ConfigError, ReshapeError
from reshape.wire.connection import endpoint_of
from scheduler.client.background import start, stop
from scheduler.client.columns import running_s, sizes_text
from scheduler.client.demo.report import (
    Predicted,
    Results,
    as_json,
    failures,
    measure,
    print_report,
    write_json,
)
from scheduler.client.demo.workload import FEWEST_PROCESSORS, JOBS, DemoJob, workload
from scheduler.client.submission import prepare
from scheduler.client.web.document import report
from scheduler.client.web.journal_run import ALL_STORIES, recorded_run
from scheduler.journal.journal_reader import reading
from scheduler.model.procset import ProcSet
from scheduler.node.directory import ServiceDirectory
from scheduler.policies.scenarios import scenario as find_scenario
from scheduler.protocol.client import ServiceConnection, expect
from scheduler.protocol.messages import JobInfo, JobListing, ListJobs, Submit, Submitted

PLAIN_EVERY_S = 5.0


class RunProgress:
    """Display the progress of a run; a context manager.

    Parameters
    ----------
    console : console to write to.
    title : name of the run.
    processors : number of processors of the machine.
    """

    def __init__(self, console: Console, title: str, processors: int) -> None:
        self._console, self._title, self._processors = console, title, processors
        self._next = 0.0
        self._live = (
            Live(console=console, transient=True, auto_refresh=False)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> RunProgress:
        """Start the live display."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the live display."""
        if self._live is not None:
            self._live.stop()

    def __call__(self, passed: float, listing: JobListing, coming: int) -> None:
        """Show the current state.

        Parameters
        ----------
        passed : seconds since the start of the run.
        listing : all jobs submitted so far.
        coming : number of jobs still to submit.
        """
        jobs = listing.jobs
        running = [job for job in jobs if job.started_at is not None and job.ended_at is None]
        ended = sum(job.ended_at is not None for job in jobs)
        waiting = len(jobs) - len(running) - ended
        busy = sum(len(ProcSet.parse(job.processors)) for job in running)
        line = (
            f"{self._title}  {passed:5.1f} s  {busy}/{self._processors} processors busy  "
            f"{len(running)} running, {waiting} waiting, {coming} to submit, {ended} ended"
        )
        if self._live is not None:
            table = _table(running, listing.now, self._processors)
            self._live.update(Group(Text(line, style="bold"), table), refresh=True)
        elif passed >= self._next:
            self._next = passed + PLAIN_EVERY_S
            sizes = "  ".join(f"{job.job}:{job.size}@{job.iteration}" for job in running)
            self._console.print(f"{line}  {sizes}".rstrip(), highlight=False, soft_wrap=True)


def _table(running: list[JobInfo], now: float, processors: int) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("JOB", "NAME", "ST", "TIME", "ITERATION", "SIZES"):
        table.add_column(
            heading, justify="right" if heading in ("JOB", "TIME", "ITERATION") else "left"
        )
    table.add_column("PROCESSORS", min_width=processors)
    for job in running:
        held = ProcSet.parse(job.processors)
        table.add_row(
            str(job.job),
            job.name,
            job.code,
            f"{running_s(job, now):.0f} s",
            str(job.iteration),
            sizes_text(job),
            "".join("█" if number in held else "·" for number in range(processors)),
        )
    return table


LOOK_S = 0.25
#: Time limit of a run in seconds; the default workload takes about a minute.
LONGEST_S = 600.0

#: Called with the seconds since the start, all jobs, and the number of jobs still to submit.
OnProgress = Callable[[float, JobListing, int], None]


def run_workload(
    workload: Sequence[DemoJob],
    processors: int,
    scenario: str,
    folder: Path,
    on_progress: OnProgress,
    fields: Sequence[str] = (),
) -> list[JobInfo]:
    """Run a workload until all jobs have ended.

    Parameters
    ----------
    fields : of the scenario, as in ``--set``.
    folder : working directory of the jobs; the journal is copied to it for `reshape replay`.
    on_progress : called several times a second.

    Returns
    -------
    all jobs, in the order of their submission.

    Raises
    ------
    ReshapeError : the folder cannot be created, the service cannot be started or is lost, or the
        run exceeds its time limit.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReshapeError(f"directory {folder} cannot be created: {error.strerror}") from None
    with (
        embedded_service(processors, scenario, folder / "journal.db", fields) as directory,
        ServiceConnection(endpoint_of(directory)) as client,
    ):
        return _submit_and_wait(client, workload, folder, on_progress)


@contextlib.contextmanager
def embedded_service(
    processors: int, scenario: str, journal: Path, fields: Sequence[str] = ()
) -> Iterator[Path]:
    """Run a service in a temporary directory, and end it with all its jobs in any case.

    Parameters
    ----------
    journal : file to which the journal is copied at the end.
    fields : of the scenario, as in ``--set``.
    """
    directory = Path(tempfile.mkdtemp(prefix="reshape-demo-"))
    process: subprocess.Popen[bytes] | None = None
    options = ["--processors", str(processors), "--scenario", scenario, "--verify"]
    options += [word for field in fields for word in ("--set", field)]
    try:
        process = start(directory, options)
        yield directory
    finally:
        try:
            with contextlib.suppress(ReshapeError):
                stop(directory, kill=True)
        finally:
            _kill_remaining(directory, process)
            with contextlib.suppress(FileNotFoundError):  # the service had no journal yet
                shutil.copyfile(ServiceDirectory(directory).journal, journal)
            shutil.rmtree(directory, ignore_errors=True)


def _submit_and_wait(
    client: ServiceConnection, workload: Sequence[DemoJob], folder: Path, on_progress: OnProgress
) -> list[JobInfo]:
    began = time.monotonic()
    coming = list(workload)
    while True:
        passed = time.monotonic() - began
        while coming and coming[0].at_s <= passed:
            _submit(client, coming.pop(0), folder)
        answer = expect(JobListing, client.request(ListJobs(ended=True), timeout=30.0))
        on_progress(passed, answer, len(coming))
        if not coming and all(job.ended_at is not None for job in answer.jobs):
            return answer.jobs
        if passed > LONGEST_S:
            late = ", ".join(str(job.job) for job in answer.jobs if job.ended_at is None)
            raise ReshapeError(f"jobs {late} have not ended within {LONGEST_S:.0f} s")
        next_at = coming[0].at_s if coming else passed + LOOK_S
        time.sleep(max(0.0, min(LOOK_S, next_at - (time.monotonic() - began))))


def _submit(client: ServiceConnection, job: DemoJob, folder: Path) -> None:
    submission = prepare(
        job.argv,
        job.processors,
        walltime_s=job.walltime_s,
        min_processors=job.min_processors,
        max_processors=job.max_processors,
        topology=job.topology,
        output="job-%{JOB_ID}.out",
        environment=os.environ,
        cwd=folder.absolute(),
    )
    expect(Submitted, client.request(Submit(submission=submission), timeout=30.0))


def _kill_remaining(directory: Path, process: subprocess.Popen[bytes] | None) -> None:
    """Kill the service and the agents of this directory that still run.

    The programs that an agent started die with it.
    """
    left = [process.pid] if process is not None and process.poll() is None else []
    for other in psutil.process_iter(["cmdline"]):
        words = other.info["cmdline"] or []
        if "--dir" in words and str(directory) in words:
            left.append(other.pid)
    for pid in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()
    if process is not None:
        process.wait()


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
    help="Directory for the page of both runs, results.json and the output of the jobs.",
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
    title = f"Demonstration, static and resizable, seed {seed}"
    results = Results(
        seed=seed,
        processors=processors,
        scenario=scenario,
        static=metrics["static"],
        resizable=metrics["resizable"],
        predicted={name: _predict(out, name) for name in runs},
        report=str(write_page(out, list(runs), title)),
    )
    path = write_json(results, out)
    if as_json_:
        click.echo(as_json(results))
    else:
        print_report(console, results, job_list, runs["static"], runs["resizable"])
        console.print(f"\n{path}", highlight=False, soft_wrap=True)
        console.print(f"Open in a browser: {results.report}", highlight=False, soft_wrap=True)
    return [text for name, done in runs.items() for text in failures(name, done)]


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
    return msgspec.convert(msgspec.json.decode(done.stdout)["predicted"], Predicted)


def write_page(folder: Path, names: Sequence[str], title: str) -> Path:
    """Write a page with runs and what was decided; their journals are in folders of their names."""
    runs = []
    for name in names:
        with reading(folder / name) as journal:
            runs.append(recorded_run(journal, name, stories=ALL_STORIES))
    path = folder / "run.html"
    path.write_bytes(report(runs, title))
    return path


def _terminated(number: int, frame: FrameType | None) -> None:
    """Exit as on Ctrl-C, so that the context managers end the service and its jobs."""
    sys.exit(128 + number)
