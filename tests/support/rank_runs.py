"""One rank without mpiexec, as hydra starts it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from scheduler.node.launching.launcher import MpiexecStart, rank_command


def start_rank(
    argv: Sequence[str], size: int = 1, **variables: str
) -> tuple[MpiexecStart, subprocess.Popen[str]]:
    """Start a program as a rank of so many, in the place of an mpiexec.

    The texts of variables may contain `{report}`, the descriptor for reports.
    """
    processes: list[subprocess.Popen[str]] = []

    def fork(descriptors: list[int]) -> int:
        report = descriptors[1]
        named = {name: text.format(report=report) for name, text in variables.items()}
        process = subprocess.Popen(
            rank_command(argv),
            env=os.environ | {"RESHAPE_REPORT": str(report)} | named,
            pass_fds=[report],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        processes.append(process)
        return process.pid

    start = MpiexecStart(fork, size)
    return start, processes[0]


def run_rank(
    argv: Sequence[str], size: int = 1, **variables: str
) -> tuple[MpiexecStart, subprocess.CompletedProcess[str]]:
    """Run a program as a rank of so many until it ends, and read what it reports."""
    start, process = start_rank(argv, size, **variables)
    output, errors = process.communicate()
    start.read_reports()
    start.close()
    return start, subprocess.CompletedProcess(argv, process.returncode, output, errors)
