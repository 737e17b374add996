"""One run of the workload on a service of its own, always ended with all its processes."""

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
from reshape.wire.client import Client, endpoint_of
from reshape.wire.messages import JobInfo, Jobs, ListJobs, Submit, Submitted
from scheduler.client.background import start, stop
from scheduler.client.submission import prepare
from scheduler.demo.workload import DemoJob
from scheduler.node.directory import ServiceDirectory

LOOK_S = 0.25
#: A run that takes longer hangs; one of the normal workload takes about a minute.
LONGEST_S = 600.0

Watch = Callable[[float, Jobs, int], None]  # seconds since the start, all jobs, how many to come


def run_workload(
    workload: Sequence[DemoJob], processors: int, scenario: str, folder: Path, watch: Watch
) -> list[JobInfo]:
    """Run a workload to its end.

    Parameters
    ----------
    folder : where the jobs run and leave their output, and the service its journal, for
        `reshape replay`.
    watch : told how things are, several times a second.

    Returns
    -------
    all jobs, in the order of their submission

    Raises
    ------
    ReshapeError : the folder cannot be made, the service cannot be started or is lost, or the run
        takes too long.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReshapeError(f"directory {folder} cannot be made: {error.strerror}") from None
    with (
        embedded_service(processors, scenario, folder / "journal.db") as directory,
        Client(endpoint_of(directory)) as client,
    ):
        return _drive(client, workload, folder, watch)


@contextlib.contextmanager
def embedded_service(processors: int, scenario: str, journal: Path) -> Iterator[Path]:
    """Run a real service in a temporary directory; whatever happens, end it and all its jobs.

    Parameters
    ----------
    journal : file to which its journal goes in the end.
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
            _end_what_is_left(directory, process)
            with contextlib.suppress(FileNotFoundError):  # it did not come so far
                shutil.copyfile(ServiceDirectory(directory).journal, journal)
            shutil.rmtree(directory, ignore_errors=True)


def _drive(
    client: Client, workload: Sequence[DemoJob], folder: Path, watch: Watch
) -> list[JobInfo]:
    began = time.monotonic()
    coming = list(workload)
    while True:
        passed = time.monotonic() - began
        while coming and coming[0].at_s <= passed:
            _submit(client, coming.pop(0), folder)
        answer = client.request(ListJobs(ended=True), timeout=30.0)
        assert isinstance(answer, Jobs)
        watch(passed, answer, len(coming))
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


def _end_what_is_left(directory: Path, process: subprocess.Popen[bytes] | None) -> None:
    """End the service and the agents of this directory, should they not have ended as told.

    An agent that is killed takes the programs it started along.
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
