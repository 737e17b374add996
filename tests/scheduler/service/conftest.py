"""A real service in a directory of its own, ended with all its processes after each test."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from reshape.errors import ReshapeError
from reshape.wire import messages as m
from scheduler.client import background
from scheduler.client.asking import ask
from scheduler.node.directory import ServiceDirectory

BIN = Path(sys.executable).parent


class Served:
    """A service under test, with requests that tests need."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.place = ServiceDirectory(directory)
        self.work = directory.parent / "work"
        self.work.mkdir(exist_ok=True)
        self.options: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start the service; without options, with those of its last start."""
        self.options = list(options) or self.options
        self.process = background.start(self.directory, self.options)

    def kill(self) -> None:
        """Kill the service."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def ask(self, message: m.Message, timeout: float = 20.0) -> m.Message:
        return ask(self.directory, message, timeout)

    def submit(
        self, argv: Sequence[str], processors: int = 1, walltime_s: float = 600.0, **more: object
    ) -> int:
        environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        submission = m.Submission(
            argv=list(argv),
            processors=processors,
            walltime_s=walltime_s,
            cwd=str(self.work),
            environment=environment,
            **more,  # type: ignore[arg-type]
        )
        answer = self.ask(m.Submit(submission=submission))
        assert isinstance(answer, m.Submitted)
        return answer.job

    def job(self, number: int) -> m.JobInfo:
        answer = self.ask(m.ListJobs(job=number))
        assert isinstance(answer, m.Jobs)
        return answer.jobs[0]

    def wait(self, number: int, timeout: float = 60.0) -> m.JobInfo:
        answer = self.ask(m.Wait(job=number), timeout)
        assert isinstance(answer, m.Jobs)
        return answer.jobs[0]

    def until(self, number: int, state: str, timeout: float = 30.0) -> m.JobInfo:
        """Wait until a job is in a state."""
        return self.when(number, lambda job: job.state == state, timeout)

    def when(
        self, number: int, condition: Callable[[m.JobInfo], bool], timeout: float = 30.0
    ) -> m.JobInfo:
        """Wait until a condition holds for a job."""
        end = time.monotonic() + timeout
        while not condition(job := self.job(number)):
            assert time.monotonic() < end, f"still {job}\n{self.output(number)}"
            time.sleep(0.05)
        return job

    def story(self, number: int) -> str:
        answer = self.ask(m.Explain(job=number))
        assert isinstance(answer, m.Explanation)
        return "\n".join(line.text for line in answer.lines)

    def output(self, number: int) -> str:
        path = self.work / f"reshape-{number}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def free(self) -> int:
        answer = self.ask(m.ServerInfo())
        assert isinstance(answer, m.Info)
        return answer.free

    def processes(self, *, agents: bool = True) -> list[psutil.Process]:
        """Return all processes of this service: itself, its agents, and what they started."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                belongs = process.environ().get("RESHAPE_SERVER") == self.place.endpoint
                serves = agents and str(self.directory) in process.cmdline()
            except (psutil.Error, OSError):
                continue
            if belongs or serves:
                found.append(process)
        return found

    def agent_pid(self, node: str = "local") -> int:
        """Return the process number of the agent of a node."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):  # a process of a job that has just ended
                if {"agent", node} <= set(process.cmdline()):
                    return process.pid
        raise AssertionError(f"there is no agent of {node}")

    def segments(self) -> list[str]:
        """Return the shared-memory folders of the jobs of this service."""
        if not (self.directory / "memory-folder").exists():  # it was never started
            return []
        return [path.name for path in self.place.memory.glob("job-*")]

    def end(self) -> None:
        """End the service and check that nothing of it is left."""
        if self.process is not None and self.process.poll() is None:
            background.stop(self.directory, kill=True)
            self.process.wait(10)
        deadline = time.monotonic() + 15
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        listed = [(process.pid, process.cmdline()) for process in left]
        for process in left:
            process.send_signal(signal.SIGKILL)
        assert not listed, f"left behind: {listed}"
        assert not self.segments()

    def mpi_segments(self) -> set[Path]:
        """Return the shared memory that the MPI library of the jobs maps now."""
        maps = "".join(_read(Path(f"/proc/{process.pid}/maps")) for process in self.processes())
        return {Path("/dev/shm") / name for name in re.findall(r"/dev/shm/(mpich_shm_\w+)", maps)}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@pytest.fixture
def new_served() -> Iterator[Callable[[Path], Served]]:
    """Function that makes services in given directories; they are ended after the test."""
    made: list[Served] = []

    def make(directory: Path) -> Served:
        made.append(Served(directory))
        return made[-1]

    try:
        yield make
    finally:
        for service in made:
            if service.process is not None and service.process.poll() is not None:
                for process in service.processes():
                    process.kill()
            service.end()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A service that a test starts with its own options."""
    service = Served(tmp_path / "service")
    try:
        yield service
    finally:
        try:
            service.end()
        except ReshapeError:
            for process in service.processes():
                process.kill()
            raise


@pytest.fixture
def service(served: Served) -> Served:
    """A service of 8 processors with the resizing scenario."""
    served.start("--processors", "8")
    return served
