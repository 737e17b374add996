"""Runs on each host for `reshape doctor --hosts`: prints facts as JSON.

    python -m reshape.doctor.host_facts SHARED WORD

SHARED is a folder of the file system that all hosts are to share; the file WORD in it has the text
WORD.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("reshape-mpi", "mpi4py", "mpich")
_MEMORY = "/dev/shm"


def facts(shared: Path, word: str) -> dict[str, object]:
    """Collect the facts of this host.

    Returns
    -------
    ``host``, ``python`` and ``releases``; ``cpus`` that this process may use; ``shm_free``, bytes,
    -1 if /dev/shm cannot be written to; ``shared``, why the folder is not shared, or empty;
    ``time``, Unix seconds.
    """
    return {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "releases": {name: release_of(name) for name in _PACKAGES},
        "cpus": len(os.sched_getaffinity(0)),
        "shm_free": _free_memory(),
        "shared": _shared_fault(shared, word),
        "time": time.time(),
    }


def release_of(package: str) -> str:
    """Return the release of a package that is installed here; "": it is not."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _free_memory() -> int:
    if not os.access(_MEMORY, os.W_OK):
        return -1
    space = os.statvfs(_MEMORY)
    return space.f_bavail * space.f_frsize


def _shared_fault(shared: Path, word: str) -> str:
    """Read the file of the host that asks, and write one for it."""
    try:
        if (shared / word).read_text() != word:
            return f"{shared / word} has another content here"
        (shared / f"{word}-{socket.gethostname()}").write_text(word)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return ""


if __name__ == "__main__":
    print(json.dumps(facts(Path(sys.argv[1]), sys.argv[2])))
