"""A process beside a run of tests, which ends and removes what the run leaves, however it ends.

    python run_watcher.py PID RUN BEGIN

Every process that a run starts, at any depth, inherits the name of the run in a variable. When the
process PID of the run has ended, by itself, interrupted or killed, this one kills those that are
left, and removes their folders and the files of their libraries. It touches nothing of other runs.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

#: Variable with the name of the run; that of a run within another one begins with the outer name.
VARIABLE = "RESHAPE_TEST_RUN"
#: Seconds after which killed processes have ended.
_END_S = 20.0
#: Folder of a job that a test drives (`driver.Driver`), which ranks have in a variable.
_DRIVER_FOLDER = re.compile(r"/dev/shm/reshape-try-[\w-]+")
_FOLDER = re.compile(r"(?:/dev/shm|/tmp)/reshape-[\w-]+")


def begin_run(begin: float) -> str:
    """Give this process, and those that it starts, a run of their own; return its name.

    Parameters
    ----------
    begin : wall time at which the run began, Unix seconds.
    """
    outer, own = os.environ.pop(VARIABLE, ""), f"{os.getpid()}-{time.time_ns()}"
    run = f"{outer}/{own}" if outer else own
    words = [sys.executable, __file__, str(os.getpid()), run, repr(begin)]
    subprocess.run(
        ["sh", "-c", '"$@" &', "sh", *words],  # the watcher is no child of a process under test
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # no key of the terminal reaches it
        check=True,
    )
    os.environ[VARIABLE] = run
    return run


def processes_of(run: str) -> list[int]:
    """Processes that a run has started and their descendants, this one excepted."""
    mark = f"{VARIABLE}={run}".encode()
    found: set[int] = set()
    children: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent, *_ = (path / "stat").read_text().rpartition(")")[2].split()
            if state == "Z":
                continue
            children[int(parent)].append(int(path.name))
            for variable in (path / "environ").read_bytes().split(b"\0"):
                if variable == mark or variable.startswith(mark + b"/"):
                    found.add(int(path.name))
    todo = list(found)
    while todo:
        for child in children[todo.pop()]:
            if child not in found:
                found.add(child)
                todo.append(child)
    return sorted(found - {os.getpid()})


def folders_of(pids: list[int]) -> set[Path]:
    """Folders in /dev/shm and /tmp that processes name, and those of the services among them."""
    folders: set[Path] = set()
    for pid in pids:
        with suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_text(errors="replace")
            folders.update(map(Path, _DRIVER_FOLDER.findall(variables)))
            words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
            folders.update(map(Path, _FOLDER.findall("\0".join(words))))
            current = Path(f"/proc/{pid}/cwd").readlink()
            for option, value in pairwise(words):
                if option == "--dir":
                    folders.update(_folders_of_service(current / value))
    return folders


def _folders_of_service(directory: Path) -> Iterator[Path]:
    """Yield the folders outside of a service directory (scheduler.node.directory)."""
    for name, place in (("memory-folder", "/dev/shm"), ("socket-folder", tempfile.gettempdir())):
        with suppress(OSError):
            found = re.fullmatch(r"reshape-[0-9a-f]{16}", (directory / name).read_text())
            if found is not None:
                yield Path(place) / found[0]


def end(run: str, begin: float) -> None:
    """Kill the processes of a run, and remove their folders that no other process uses."""
    from left_behind import created_since, in_use

    folders: set[Path] = set()
    until = time.monotonic() + _END_S
    while (pids := processes_of(run)) and time.monotonic() < until:
        folders |= folders_of(pids)
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    for folder in folders:
        if created_since(folder, begin) and not in_use(folder):
            shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Wait for the end of a run."""
    pid, run, begin = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    with suppress(ProcessLookupError):
        select.select([os.pidfd_open(pid)], [], [])
    # Only now: the imports take ten times as long as the start of this process.
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from left_behind import left_since, unlock

    end(run, begin)
    left_since(begin)
    unlock(pid)


if __name__ == "__main__":
    main()
