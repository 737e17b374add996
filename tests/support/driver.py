"""A job that a test drives (`scheduler.trial.driver`), and plain runs of a program."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from reshape.mpi import clean_environment, mpiexec_path
from reshape.wire import messages as m
from scheduler.trial.driver import JOB, PATIENCE_S, Group, LibraryMemory, TrialDriver

__all__ = ["JOB", "TIMEOUT_S", "Driver", "Group", "LibraryMemory", "run"]

TIMEOUT_S = PATIENCE_S


def run(size: int, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program under mpiexec, without a service."""
    memory = LibraryMemory()
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
    memory.clean()
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


class Driver(TrialDriver):
    """A driver of a Python program, which prints the output of the groups if the test fails.

    Parameters
    ----------
    argv : the program, without the interpreter.
    patient : whether the job waits for answers at resize points as long as they take.
    environment : variables of all groups.
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
        patience_s = PATIENCE_S if patient else None
        super().__init__(folder, command, shm, patience_s, environment=environment)

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

    def assemble(self, *groups: Group) -> None:
        """Let groups that start or join together connect to each other, the first one first."""
        for group in groups[1:]:

            def may_connect(group: Group = group) -> bool:
                return group.peer != b"" and any(p.group == group.number for p in self.ports)

            self.serve(may_connect, still=True)
            port = next(port for port in self.ports if port.group == group.number)
            self.send_to(group, m.Connect(port=port.port))
