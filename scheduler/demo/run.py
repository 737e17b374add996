"""Run a workload on a temporary service that is always ended with all its processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from reshape.errors import ReshapeError
from reshape.wire.connection import endpoint_of
from scheduler.client.background import start, stop
from scheduler.client.submission import prepare
from scheduler.demo.workload import DemoJob
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol.client import Client
from scheduler.protocol.messages import JobInfo, JobListing, ListJobs, Submit, Submitted

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
) -> list[JobInfo]:
    """Run a workload until all jobs have ended.

    Parameters
    ----------
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
        embedded_service(processors, scenario, folder / "journal.db") as directory,
        Client(endpoint_of(directory)) as client,
    ):
        return _submit_and_wait(client, workload, folder, on_progress)


@contextlib.contextmanager
def embedded_service(processors: int, scenario: str, journal: Path) -> Iterator[Path]:
    """Run a service in a temporary directory, and end it with all its jobs in any case.

    Parameters
    ----------
    journal : file to which the journal is copied at the end.
    """
    directory = Path(tempfile.mkdtemp(prefix="reshape-demo-"))
    process: subprocess.Popen[bytes] | None = None
    options = ["--processors", str(processors), "--scenario", scenario, "--verify"]
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
    client: Client, workload: Sequence[DemoJob], folder: Path, on_progress: OnProgress
) -> list[JobInfo]:
    began = time.monotonic()
    coming = list(workload)
    while True:
        passed = time.monotonic() - began
        while coming and coming[0].at_s <= passed:
            _submit(client, coming.pop(0), folder)
        answer = client.request(ListJobs(ended=True), timeout=30.0)
        assert isinstance(answer, JobListing)
        on_progress(passed, answer, len(coming))
        if not coming and all(job.ended_at is not None for job in answer.jobs):
            return answer.jobs
        if passed > LONGEST_S:
            late = ", ".join(str(job.job) for job in answer.jobs if job.ended_at is None)
            raise ReshapeError(f"jobs {late} have not ended within {LONGEST_S:.0f} s")
        next_at = coming[0].at_s if coming else passed + LOOK_S
        time.sleep(max(0.0, min(LOOK_S, next_at - (time.monotonic() - began))))


def _submit(client: Client, job: DemoJob, folder: Path) -> None:
    submission = prepare(
        job.argv,
        job.processors,
        walltime_s=job.walltime_s,
        max_processors=job.max_processors,
        topology=job.topology,
        output="job-%{JOB_ID}.out",
        environment=os.environ,
        cwd=folder.absolute(),
    )
    answer = client.request(Submit(submission=submission), timeout=30.0)
    assert isinstance(answer, Submitted)


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
