"""Groups on this machine: an mpiexec that forks its processes and dies with its starter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from reshape.errors import ReshapeError
from reshape.mpi import clean_environment, mpiexec_path
from scheduler.launchers.prctl import die_with_parent

_STARTER = str(Path(__file__).with_name("starter.py"))


class MpiexecStart:
    """An mpiexec that is being started, or runs.

    Attributes
    ----------
    process : becomes mpiexec when its output is open and its working directory is entered.
    """

    def __init__(self, process: subprocess.Popen[bytes], status: int) -> None:
        self.process = process
        self._status = status
        self._text = b""
        self._is_decided = False

    @property
    def is_pending(self) -> bool:
        """Whether it is still unknown if mpiexec could be started."""
        self._read()
        return not self._is_decided

    @property
    def failure(self) -> str:
        """Reason why mpiexec could not be started; empty if there is none."""
        self._read()
        return self._text.decode(errors="replace")

    def _read(self) -> None:
        while not self._is_decided:
            try:
                part = os.read(self._status, 4096)
            except BlockingIOError:
                return
            self._text += part
            if not part:
                self.close()

    def close(self) -> None:
        """Stop waiting for the outcome of the start."""
        if not self._is_decided:
            self._is_decided = True
            os.close(self._status)


def start_mpiexec(
    environment: Mapping[str, str],
    size: int,
    argv: Sequence[str],
    *,
    cwd: str = "",
    output: str = "",
) -> MpiexecStart:
    """Start `size` processes of a program under one mpiexec, which dies with this process.

    This function never waits for a file system of the job: a process of its own opens the output
    and enters the working directory.

    Parameters
    ----------
    environment : environment of the processes. Variables that tie this process to an mpiexec of
        its own are removed from it.
    size : number of processes, >= 1.
    argv : program and arguments.
    cwd : working directory; that of this process if empty.
    output : file for standard output and error; those of this process if empty.

    Raises
    ------
    OSError : no process can be started.
    ValueError : an argument or a variable contains a null character, or the name of a variable
        contains "=".
    """
    try:
        mpiexec = str(mpiexec_path({}))
    except ReshapeError:
        mpiexec = "mpiexec"  # searched on the PATH of the job, by the new process
    read, write = os.pipe()
    os.set_blocking(read, False)
    command = [mpiexec, "-launcher", "fork", "-n", str(size), *argv]
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", _STARTER, str(write), cwd, output, *command],
            env=clean_environment(environment),
            stdin=subprocess.DEVNULL,
            pass_fds=[write],
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - the agent has one Python thread
        )
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(write)
    return MpiexecStart(process, read)
