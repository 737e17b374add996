"""What jobs leave on a node when an agent is killed: processes, and shared memory of MPI libraries.

The kernel ends each mpiexec with its agent, and mpiexec's processes end with it. Processes that
left this tree survive. The next agent of the node ends them before it reports its processors. If
the service ends instead, it removes what agents on its host have left.

Processes that have left their mpiexec, with another session and an empty environment, are found
only by a control group, one for each job, where the agent may make one. Without control groups,
processes are found by their environments and sessions (:mod:`scheduler.node.processes`).
The control groups of jobs are below one of the agent, in that in which it was started, and those of
their groups below them. A file names that of the agent for the next agent of the node.

MPI libraries leave files in /dev/shm when processes are killed. The agent sees which of them a
process maps only when it looks. Files that were created after its last look, or by a process that
failed before it mapped them, are found by their time of change. The only files that are ever
removed are those that a process of this agent has mapped, and those that were created in the
moments before such a process was killed. Files of other users stay, and files that any process has
open or maps. The kernel decides: it grants a lease for writing (fcntl(2), F_SETLEASE) only on a
file that no other process of the machine has open or maps, processes of other containers included,
which /proc does not show.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import signal
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from reshape.files import cgroup
from scheduler.node.directory import MEMORY, ServiceDirectory
from scheduler.node.processes import AGENT_VARIABLE, MPI_FILE, ProcessTree, is_alive, mapped_by
from scheduler.text.formats import counted

log = logging.getLogger(__name__)

_REPORT_EVERY_S = 10.0
#: Interval in seconds of looking whether killed processes have ended.
_WAIT_S = 0.02
#: Delay before files are removed: another process may be about to map them.
REMOVAL_S = 1.0
#: Seconds in which the processes of an agent that was killed created files that it has not seen.
UNSEEN_S = 15.0
#: Seconds for which the removal of a file that is in use is tried again.
RETRY_S = 5.0
_UNSEEN = "unseen-since"
#: Bytes that MPI_Init takes for each process: 5.1 MiB were measured with MPICH 4 and UCX.
BYTES_PER_PROCESS = 8 << 20
#: The kernel takes the times of files from a clock that advances every few milliseconds.
TIME_RESOLUTION_S = 0.01


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


class MpiFiles:
    """Files in use, recorded for the next agent of the node, and files to be removed.

    Parameters
    ----------
    record : path of the record, in a folder of this user alone.
    """

    def __init__(self, record: Path) -> None:
        self._record = record
        self._noted: str | None = ""  # text of the record; None: it could not be written
        self._due: dict[str, float] = {}  # name -> monotonic time of removal

    def remove_left(self) -> None:
        """Remove the files that an earlier agent has left and that no process uses any more."""
        try:
            lines = self._record.read_text().split("\n")
        except OSError:
            return
        names = {line for line in lines if line and not line.startswith(_UNSEEN)}
        for line in lines:
            if line.startswith(_UNSEEN):
                with suppress(ValueError):  # the record was being written
                    at = float(line.removeprefix(_UNSEEN))
                    names |= changed_between(at, at + UNSEEN_S)
        self._write("\n".join(sorted(remove_files(names))))

    def note(self, trees: Sequence[ProcessTree]) -> None:
        """Record the files of processes, and since when there may be others."""
        lines = sorted(set(self._due).union(*(tree.mpi_files for tree in trees)))
        lines += [f"{_UNSEEN} {min(tree.unseen_since for tree in trees):.3f}"] if trees else []
        self._write("\n".join(lines))

    def _write(self, text: str) -> None:
        if text == self._noted:
            return
        try:
            self._record.write_text(text)
        except OSError as error:  # tried again, as when shared memory was full
            if self._noted is not None:
                log.warning("cannot write %s: %s", self._record, error.strerror)
            self._noted = None
        else:
            self._noted = text

    def remove_later(self, tree: ProcessTree) -> None:
        """Remove the files that killed processes have left, also those not seen before."""
        names = tree.mpi_files | changed_between(tree.unseen_since, time.time())
        self._due |= dict.fromkeys(names, time.monotonic() + REMOVAL_S)

    def remove_due(self) -> None:
        """Remove the files whose time has come."""
        now = time.monotonic()
        due = {name: at for name, at in self._due.items() if now > at}
        in_use = remove_files(due) if due else set()
        for name, at in due.items():
            if name not in in_use or now > at + RETRY_S:
                del self._due[name]

    def finish(self) -> None:
        """Remove all files that are due, as soon as possible, and the record."""
        if self._due:
            time.sleep(max(0.0, max(self._due.values()) - time.monotonic()))
            remove_files(self._due)
        self._record.unlink(missing_ok=True)


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
        mpi_files |= mapped_by(process.pid for process in left)
        for process in left:
            try:
                process.kill()
            except psutil.Error:
                continue
        killed |= left
        time.sleep(0.05)
    remove_files(mpi_files)


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
            MpiFiles(record).remove_left()
            record.unlink(missing_ok=True)
    directory.remove_all()


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


# ---------------------------------------------------------------- shared memory of MPI libraries


def changed_between(begin: float, end: float) -> set[str]:
    """Names of this user's files of MPI libraries that were created or changed in a period.

    Parameters
    ----------
    begin, end : wall time, Unix seconds; the times of files have a resolution of some milliseconds.
    """
    names: set[str] = set()
    for name in os.listdir(MEMORY):
        if re.fullmatch(MPI_FILE, name):
            with suppress(OSError):
                if begin - TIME_RESOLUTION_S <= (MEMORY / name).lstat().st_ctime <= end:
                    names.add(name)
    return names


def remove_files(names: Iterable[str]) -> set[str]:
    """Remove files of MPI libraries that belong to this user and that no process uses.

    Returns
    -------
    names of the files that some process still uses.
    """
    return {
        name for name in names if re.fullmatch(MPI_FILE, name) and not _remove_unused(MEMORY / name)
    }


def _remove_unused(path: Path) -> bool:
    """Remove a file of this user if no process uses it; return whether it is not there to use."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return True  # it does not exist, or it belongs to another user
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            return True
        # The kernel would announce another process that opens the file by SIGIO, which ends this
        # one; by default SIGURG is ignored.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    except OSError as error:
        log.warning("cannot remove %s: %s", path, error.strerror)
        return True
    finally:
        os.close(descriptor)  # ends the lease
    return True


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
