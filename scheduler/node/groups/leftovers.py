"""What an agent that was killed has left on its node: processes and shared memory.

The kernel ends each mpiexec with its agent, and mpiexec's processes end with it. Processes that
left this tree survive. The next agent of the node ends them before it reports its processors. If
the service ends instead, it removes what agents on its host have left.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

from scheduler.node.directory import ServiceDirectory
from scheduler.node.groups import mpi_memory
from scheduler.node.groups.job_cgroups import end_left
from scheduler.node.groups.processes import AGENT_VARIABLE, is_alive

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
    killed: set[psutil.Process] = set()  # they have no environment while they end
    while left := {*_processes_of(agent), *filter(is_alive, killed)}:
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
        killed |= left
        time.sleep(0.05)
    mpi_memory.remove(mpi_files)


def remove_all(directory: ServiceDirectory, nodes: Iterable[str]) -> None:
    """Remove what killed agents have left on the host of a service whose jobs have all ended.

    An agent that ended by itself has left nothing.

    Parameters
    ----------
    nodes : those on this host whose agents have ended.
    """
    memory = directory.memory
    for node in nodes:
        record = memory / f"mpi-files-{node}"
        if record.exists():
            end_left(memory / f"cgroup-{node}")
            end_processes(f"{directory.name}/{node}")
            mpi_memory.MpiFiles(record).remove_left()
            record.unlink(missing_ok=True)
    for job in directory.jobs_with_folder():
        shutil.rmtree(directory.shm(job), ignore_errors=True)
    directory.job_access.unlink(missing_ok=True)
    with suppress(OSError):  # an agent that was started by hand uses it
        memory.rmdir()


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
