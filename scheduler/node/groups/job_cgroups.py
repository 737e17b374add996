"""A control group for the processes of each job on a node, where the agent may make one.

Processes that have left their mpiexec, with another session and an empty environment, are found by
nothing else. Without control groups, processes are found by their environments and sessions
(:mod:`scheduler.node.groups.processes`).

The control groups of jobs are below one of the agent, in that in which it was started, and those of
their groups below them. A file names that of the agent, so that the next agent of the node ends
what an agent has left that was killed.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from pathlib import Path

from reshape.files import cgroup

log = logging.getLogger(__name__)

_WAIT_S = 0.02


class JobCgroups:
    """The control groups of the jobs of an agent.

    Parameters
    ----------
    record : file that names the control group of the agent.
    name : of the control group, which differs from those of all other agents.
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
        self._folder = folder
        self._record.write_text(str(folder))

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
        """Remove the control group of the agent."""
        end_left(self._record)


def end_left(record: Path) -> None:
    """End the processes of a killed agent, which a file names, and wait until they have ended."""
    try:
        folder = Path(record.read_text())
    except OSError:
        return
    if cgroup.end(folder):
        log.warning("ending the processes in %s, which an earlier agent has left", folder)
        while cgroup.end(folder):
            time.sleep(_WAIT_S)
    with suppress(OSError):
        record.unlink()
