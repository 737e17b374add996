"""A job that a test drives (`scheduler.client.trial.driver`), and plain runs of a program."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import psutil

from reshape.files.job_folder import SLOT_PREFIX
from reshape.mpi import clean_environment, mpiexec_path
from reshape.wire.identity import PATIENCE_VARIABLE
from scheduler.client.trial.driver import JOB, PATIENCE_S, Group, TrialDriver
from scheduler.node.leftovers import remove_mpi_files
from scheduler.protocol import messages as m

__all__ = ["JOB", "TIMEOUT_S", "Driver", "Group", "processes", "run"]

TIMEOUT_S = PATIENCE_S


def run(size: int, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program under mpiexec, without a service."""
    process = subprocess.Popen(
        [str(mpiexec_path()), "-n", str(size), sys.executable, *argv],
        env=clean_environment(os.environ) | {"OMP_NUM_THREADS": "1"} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, err = process.communicate()
    remove_mpi_files()
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def processes(group: Group) -> list[int]:
    """Process numbers of the ranks of a group: the children of mpiexec's proxies."""
    found = psutil.Process(group.process.pid).children(recursive=True)
    return [p.pid for p in found if "python" in p.name()]


class Driver(TrialDriver):
    """A driver of a Python program, which prints the output of the groups if the test fails.

    Parameters
    ----------
    argv : the program, without the interpreter.
    patient : whether the job waits for answers at resize points as long as they take.
    environment : variables of all groups.

    Attributes
    ----------
    welcome : the answer to a job that starts.
    latest : the latest request at a resize point.
    answers_ports, confirms_reports : False: as a service that ends at this moment.
    report_count : number of reports that have arrived, repeated ones included.
    """

    def __init__(
        self,
        folder: Path,
        argv: Sequence[str],
        shm: Path | None = None,
        patient: bool = True,
        **environment: str,
    ) -> None:
        command = [sys.executable, *map(str, argv)]
        patience = {PATIENCE_VARIABLE: str(PATIENCE_S)} if patient else {}
        super().__init__(folder, command, None, environment | patience)
        self.shm = shm or self.shm
        self.welcome = m.Welcome()
        self.latest: m.AtResizePoint | None = None
        self.answers_ports = self.confirms_reports = True
        self.report_count = 0

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is not None:
            for group in self.groups.values():
                print(f"--- group {group.number}, exit {group.process.returncode}\n{group.text}")

    def on(self, peer: bytes, message: m.Message) -> m.Message | None:
        """Take a message of the job, and answer it as the test wants."""
        answer = super().on(peer, message)
        if isinstance(message, m.Hello):
            return self.welcome
        if isinstance(message, m.AtResizePoint):
            self.latest = message
        elif isinstance(message, m.JoinPort):
            return answer if self.answers_ports else None
        elif isinstance(message, m.ResizeReport):
            self.report_count += 1
            return answer if self.confirms_reports else None
        return answer

    def end_service(self) -> None:
        """Close the socket, as a service that ends."""
        self._socket.close()

    def begin_service(self) -> None:
        """Open the socket again."""
        self._listen()

    @property
    def segments(self) -> list[str]:
        """Names of the files in the shared memory of the job on all hosts."""
        files = (path.name for folder in self.folders for path in folder.iterdir())
        return sorted(name for name in files if not name.startswith(SLOT_PREFIX))

    def expand(self, size: int, **environment: str) -> m.ResizeReport:
        """Start a group and join it."""
        return self.join(self.ready(size, **environment))

    def finish(self) -> str:
        """Answer the job until all groups have ended with success; return their output."""
        self.serve(lambda: self.has_ended)
        for group in self.groups.values():
            group.check_success()
        return "".join(group.text for group in self.groups.values())

    def assemble(self, *groups: Group) -> None:
        """Let groups that start or join together connect to each other, the first one first."""
        for group in groups[1:]:

            def may_connect(group: Group = group) -> bool:
                return group.peer != b"" and any(p.group == group.number for p in self.ports)

            self.serve(may_connect, still=True)
            port = next(port for port in self.ports if port.group == group.number)
            self.send_to(group, m.Connect(port=port.port))
