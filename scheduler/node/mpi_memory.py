"""Shared memory of MPI libraries, which stays in /dev/shm when processes are killed.

MPICH creates ``mpich_shm_*`` for each world, UCX ``ucx_shm_posix_*`` for each process. The only
files that are ever removed are those that a process of this agent has mapped, and those that were
created in the moments before such a process was killed (:mod:`scheduler.node.mpi_files`). Files of
other users, and files that any process maps, stay.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path("/dev/shm")
#: Bytes that MPI_Init takes for each process: 5.1 MiB were measured with MPICH 4 and UCX.
BYTES_PER_PROCESS = 8 << 20
#: The kernel takes the times of files from a clock that advances every few milliseconds.
TIME_RESOLUTION_S = 0.01
_NAME = r"(?:mpich_shm_|ucx_shm_posix_)\w+"
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
    """Remove files of MPI libraries that belong to this user and that no process maps.

    Returns
    -------
    names of the files that some process still maps.
    """
    present = {name for name in names if re.fullmatch(_NAME, name) and _is_own(FOLDER / name)}
    if not present:
        return set()
    in_use = mapped_by(int(entry) for entry in os.listdir("/proc") if entry.isdecimal()) & present
    for name in present - in_use:
        (FOLDER / name).unlink(missing_ok=True)
    return in_use


def _is_own(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()


def lack_of_room(processes: int) -> str:
    """Reason not to start MPI processes because shared memory is nearly full; empty if it is not.

    MPI_Init ends with a bus error if it runs out of shared memory.
    """
    found = os.statvfs(FOLDER)
    free, needed = found.f_bavail * found.f_frsize, processes * BYTES_PER_PROCESS
    if not found.f_blocks or free >= needed:  # without blocks: no limit
        return ""
    return (
        f"{FOLDER} has {free >> 20} MiB free, and MPI needs {needed >> 20} MiB to start"
        f" {processes} process{'' if processes == 1 else 'es'}: remove files from {FOLDER},"
        " or enlarge it"
    )
