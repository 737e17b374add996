"""What jobs leave on a node when an agent is killed: processes, and shared memory of MPI libraries.

The kernel ends each mpiexec with its agent, and mpiexec's processes end with it. Processes that
left this tree survive. The next agent of the node ends them before it reports its processors. If
the service ends instead, it removes what agents on its host have left.

Processes that have left their mpiexec, with another session and an empty environment, are found
only by a control group, one for each job, where the agent may make one. Without control groups,
processes are found by their environments and sessions (:mod:`scheduler.node.processes`).
The control groups of jobs are below one of the agent, in that in which it was started, and those of
their groups below them. A file names that of the agent for the next agent of the node.

MPI libraries leave files in /dev/shm when processes are killed. A library maps a file from its
creation on until it removes it, so a file that no process has open or maps is of no use. Such files
of this user are removed, whichever program created them. The kernel decides: it grants a lease for
writing (fcntl(2), F_SETLEASE) only on a file that no other process of the machine has open or maps,
processes of other containers included, which /proc does not show.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import signal
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from reshape.files import cgroup
from scheduler.node.directory import MEMORY, ServiceDirectory
from scheduler.node.processes import AGENT_VARIABLE, is_alive
from scheduler.text.formats import counted

log = logging.getLogger(__name__)

_REPORT_EVERY_S = 10.0
#: Interval in seconds of looking whether killed processes have ended.
_WAIT_S = 0.02
#: Files of MPI libraries in shared memory: MPICH creates ``mpich_shm_*`` for each world, UCX
#: ``ucx_shm_posix_*`` for each process.
_MPI_FILE = re.compile(r"(?:mpich_shm_|mpich_vci_|ucx_shm_posix_)\w+")
#: Bytes that MPI_Init takes for each process: 5.1 MiB were measured with MPICH 4 and UCX.
BYTES_PER_PROCESS = 8 << 20


class JobCgroups:
    """The control groups of the jobs of an agent.

    Parameters
    ----------
    record : file that names the control group of the agent.
    name : of the control group, which differs from those of all other agents, of this node as well:
        the lock of an agent may be removed while it runs.
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
        try:
            self._record.write_text(str(folder))
        except OSError as error:  # the next agent would not find the control group
            cgroup.end(folder)
            log.warning(
                "no control group for jobs: cannot write %s: %s", self._record, error.strerror
            )
            return
        self._folder = folder

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
        """Remove the control group of the agent, and the record unless it names that of another."""
        if self._folder is not None:
            _end(self._folder)
            if _recorded(self._record) == self._folder:
                self._record.unlink(missing_ok=True)


def end_left(record: Path) -> None:
    """End the processes of a killed agent, which a file names, and wait until they have ended."""
    folder = _recorded(record)
    if folder is None:
        return
    if cgroup.end(folder):
        log.warning("ending the processes in %s, which an earlier agent has left", folder)
        _end(folder)
    record.unlink(missing_ok=True)


def _recorded(record: Path) -> Path | None:
    """Control group that a file names; None if there is no such file."""
    try:
        return Path(record.read_text())
    except OSError:
        return None


def _end(folder: Path) -> None:
    """End the processes of a control group, wait until they have ended, and remove it."""
    while cgroup.end(folder):
        time.sleep(_WAIT_S)


def end_processes(*agents: str) -> None:
    """Kill all processes of earlier agents of these names, and wait until they have ended.

    Parameters
    ----------
    agents : values of the variable RESHAPE_AGENT that marks the processes.
    """
    reported = -_REPORT_EVERY_S
    killed: set[psutil.Process] = set()  # they have no environment while they end
    while left := {*_processes_of(agents), *filter(is_alive, killed)}:
        if time.monotonic() - reported >= _REPORT_EVERY_S:
            reported = time.monotonic()
            pids = ", ".join(str(process.pid) for process in left)
            log.warning("ending processes that an earlier agent has left: %s", pids)
        for process in left:
            try:
                process.kill()
            except psutil.Error:
                continue
        killed |= left
        time.sleep(0.05)


def remove_all(directory: ServiceDirectory, nodes: Sequence[str]) -> None:
    """Remove what killed agents have left on the host of a service whose jobs have all ended.

    Parameters
    ----------
    nodes : those on this host whose agents have ended.
    """
    marks = [f"{directory.name}/{node}" for node in nodes]
    for node in nodes:
        end_left(directory.memory / f"cgroup-{node}")
    end_processes(*marks)
    remove_mpi_files()
    directory.remove_all()


def _processes_of(agents: Sequence[str]) -> list[psutil.Process]:
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
        if mark in agents:
            marked.append(process)
        elif mark is None:
            unmarked.append((process, session))
    leaders = {process.pid for process in marked}
    marked += [process for process, session in unmarked if session in leaders]
    return [process for process in marked if is_alive(process)]


# ---------------------------------------------------------------- shared memory of MPI libraries


def remove_mpi_files() -> None:
    """Remove this user's files of MPI libraries that no process of the machine has open or maps."""
    for name in os.listdir(MEMORY):
        if _MPI_FILE.fullmatch(name):
            _remove_unused(MEMORY / name)


def _remove_unused(path: Path) -> None:
    """Remove a file of this user if no process uses it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # it does not exist, or it belongs to another user
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            return
        # The kernel would announce another process that opens the file by SIGIO, which ends this
        # one; by default SIGURG is ignored.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        path.unlink(missing_ok=True)
    except BlockingIOError:  # it is in use
        pass
    except OSError as error:
        log.warning("cannot remove %s: %s", path, error.strerror)
    finally:
        os.close(descriptor)  # ends the lease


def check_much_room(processes: int) -> None:
    """Check that there is shared memory for so many MPI processes, or that half of it is free.

    A machine may have less of it than processes of MPI on all its processors would need.

    Raises
    ------
    OSError, ValueError : see `check_room`.
    """
    space = os.statvfs(MEMORY)
    if not space.f_blocks or 2 * space.f_bavail < space.f_blocks:
        check_room(processes)


def check_room(processes: int) -> None:
    """Check that there is shared memory for so many MPI processes.

    MPI_Init ends with a bus error if it runs out of shared memory.

    Raises
    ------
    OSError : shared memory is nearly full.
    ValueError : it would not suffice if it were empty.
    """
    space = os.statvfs(MEMORY)
    free, needed = space.f_bavail * space.f_frsize, processes * BYTES_PER_PROCESS
    if not space.f_blocks or free >= needed:  # without blocks: no limit
        return
    lack = (
        f"{MEMORY} has {free >> 20} MiB free, and MPI needs {needed >> 20} MiB to start"
        f" {counted(processes, 'process')}: "
    )
    if space.f_blocks * space.f_frsize < needed:
        raise ValueError(f"{lack}enlarge it")
    raise OSError(f"{lack}remove files from {MEMORY}, or enlarge it")
