"""What a run leaves on the machine: libraries' files are removed, our own are named.

MPI libraries whose processes are killed leave files in /dev/shm and /tmp; tests kill many. The
processes of a run, and folders of this project that no process uses, are named in its last lines.
The folders may also belong to another run that goes on, so they stay. The watcher of the run
(`run_watcher`) ends the processes, also those of a run that was interrupted or killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from process_words import words_of
from run_watcher import begin_run, processes_of

SHARED_MEMORY = Path("/dev/shm")
#: hydra writes the topology of the machine to a file with a fixed name, and reads it at once.
_HYDRA_FILES, _HYDRA_AGE_S = "hydra_hwloc_xmlfile_*", 5.0
#: Semaphores of multiprocessing, if its processes were killed, with the one that removes them.
_SEMAPHORES = "sem.mp-*"
#: Seconds in which processes that end by themselves have ended.
_END_S = 5.0
_BEGAN = pytest.StashKey[tuple[float, str]]()
_LEFT = pytest.StashKey[list[str]]()


def created_since(path: Path, begin: float) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return status.st_uid == os.getuid() and status.st_ctime >= begin


def in_use(folder: Path) -> bool:
    """Whether a process maps or opens a file below a folder, or names it on its command line.

    The name of a folder of a job that a test drives contains the number of its process.
    """
    text = str(folder)
    if (number := re.match(r"reshape-try-(\d+)-", folder.name)) is not None:
        return int(number[1]) != os.getpid() and bool(words_of(int(number[1])))
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if any(text in word for word in process.cmdline()):
                return True
            if text in Path(f"/proc/{process.pid}/maps").read_text(errors="replace"):
                return True
            if any(file.path.startswith(text) for file in process.open_files()):
                return True
    return False


def is_mapped(path: Path) -> bool:
    """Whether a process maps a file, under this name or another one.

    The C library creates a semaphore under a name of its own, and links it to the given one. The
    process that has created it maps the first name until another process opens the second one.
    """
    try:
        inode = str(path.stat().st_ino)
    except OSError:
        return False
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process.pid}/maps").read_text(errors="replace").splitlines():
                fields = line.split(maxsplit=5)  # addresses, access, offset, device, inode, name
                if fields[4] == inode and fields[-1].startswith(str(path.parent)):
                    return True
    return False


def left_since(begin: float) -> list[str]:
    """Remove what libraries have left since a time; return folders of this project.

    Parameters
    ----------
    begin : wall time, Unix seconds.
    """
    # Not above: a test that imports mpi4py before reshape has its communicators remembered.
    from scheduler.node.leftovers import remove_mpi_files

    remove_mpi_files()
    for path in Path("/tmp").glob(_HYDRA_FILES):
        if created_since(path, begin) and time.time() - path.stat().st_mtime > _HYDRA_AGE_S:
            path.unlink(missing_ok=True)
    for path in SHARED_MEMORY.glob(_SEMAPHORES):
        if created_since(path, begin) and not is_mapped(path):
            path.unlink(missing_ok=True)
    folders = [*SHARED_MEMORY.glob("reshape-*"), *Path("/tmp").glob("reshape-*")]
    return [str(path) for path in folders if created_since(path, begin) and not in_use(path)]


def unlock(pid: int) -> None:
    """Let the next run remove the folder for `tmp_path` of a run that was killed.

    Parameters
    ----------
    pid : process of that run, which has ended.
    """
    for lock in Path(tempfile.gettempdir()).glob("pytest-of-*/pytest-*/.lock"):
        with contextlib.suppress(OSError):
            if lock.read_text() == str(pid):
                lock.unlink()


def left_processes(run: str) -> list[str]:
    """Return the processes of a run that do not end by themselves."""
    until = time.monotonic() + _END_S
    while (pids := processes_of(run)) and time.monotonic() < until:
        time.sleep(0.05)
    return [f"process {pid}: {' '.join(words_of(pid))}" for pid in pids]


def _is_inner(config: pytest.Config) -> bool:
    """Whether this is a process of pytest-xdist or a rank: the one that started it cleans up."""
    return hasattr(config, "workerinput") or bool(config.getoption("--with-mpi"))


def pytest_configure(config: pytest.Config) -> None:
    """Begin a run."""
    if not _is_inner(config):
        begin = time.time()
        config.stash[_BEGAN] = begin, begin_run(begin)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Clean up after libraries."""
    if not _is_inner(session.config):
        begin, run = session.config.stash[_BEGAN]
        session.config.stash[_LEFT] = left_processes(run) + left_since(begin)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was left."""
    for text in terminalreporter.config.stash.get(_LEFT, []):
        terminalreporter.line(f"left behind: {text}", red=True)
