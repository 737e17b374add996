"""Workload of the demo, and its run: rigid and resizable MPI programs with random arrivals.

If there are more virtual processors than cores, programs that compute cannot gain from more
processes. The computing applications are therefore small; they show that resizing works. Most jobs
are synthetic: they sleep according to a speedup model, and the comparison of times relies on them.

Each run has a temporary service, which is always ended with all its processes. The progress is a
live table on a terminal, otherwise one line every few seconds.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import psutil
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reshape.errors import ReshapeError
from reshape.topology import Topology
from scheduler.client.api.client import Client, list_jobs
from scheduler.client.background import start, stop
from scheduler.client.columns import ListingFormat
from scheduler.client.requests.submission import prepare
from scheduler.model.procset import ProcSet
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol.messages import JobInfo, JobListing, Submit, Submitted

JOBS = 12
FEWEST_PROCESSORS = 4
#: Mean seconds between two submissions. Sizes grow with the machine, so the load depends on this
#: alone: jobs come somewhat faster than the machine can run them, and most request half of it or
#: more. Static scheduling makes them wait, although processors are idle.
GAP_S = 2.5
#: Shape of the gamma distribution of the gaps; 1 means Poisson arrivals.
GAP_SHAPE = 6.0
#: Speedup model of the synthetic jobs that are resizable.
SPEEDUP = "amdahl:serial=0.03"


class DemoJob(NamedTuple):
    """A job of the workload.

    Parameters
    ----------
    at_s : time of submission, in seconds from the start of the run.
    processors : requested size.
    min_processors, max_processors : smallest and largest size; None for a rigid job.
    walltime_s : walltime, about twice the run time on an idle machine without a resize.
    """

    at_s: float
    argv: list[str]
    processors: int
    min_processors: int | None = None
    max_processors: int | None = None
    topology: Topology | None = None
    walltime_s: float = 60.0

    @property
    def static(self) -> DemoJob:
        """The same job if it keeps the size that it requests."""
        return self._replace(min_processors=None, max_processors=None, topology=None)


Make = Callable[[np.random.Generator, float, int], DemoJob]


def workload(
    processors: int, seed: int, jobs: int = JOBS, *, computing: bool = True
) -> list[DemoJob]:
    """Draw a workload; equal arguments give equal workloads.

    Parameters
    ----------
    processors : number of processors of the machine, >= `FEWEST_PROCESSORS`; sizes are
        proportional to it.
    seed : seed of the numpy Generator.
    jobs : number of jobs.
    computing : whether to include jobs that compute. Without them all run times follow models,
        so that the simulator can predict them.
    """
    rng = np.random.default_rng(seed)
    gaps = rng.gamma(GAP_SHAPE, GAP_S / GAP_SHAPE, jobs)
    gaps[0] = 0.0
    makers = [make for make in _CYCLE if computing or make not in _COMPUTING]
    kinds = [makers[i % len(makers)] for i in range(jobs)]
    rng.shuffle(kinds)
    # The first job starts on an idle machine; a long one has others behind it.
    first = kinds.index(_long)
    kinds[0], kinds[first] = kinds[first], kinds[0]
    arrivals = np.cumsum(gaps).round(2).tolist()
    return [make(rng, at, processors) for make, at in zip(kinds, arrivals, strict=True)]


def _long(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    return _synthetic(rng, at_s, processors, 3 * processors // 4, int(rng.integers(28, 35)))


def _short(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    return _synthetic(rng, at_s, processors, processors // 2, int(rng.integers(6, 11)))


def _synthetic(
    rng: np.random.Generator, at_s: float, processors: int, request: int, iterations: int
) -> DemoJob:
    seconds = _iteration_s(rng)
    words = f"--iterations {iterations} --seconds {seconds} --start-size {request}"
    return DemoJob(
        at_s,
        f"python -m apps.synthetic {words} --speedup {SPEEDUP} --mib 4".split(),
        request,
        _least(processors),
        processors,
        Topology("arbitrary"),
        walltime_s=2 * iterations * seconds + 10,
    )


def _rigid(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    iterations, seconds = int(rng.integers(8, 17)), _iteration_s(rng)
    words = f"--iterations {iterations} --seconds {seconds}"
    return DemoJob(
        at_s,
        f"python -m apps.synthetic {words} --mib 4".split(),
        processors // int(rng.choice([2, 4])),
        walltime_s=2 * iterations * seconds + 10,
    )


def _iteration_s(rng: np.random.Generator) -> float:
    """Draw the seconds of one iteration on the requested size."""
    return round(float(rng.uniform(0.4, 0.6)), 2)


def _least(processors: int) -> int:
    """Smallest size of the resizable jobs on a machine of so many processors."""
    return max(1, processors // 8)


def _lu(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    return DemoJob(
        at_s,
        f"python -m apps.lu --n {rng.choice([384, 512])} --block 32 --repeat 12".split(),
        max(1, processors // 4),
        _least(processors),
        processors // 2,
        Topology("nearly-square"),
    )


def _jacobi(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    return DemoJob(
        at_s,
        f"python -m apps.jacobi --n {rng.choice([384, 512])} --iterations 100 --sweeps 5".split(),
        1 << (max(1, processors // 4).bit_length() - 1),
        _least(processors),
        processors // 2,
        Topology("power-of-2"),
    )


#: Used in turn, so that every workload contains jobs of all kinds.
_CYCLE: tuple[Make, ...] = (_long, _lu, _short, _rigid, _short, _jacobi, _short)
_COMPUTING = (_lu, _jacobi)


PLAIN_EVERY_S = 5.0


#: Called with the seconds since the start, all jobs, and the number of jobs still to submit.
OnProgress = Callable[[float, JobListing, int], None]


@contextlib.contextmanager
def shown_progress(console: Console, title: str, processors: int) -> Iterator[OnProgress]:
    """Display the progress of a run; yield the function that shows the present state.

    Parameters
    ----------
    console : console to write to.
    title : name of the run.
    processors : number of processors of the machine.
    """
    next_at = 0.0

    def show(passed: float, listing: JobListing, coming: int) -> None:
        nonlocal next_at
        jobs = listing.jobs
        running = [job for job in jobs if job.started_at is not None and job.ended_at is None]
        ended = sum(job.ended_at is not None for job in jobs)
        waiting = len(jobs) - len(running) - ended
        busy = sum(len(ProcSet.parse(job.processors)) for job in running)
        line = (
            f"{title}  {passed:5.1f} s  {busy}/{processors} processors busy  "
            f"{len(running)} running, {waiting} waiting, {coming} to submit, {ended} ended"
        )
        if console.is_terminal:
            table = _table(running, listing.now, processors)
            live.update(Group(Text(line, style="bold"), table), refresh=True)
        elif passed >= next_at:
            next_at = passed + PLAIN_EVERY_S
            sizes = "  ".join(f"{job.job}:{job.size}@{job.iteration}" for job in running)
            console.print(f"{line}  {sizes}".rstrip(), highlight=False, soft_wrap=True)

    live = Live(console=console, transient=True, auto_refresh=False)
    with live if console.is_terminal else contextlib.nullcontext():
        yield show


#: Columns of the live table, besides the processors.
_LIVE = ListingFormat.parse("jobid,name,st,time,done,sizes")


def _table(running: list[JobInfo], now: float, processors: int) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in _LIVE.columns:
        justify: Literal["left", "right"] = "left" if column.is_left else "right"
        table.add_column(column.field.heading, justify=justify)
    table.add_column("PROCESSORS", min_width=processors)
    for job in running:
        held = ProcSet.parse(job.processors)
        texts = [column.field.text(job, now) for column in _LIVE.columns]
        table.add_row(*texts, "".join("█" if n in held else "·" for n in range(processors)))
    return table


LOOK_S = 0.25
#: Time limit of a run, s; the default workload takes about a minute.
LONGEST_S = 600.0


def run_workload(
    workload: Sequence[DemoJob],
    processors: int,
    scenario: str,
    folder: Path,
    on_progress: OnProgress,
    fields: Sequence[str] = (),
    *,
    longest_s: float = LONGEST_S,
) -> list[JobInfo]:
    """Run a workload until all jobs have ended.

    Parameters
    ----------
    fields : of the scenario, as in ``--set``.
    folder : working directory of the jobs; the journal is copied to it for `reshape replay`.
    on_progress : called several times a second.
    longest_s : time limit of the run.

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
        Client(directory) as client,
    ):
        return _submit_and_wait(client, workload, folder, on_progress, longest_s)


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
    client: Client,
    workload: Sequence[DemoJob],
    folder: Path,
    on_progress: OnProgress,
    longest_s: float,
) -> list[JobInfo]:
    began = time.monotonic()
    coming = list(workload)
    while True:
        passed = time.monotonic() - began
        while coming and coming[0].at_s <= passed:
            _submit(client, coming.pop(0), folder)
        listing = list_jobs(client, ended=True)
        on_progress(passed, listing, len(coming))
        if not coming and all(job.ended_at is not None for job in listing.jobs):
            return listing.jobs
        if passed > longest_s:
            late = ", ".join(str(job.job) for job in listing.jobs if job.ended_at is None)
            raise ReshapeError(f"jobs {late} have not ended within {longest_s:.0f} s")
        next_at = coming[0].at_s if coming else passed + LOOK_S
        time.sleep(max(0.0, min(LOOK_S, next_at - (time.monotonic() - began))))


def _submit(client: Client, job: DemoJob, folder: Path) -> None:
    submission = prepare(
        job.argv,
        job.processors,
        walltime_s=job.walltime_s,
        min_processors=job.min_processors,
        max_processors=job.max_processors,
        topology=job.topology,
        output="job-%{JOB_ID}.out",
        cwd=folder.absolute(),
    )
    client.ask(Submit(submission=submission), Submitted)


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
