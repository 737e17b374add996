"""What jobs leave on a node when an agent is killed, and the control groups that hold it together.

The kernel ends each mpiexec with its agent, and mpiexec's processes end with it. Processes that
left this tree survive. The next agent of the node ends them before it reports its processors. If
the service ends instead, it removes what agents on its host have left.

Processes that have left their mpiexec, with another session and an empty environment, are found
only by a control group, one for each job, where the agent may make one. Without control groups,
processes are found by their environments and sessions (:mod:`scheduler.node.groups.processes`).
The control groups of jobs are below one of the agent, in that in which it was started, and those of
their groups below them. A file names that of the agent for the next agent of the node.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from reshape.files import cgroup
from scheduler.node.directory import ServiceDirectory
from scheduler.node.groups import mpi_memory
from scheduler.node.groups.processes import AGENT_VARIABLE, is_alive

log = logging.getLogger(__name__)

_REPORT_EVERY_S = 10.0
#: Interval in seconds of looking whether killed processes have ended.
_WAIT_S = 0.02


class JobCgroups:
    """The control groups of the jobs of an agent.

    Parameters
    ----------
    record : file that names the control group of the agent.
    name : of the control group, which differs from those of all other agents.
    """

    def __init__(self, record: Path, name: str) -> None:
        self._record, self._name = record, name
        self._folder: Path | None = None

    def begin(self) -> None:
        """End what an earlier agent has left, and make the control group of this one."""
        end_left(self._record)
        own = cgroup.own_cgroup()
        folder = None if own is None else own / self._name.replace("/", "-")
        if folder is None or not cgroup.make(folder):
            log.info("no control group for jobs (%s): processes are searched", cgroup.probe())
            return
        self._folder = folder
        self._record.write_text(str(folder))

    def folder_of(self, job: int, group: int) -> str:
        """Make the control group of a group of a job; return its folder, "" if there is none."""
        if self._folder is None:
            return ""
        whole = self._folder / f"job-{job}"
        folder = whole / f"group-{group}"
        return str(folder) if cgroup.make(whole) and cgroup.make(folder) else ""

    def end(self, job: int, group: int) -> bool:
        """Kill the processes of a group and remove its control group; whether some are left."""
        if self._folder is None:
            return False
        whole = self._folder / f"job-{job}"
        is_left = cgroup.end(whole / f"group-{group}")
        with suppress(OSError):  # it has other groups
            whole.rmdir()
        return is_left

    def sweep(self, job: int) -> None:
        """Remove what groups have left that were given up."""
        if self._folder is not None:
            cgroup.end(self._folder / f"job-{job}")

    def finish(self) -> None:
        """Remove the control group of the agent."""
        end_left(self._record)


def end_left(record: Path) -> None:
    """End the processes of a killed agent, which a file names, and wait until they have ended."""
    try:
        folder = Path(record.read_text())
    except OSError:
        return
    if cgroup.end(folder):
        log.warning("ending the processes in %s, which an earlier agent has left", folder)
        while cgroup.end(folder):
            time.sleep(_WAIT_S)
    with suppress(OSError):
        record.unlink()


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
