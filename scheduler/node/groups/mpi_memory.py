"""Shared memory of MPI libraries, which stays in /dev/shm when processes are killed.

MPICH creates ``mpich_shm_*`` for each world, UCX ``ucx_shm_posix_*`` for each process. The agent
sees which files a process maps only when it looks. Files that were created after its last look, or
by a process that failed before it mapped them, are found by their time of change. The only files
that are ever removed are those that a process of this agent has mapped, and those that were created
in the moments before such a process was killed.
Files of other users stay, and files that any process has open or maps. The kernel decides: it
grants a lease for writing (fcntl(2), F_SETLEASE) only on a file that no other process of the
machine has open or maps, processes of other containers included, which /proc does not show.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import signal
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from scheduler.text.formats import counted

log = logging.getLogger(__name__)

FOLDER = Path("/dev/shm")
#: Bytes that MPI_Init takes for each process: 5.1 MiB were measured with MPICH 4 and UCX.
BYTES_PER_PROCESS = 8 << 20
#: The kernel takes the times of files from a clock that advances every few milliseconds.
TIME_RESOLUTION_S = 0.01
#: Delay before files are removed: another process may be about to map them.
REMOVAL_S = 1.0
#: Seconds in which the processes of an agent that was killed created files that it has not seen.
UNSEEN_S = 15.0
#: Seconds for which the removal of a file that is in use is tried again.
RETRY_S = 5.0
_UNSEEN = "unseen-since"
_NAME = r"(?:mpich_shm_|mpich_vci_|ucx_shm_posix_)\w+"
_MAPPED = re.compile(rf" {FOLDER}/({_NAME})$", re.MULTILINE)  # deleted files have a suffix


class SeenFiles(NamedTuple):
    """What the agent has seen of the files of some processes.

    Attributes
    ----------
    names : of the files that they mapped when it looked.
    unseen_since : wall time since which they may have created others, Unix seconds.
    """

    names: set[str]
    unseen_since: float


def mapped_by(pids: Iterable[int]) -> set[str]:
    """Names of the files of MPI libraries that processes map."""
    names: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            names.update(_MAPPED.findall(Path(f"/proc/{pid}/maps").read_text(errors="replace")))
    return names


def changed_between(begin: float, end: float) -> set[str]:
    """Names of this user's files of MPI libraries that were created or changed in a period.

    Parameters
    ----------
    begin, end : wall time, Unix seconds; the times of files have a resolution of some milliseconds.
    """
    names: set[str] = set()
    for name in os.listdir(FOLDER):
        if re.fullmatch(_NAME, name):
            with contextlib.suppress(OSError):
                if begin - TIME_RESOLUTION_S <= (FOLDER / name).lstat().st_ctime <= end:
                    names.add(name)
    return names


def remove(names: Iterable[str]) -> set[str]:
    """Remove files of MPI libraries that belong to this user and that no process uses.

    Returns
    -------
    names of the files that some process still uses.
    """
    return {
        name for name in names if re.fullmatch(_NAME, name) and not _remove_unused(FOLDER / name)
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
    space = os.statvfs(FOLDER)
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
    space = os.statvfs(FOLDER)
    free, needed = space.f_bavail * space.f_frsize, processes * BYTES_PER_PROCESS
    if not space.f_blocks or free >= needed:  # without blocks: no limit
        return
    lack = (
        f"{FOLDER} has {free >> 20} MiB free, and MPI needs {needed >> 20} MiB to start"
        f" {counted(processes, 'process')}: "
    )
    if space.f_blocks * space.f_frsize < needed:
        raise ValueError(f"{lack}enlarge it")
    raise OSError(f"{lack}remove files from {FOLDER}, or enlarge it")


class MpiFiles:
    """Files in use, recorded for the next agent of the node, and files to be removed.

    Parameters
    ----------
    record : path of the record, in a folder of this user alone.
    """

    def __init__(self, record: Path) -> None:
        self._record = record
        self._noted = ""
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
                with contextlib.suppress(ValueError):  # the record was being written
                    at = float(line.removeprefix(_UNSEEN))
                    names |= changed_between(at, at + UNSEEN_S)
        self._write("\n".join(sorted(remove(names))))

    def note(self, seen: Iterable[SeenFiles]) -> None:
        """Record the files of processes, and since when there may be others."""
        seen = list(seen)
        lines = sorted(set(self._due).union(*(each.names for each in seen)))
        lines += [f"{_UNSEEN} {min(each.unseen_since for each in seen):.3f}"] if seen else []
        self._write("\n".join(lines))

    def _write(self, text: str) -> None:
        if text == self._noted:
            return
        self._noted = text
        try:
            self._record.write_text(text)
        except OSError as error:
            log.warning("cannot write %s: %s", self._record, error.strerror)

    def remove_later(self, seen: SeenFiles) -> None:
        """Remove the files that killed processes have left, also those not seen before."""
        names = seen.names | changed_between(seen.unseen_since, time.time())
        self._due |= dict.fromkeys(names, time.monotonic() + REMOVAL_S)

    def remove_due(self) -> None:
        """Remove the files whose time has come."""
        now = time.monotonic()
        due = {name: at for name, at in self._due.items() if now > at}
        in_use = remove(due) if due else set()
        for name, at in due.items():
            if name not in in_use or now > at + RETRY_S:
                del self._due[name]

    def finish(self) -> None:
        """Remove all files that are due, as soon as possible, and the record."""
        if self._due:
            time.sleep(max(0.0, max(self._due.values()) - time.monotonic()))
            remove(self._due)
        self._record.unlink(missing_ok=True)
