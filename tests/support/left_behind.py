"""What a run leaves on the machine: libraries' files are removed, our own are named.

MPI libraries whose processes are killed leave files in /dev/shm and /tmp; tests kill many. Folders
of this project that no process uses at the end of a run are named in its last lines. They may also
belong to another run that goes on, so they stay.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

import psutil
import pytest

from scheduler.node.groups import mpi_memory

SHARED_MEMORY = Path("/dev/shm")
#: hydra writes the topology of the machine to a file with a fixed name, and reads it at once.
_HYDRA_FILES, _HYDRA_AGE_S = "hydra_hwloc_xmlfile_*", 5.0
#: PSI/J writes one for each job on this host, and leaves it if its process ends before the job.
_PSIJ_FILES = "tmp*.nodelist"
_BEGAN = pytest.StashKey[float]()
_LEFT = pytest.StashKey[list[str]]()


def _created_since(path: Path, begin: float) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return status.st_uid == os.getuid() and status.st_ctime >= begin


def _in_use(folder: Path) -> bool:
    """Whether a process maps or opens a file below a folder, or names it on its command line.

    The name of a folder that a test itself makes contains the number of its process.
    """
    text = str(folder)
    if (number := re.match(r"reshape-test-(\d+)-", folder.name)) is not None:
        return psutil.pid_exists(int(number[1])) and int(number[1]) != os.getpid()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if any(text in word for word in process.cmdline()):
                return True
            if text in Path(f"/proc/{process.pid}/maps").read_text(errors="replace"):
                return True
            if any(file.path.startswith(text) for file in process.open_files()):
                return True
    return False


def left_since(begin: float) -> list[str]:
    """Remove what libraries have left since a time; return folders of this project.

    Parameters
    ----------
    begin : wall time, Unix seconds.
    """
    mpi_memory.remove(mpi_memory.changed_between(begin, time.time()))
    for path in Path("/tmp").glob(_HYDRA_FILES):
        if _created_since(path, begin) and time.time() - path.stat().st_mtime > _HYDRA_AGE_S:
            path.unlink(missing_ok=True)
    for path in Path("/tmp").glob(_PSIJ_FILES):
        if _created_since(path, begin):
            path.unlink(missing_ok=True)
    folders = [*SHARED_MEMORY.glob("reshape-*"), *Path("/tmp").glob("reshape-*")]
    return [str(path) for path in folders if _created_since(path, begin) and not _in_use(path)]


def pytest_configure(config: pytest.Config) -> None:
    """Note the time at which a run begins."""
    config.stash[_BEGAN] = time.time()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Clean up after libraries."""
    if hasattr(session.config, "workerinput") or session.config.getoption("--with-mpi"):
        return  # a process of pytest-xdist, or a rank; the process that started it cleans up
    session.config.stash[_LEFT] = left_since(session.config.stash[_BEGAN])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was left."""
    for text in terminalreporter.config.stash.get(_LEFT, []):
        terminalreporter.line(f"left behind: {text}", red=True)
