"""Groups on this machine: an mpiexec that forks its processes and dies with its starter."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from reshape.mpi import clean_environment, mpiexec_path
from scheduler.launchers.prctl import die_with_parent


def start_mpiexec(
    environment: Mapping[str, str],
    size: int,
    argv: Sequence[str],
    *,
    cwd: str | None = None,
    output: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start `size` processes of a program under one mpiexec, which dies with this process.

    Parameters
    ----------
    environment : environment of the processes. Variables that tie this process to an mpiexec of
        its own are removed from it.
    size : number of processes, >= 1.
    argv : program and arguments.
    cwd : working directory; that of this process if None.
    output : file descriptor of standard output and error; those of this process if None.

    Raises
    ------
    OSError : the program cannot be started in `cwd`.
    ReshapeError : there is no mpiexec.
    """
    return subprocess.Popen(
        [str(mpiexec_path(environment)), "-launcher", "fork", "-n", str(size), *argv],
        cwd=cwd,
        env=clean_environment(environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - the agent has one Python thread
    )
