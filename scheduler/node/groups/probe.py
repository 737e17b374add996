"""The probe of a node: whether it can start groups again, tried with one that does nothing.

The service asks for it while a node drains because it failed to start jobs. No job of a user takes
part. Room in shared memory comes first, so that no process is started as long as it lacks.
"""

from __future__ import annotations

import logging
import os
import signal
import time

from reshape.errors import ReshapeError
from reshape.files.private_folder import make_private
from scheduler.node.directory import JobFolders
from scheduler.node.groups import mpi_memory
from scheduler.node.groups.processes import AGENT_VARIABLE, ProcessTree
from scheduler.node.launching.local import LocalLauncher, OutputFiles
from scheduler.protocol import messages as m

log = logging.getLogger(__name__)

#: Time limit of a probe, seconds.
PROBE_S = 20.0
#: Interval in seconds of searching the descendants of a probe.
LOOK_S = 0.1


class Probe:
    """The probes of an agent, one at a time.

    Parameters
    ----------
    folders : the shared-memory folders of jobs on this host.
    mark : name of the agent, which its processes carry in their environment.

    Attributes
    ----------
    serial : number of the last probe that has ended; 0: none has.
    why : why it failed; empty if the node can start groups.
    """

    def __init__(self, launcher: LocalLauncher, folders: JobFolders, mark: str) -> None:
        self._launcher, self._folders = launcher, folders
        self._marker = {AGENT_VARIABLE: mark, "RESHAPE_PROBE": "1"}
        self._running: tuple[int, ProcessTree] | None = None
        self.serial, self.why = 0, ""

    def trees(self) -> list[ProcessTree]:
        """Return the processes of the probe that runs."""
        return [] if self._running is None else [self._running[1]]

    def start(self, order: m.ProbeNode) -> None:
        """Begin a probe, unless one runs or this one has ended."""
        if self._running is not None or order.serial == self.serial:
            return
        folder = self._folders.memory / f"probe-{order.serial}"
        try:
            mpi_memory.check_much_room(order.processes)
            make_private(self._folders.memory)
            make_private(folder)
            folder.rmdir()
            start = self._launcher.start_mpiexec(
                os.environ | self._marker, 1, ["true"], cwd="/", output=OutputFiles(os.devnull)
            )
        except (OSError, ValueError, ReshapeError) as error:
            self._end(order.serial, str(error))
            return
        self._running = order.serial, ProcessTree(self._marker, start)

    def examine(self) -> bool:
        """End a probe that takes too long; return whether one has ended."""
        if self._running is None:
            return False
        serial, tree = self._running
        assert tree.start is not None
        if tree.status is None:
            tree.start.ranks.read()
            now = time.monotonic()
            if now - tree.looked > LOOK_S:
                tree.look()
            if now - tree.started > PROBE_S:
                tree.send_signal(signal.SIGKILL)
        elif not tree.kill_descendants():
            end = tree.end
            tree.start.close()
            self._running = None
            failed = (end.exit_code, end.signal) != (0, 0)
            how = end.why or f"a program that does nothing ended with {end.exit_code}:{end.signal}"
            self._end(serial, how if failed else "")
            return True
        return False

    def _end(self, serial: int, why: str) -> None:
        self.serial, self.why = serial, why
        log.info("probe %d %s", serial, f"failed: {why}" if why else "passed")
