"""What an agent that was killed has left on its node: processes and shared memory of MPI libraries.

The kernel ends each mpiexec with its agent, and mpiexec's processes end with it. Processes that
left this tree survive. The next agent of the node ends them before it reports its processors.
"""

from __future__ import annotations

import logging
import os
import time

import psutil

from scheduler.node import mpi_memory
from scheduler.node.processes import AGENT_VARIABLE, is_alive

log = logging.getLogger(__name__)

_REPORT_EVERY_S = 10.0


def end_processes(agent: str) -> None:
    """Kill all processes of earlier agents of this name, and wait until they have ended.

    Parameters
    ----------
    agent : value of the variable RESHAPE_AGENT that marks the processes.
    """
    reported = -_REPORT_EVERY_S
    mpi_files: set[str] = set()
    while left := _processes_of(agent):
        if time.monotonic() - reported >= _REPORT_EVERY_S:
            reported = time.monotonic()
            pids = ", ".join(str(process.pid) for process in left)
            log.warning("ending processes that an earlier agent has left: %s", pids)
        mpi_files |= mpi_memory.mapped_by(process.pid for process in left)
        for process in left:
            try:
                process.kill()
            except psutil.Error:
                continue
        time.sleep(0.05)
    mpi_memory.remove(mpi_files)


def _processes_of(agent: str) -> list[psutil.Process]:
    """Processes of this user that carry the mark of an agent, and members of their sessions."""
    marked: list[psutil.Process] = []
    unmarked: list[tuple[psutil.Process, int]] = []
    for process in psutil.process_iter():
        try:
            if process.uids().real != os.getuid() or process.pid == os.getpid():
                continue
            mark = process.environ().get(AGENT_VARIABLE)
            session = os.getsid(process.pid)
        except (psutil.Error, OSError):
            continue
        if mark == agent:
            marked.append(process)
        elif mark is None:
            unmarked.append((process, session))
    leaders = {process.pid for process in marked}
    marked += [process for process, session in unmarked if session in leaders]
    return [process for process in marked if is_alive(process)]
