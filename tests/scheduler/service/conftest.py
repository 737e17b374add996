"""A real service in a directory of its own, ended with all its processes after each test."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from command_line import invoke
from process_words import words_of
from told import end_file
from waiting import LIMIT_S, wait_until

from reshape.errors import ReshapeError
from scheduler.client import background
from scheduler.journal.journal_reader import reading
from scheduler.journal.replay import compare
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.protocol.client import connect

BIN = Path(sys.executable).parent


class Served:
    """A service under test, with requests that tests need."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.place = ServiceDirectory(directory)
        self.endpoint = ""  #: of the latest start; the directory may forget it at the end
        self.work = directory.parent / "work"
        self.work.mkdir(exist_ok=True)
        self.options: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start the service; without options, with those of its last start."""
        if options:
            chosen = {"--scenario", "--config"} & {*options}
            # Tests of other things than policies know the steps of `steady`.
            rules = [] if chosen else ["--scenario", "steady"]
            self.options = ["--kill-wait", "2", *rules, *options]
        earlier, self.process = self.process, background.start(self.directory, self.options)
        self.endpoint = self.place.endpoint
        if earlier is not None:  # it has ended, but perhaps not been waited for
            earlier.wait()

    def command(self, name: str, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command of `reshape` for this service, which ends with this exit code."""
        return invoke(*name.split(), "--dir", self.directory, *words, code=code, cwd=self.work)

    def answer(self, name: str, *words: object, code: int = 0) -> str:
        """What `command` prints."""
        done = self.command(name, *words, code=code)
        return done.stdout + done.stderr

    def kill(self) -> None:
        """Kill the service."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def kill_all(self) -> None:
        """Kill the service and all that it has started."""
        killed = self.processes()
        for process in killed:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if self.process is not None:
            self.kill()
        psutil.wait_procs(killed, LIMIT_S)

    def ask(self, message: m.Message, timeout: float = LIMIT_S) -> m.Message:
        with connect(self.directory) as client:
            return client.request(message, timeout)

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
        assert isinstance(answer, m.JobListing)
        return answer.jobs[0]

    def wait(self, number: int) -> m.JobInfo:
        """Wait until a job has ended."""
        answer = self.ask(m.Wait(job=number))
        assert isinstance(answer, m.JobListing)
        return answer.jobs[0]

    def let_end(self, *numbers: int) -> None:
        """Tell jobs that they may end (`told`)."""
        for number in numbers:
            (self.work / end_file(number)).touch()

    def finish(self, number: int) -> m.JobInfo:
        """Tell a job that it may end, and wait until it has."""
        self.let_end(number)
        return self.wait(number)

    def until(self, number: int, state: str) -> m.JobInfo:
        """Wait until a job is in a state."""
        return self.when(number, lambda job: job.state == state)

    def when(self, number: int, condition: Callable[[m.JobInfo], object]) -> m.JobInfo:
        """Wait until a condition holds for a job; fail if the job has ended without it."""

        def holds() -> m.JobInfo | None:
            job = self.job(number)
            if condition(job):
                return job
            assert job.ended_at is None, f"ended: {job}\n{self.output(number)}"
            return None

        job = wait_until(holds, lambda: f"still {self.job(number)}\n{self.output(number)}")
        assert job is not None
        return job

    def story(self, number: int) -> str:
        answer = self.ask(m.Explain(job=number))
        assert isinstance(answer, m.Explanation)
        return "\n".join(line.text for line in answer.lines)

    def output(self, number: int) -> str:
        path = self.work / f"reshape-{number}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def check_replay(self) -> None:
        """The core decides the same again for all events of the journal."""
        with reading(self.place.journal) as records:
            found = compare(records.batches())
        assert found.difference is None, "\n".join(found.difference.lines)

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
                belongs = process.environ().get("RESHAPE_SERVER") == self.endpoint
                serves = agents and str(self.directory) in process.cmdline()
            except (psutil.Error, OSError):
                continue
            if belongs or serves:
                found.append(process)
        return found

    def agent_pid(self, node: str = "local") -> int:
        """Return the process number of the agent of a node."""
        for process in self.processes():
            if {"agent", node} <= set(words_of(process)):
                return process.pid
        raise AssertionError(f"there is no agent of {node}")

    def segments(self) -> list[str]:
        """Return the shared-memory folders of the jobs of this service."""
        if not (self.directory / "memory-folder").exists():  # it was never started
            return []
        return [path.name for path in self.place.memory.glob("job-*")]

    def end(self) -> None:
        """End the service and check that nothing of it is left."""
        try:
            if self.process is not None and self.process.poll() is None:
                background.stop(self.directory, kill=True)
                self.process.wait(LIMIT_S)
            wait_until(lambda: not self.processes(), lambda: f"left behind: {self.processes()}")
        finally:
            self.kill_all()
        assert not self.segments()
        if (self.directory / "memory-folder").exists():  # an agent that was killed leaves files
            shutil.rmtree(self.place.memory, ignore_errors=True)

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
    with contextlib.ExitStack() as stack:

        def make(directory: Path) -> Served:
            served = Served(directory)
            stack.callback(end, served)
            return served

        def end(served: Served) -> None:
            if served.process is not None and served.process.poll() is not None:
                served.kill_all()  # the test has killed the service, and its agents continue
            served.end()

        yield make


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A service that a test starts with its own options."""
    service = Served(tmp_path / "service")
    yield service
    service.end()


@pytest.fixture
def service(served: Served) -> Served:
    """A service of 8 processors with the resizing scenario."""
    served.start("--processors", "8")
    return served


class Shared:
    """One service for the tests of a module, replaced after a test that ended or killed it."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._served: Served | None = None
        self._parts: set[int] = set()  # process numbers of the service and its agents

    def get(self) -> Served:
        """Return a service without jobs; start one if there is none."""
        if self._served is None:
            served = Served(self._factory.mktemp("shared") / "service")
            self._served = served
            served.start("--processors", "8")
            self._parts = {process.pid for process in served.processes()}
        return self._served

    def settle(self) -> None:
        """End what a test has left running; keep the service if it is as it was."""
        served = self._served
        if served is None:
            return
        if self._parts <= {process.pid for process in served.processes()}:
            answer = served.ask(m.ListJobs())
            assert isinstance(answer, m.JobListing)
            for job in answer.jobs:
                with contextlib.suppress(ReshapeError):  # a task has ended with its array
                    served.ask(m.ChangeJobs.one(job.job, m.CancelJob()))
            for job in answer.jobs:
                served.wait(job.job)
            wait_until(
                lambda: (
                    served.free() == 8
                    and not served.processes(agents=False)
                    and not served.segments()
                ),
                lambda: served.processes(agents=False),
            )
        else:
            self.end()

    def end(self) -> None:
        """End the service, if there is one."""
        served, self._served = self._served, None
        if served is not None:
            served.end()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """Service of a module."""
    made = Shared(tmp_path_factory)
    yield made
    made.end()


@pytest.fixture
def shared_service(shared: Shared) -> Iterator[Served]:
    """A service as `service`, which other tests of the module use too.

    It has no jobs that run or wait; numbers of jobs do not begin at 1.
    """
    yield shared.get()
    shared.settle()
