"""Stand-ins: processes that release a job from accepting a group that has died."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Iterable

from scheduler.node.groups.mpi_files import MpiFiles
from scheduler.node.groups.processes import AGENT_VARIABLE, ProcessTree
from scheduler.node.launching.local import LocalLauncher
from scheduler.protocol import messages as m

log = logging.getLogger(__name__)

#: Time limit of a stand-in.
STAND_IN_S = 10.0
#: Interval in seconds of searching the descendants of a stand-in.
LOOK_S = 0.1


class StandIns:
    """The stand-ins of an agent, at most one for each resize.

    Parameters
    ----------
    mark : name of the agent, which its processes carry in their environment.
    limit_s : time limit of a stand-in in seconds.
    """

    def __init__(
        self, launcher: LocalLauncher, mark: str, files: MpiFiles, limit_s: float = STAND_IN_S
    ) -> None:
        self._launcher, self._mark, self._files, self._limit_s = launcher, mark, files, limit_s
        self._trees: dict[tuple[int, int], ProcessTree] = {}  # by job and serial number

    def trees(self) -> Iterable[ProcessTree]:
        """Return the processes of all stand-ins."""
        return self._trees.values()

    def start(self, order: m.CancelAccept) -> None:
        """Start the stand-in of a resize, unless it runs already."""
        key = (order.job, order.serial)
        if key in self._trees:
            return
        marker = {AGENT_VARIABLE: self._mark, "RESHAPE_STAND_IN": f"{order.job}.{order.serial}"}
        program = [sys.executable, "-m", "reshape.resizing.stand_in", order.port]
        start = self._launcher.start_mpiexec(order.environment | marker, 1, program)
        self._trees[key] = ProcessTree(marker, start)
        log.info("cancel accept of job=%d serial=%d", order.job, order.serial)

    def examine(self) -> None:
        """End stand-ins that take too long, and forget those that have ended."""
        for key, tree in list(self._trees.items()):
            self._examine(key, tree)

    def _examine(self, key: tuple[int, int], tree: ProcessTree) -> None:
        now = time.monotonic()
        if tree.status is None:
            if now - tree.looked > LOOK_S:
                tree.look()
            if now - tree.started > self._limit_s:
                tree.look()
                tree.send_signal(signal.SIGKILL)
        elif not tree.kill_descendants():
            if tree.status != 0:
                self._files.remove_later(tree)
            if tree.start is not None:
                tree.start.close()
            del self._trees[key]
