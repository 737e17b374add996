"""Processes of a node as its agent handles them: mpiexec worlds, orphans, what the dead leave."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from reshape.wire import messages as m

#: A segment of the MPI library may be so old, in seconds, before it is mapped.
SEGMENT_YOUNG_S = 1.0


@dataclass
class GroupProcesses:
    """One mpiexec world of a job, with every process seen below it."""

    order: m.StartGroup
    process: subprocess.Popen[bytes] | None = None
    pid: int = 0
    started: float = 0.0
    seen: dict[int, psutil.Process] = field(default_factory=dict)
    looked: float = 0.0
    status: int | None = None  # as waitpid gives it, once mpiexec is gone
    gone: bool = False
    exit_code: int = 0
    signal: int = 0
    why: str = ""
    kill_at: float | None = None  # when SIGTERM is followed by SIGKILL

    def look(self) -> None:
        """Note the processes below mpiexec."""
        self.looked = time.monotonic()
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self.pid).children(recursive=True):
                self.seen.setdefault(process.pid, process)

    def living(self) -> list[psutil.Process]:
        """Give the processes of the group that still run (the dead ones wait to be reaped).

        Those whose parents are dead have come to the agent; their environment tells whose they are.
        """
        mine = {"RESHAPE_JOB": str(self.order.job), "RESHAPE_GROUP": str(self.order.group)}
        found = dict(self.seen)
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.pid != self.pid and mine.items() <= process.environ().items():
                    found.setdefault(process.pid, process)
        alive = []
        for process in found.values():
            with contextlib.suppress(psutil.Error):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
        return alive

    def report(self) -> m.GroupStatus:
        """Say what the agent knows of this group."""
        return m.GroupStatus(
            job=self.order.job,
            group=self.order.group,
            alive=not self.gone,
            pid=self.pid,
            exit_code=self.exit_code,
            signal=self.signal,
            why=self.why,
        )


def remove_orphaned_segments(since: float) -> None:
    """Remove what the MPI library of killed processes left in shared memory.

    Parameters
    ----------
    since : Unix time; older files, and those that some process maps or may be about to, stay.
    """
    left = []
    for path in Path("/dev/shm").glob("mpich_shm_*"):
        with contextlib.suppress(OSError):
            stat = path.stat()
            if stat.st_uid == os.getuid() and since < stat.st_ctime < time.time() - SEGMENT_YOUNG_S:
                left.append(path)
    mapped = ""
    for maps in Path("/proc").glob("[0-9]*/maps") if left else ():
        with contextlib.suppress(OSError):
            mapped += maps.read_text()
    for path in left:
        if str(path) not in mapped:
            path.unlink(missing_ok=True)


def wake_on_child() -> int:
    """Give a file descriptor that becomes readable when a child ends, so that polling wakes."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read
