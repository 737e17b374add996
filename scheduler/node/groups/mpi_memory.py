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
from collections.abc import Iterable
from pathlib import Path

from scheduler.text.formats import counted

log = logging.getLogger(__name__)

FOLDER = Path("/dev/shm")
#: Bytes that MPI_Init takes for each process: 5.1 MiB were measured with MPICH 4 and UCX.
BYTES_PER_PROCESS = 8 << 20
#: The kernel takes the times of files from a clock that advances every few milliseconds.
TIME_RESOLUTION_S = 0.01
_NAME = r"(?:mpich_shm_|mpich_vci_|ucx_shm_posix_)\w+"
_MAPPED = re.compile(rf" {FOLDER}/({_NAME})$", re.MULTILINE)  # deleted files have a suffix


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
