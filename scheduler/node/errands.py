"""Errands: short processes that an agent starts beside the groups of jobs, each with a time limit.

========  ==========================================================================================
hook      the command that a user lets run at the end of a job, on its first node
probe     a program that does nothing, which shows whether the node can start groups again; the
          service asks for it while the node drains because it failed to start jobs. Room in shared
          memory comes first, so that no process is started as long as it lacks.
stand-in  releases a job from accepting a group that has died
========  ==========================================================================================
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable

from reshape.errors import ReshapeError
from reshape.files.private_folder import make_private
from scheduler.node.directory import JobFolders
from scheduler.node.launching.launcher import ProcessLauncher, mpiexec
from scheduler.node.leftovers import MpiFiles, check_much_room
from scheduler.node.processes import AGENT_VARIABLE, ProcessTree
from scheduler.protocol import messages as m

log = logging.getLogger(__name__)

#: Time limits, seconds.
HOOK_S, PROBE_S, STAND_IN_S = 60.0, 20.0, 10.0
#: Hooks that run at a time on a node, at most.
MOST_HOOKS = 100
#: Interval in seconds of searching the descendants of an errand.
LOOK_S = 0.1


class Errands:
    """The errands of an agent: a hook for each end of a job, a stand-in for each resize, a probe.

    Parameters
    ----------
    folders : the shared-memory folders of jobs on this host.
    mark : name of the agent, which its processes carry in their environment.
    files : removes what a stand-in has left in shared memory.

    Attributes
    ----------
    probe : number of the last probe that has ended; 0: none has.
    probe_failure : why it failed; empty if the node can start groups.
    """

    def __init__(
        self,
        launcher: ProcessLauncher,
        folders: JobFolders,
        mark: str,
        files: MpiFiles,
    ) -> None:
        self._launcher, self._folders, self._mark, self._files = launcher, folders, mark, files
        # By kind and number: the processes, the time limit in seconds, and what is called when all
        # processes have ended.
        self._running: dict[str, tuple[ProcessTree, float, Callable[[ProcessTree], None]]] = {}
        self.probe, self.probe_failure = 0, ""

    def trees(self) -> Iterable[ProcessTree]:
        """Return the processes of all errands."""
        return [tree for tree, _, _ in self._running.values()]

    def start_hook(self, order: m.RunHook) -> None:
        """Start the hook of a job that has ended; a failure is logged and has no consequence."""
        key, hooks = f"hook {order.job}", self._count("hook")
        if key in self._running or hooks >= MOST_HOOKS:
            log.warning("%s is left out: %d run", key, hooks)
            return
        marker = self._marker(key)
        try:
            start = self._launcher.start(
                ["/bin/sh", "-c", order.command],
                order.environment | marker,
                order.bounds,
                is_program=True,
            )
        except (OSError, ValueError) as error:
            log.warning("%s: cannot start: %s", key, error)
            return

        def ended(tree: ProcessTree) -> None:
            end = tree.end
            if end.has_failed:
                how = f"{end.exit_code}:{end.signal}" + (f": {end.why}" if end.why else "")
                log.warning("%s ended with %s", key, how)

        tree = ProcessTree(marker, start)
        self._running[key] = tree, HOOK_S, ended
        log.info("%s pid=%d", key, start.pid)

    def start_stand_in(self, order: m.CancelAccept) -> None:
        """Start the stand-in of a resize, unless it runs already."""
        key = f"stand-in {order.job}.{order.serial}"
        if key in self._running:
            return
        marker = self._marker(key)
        program = [sys.executable, "-m", "reshape.resizing.stand_in", order.port]
        start = self._launcher.start(mpiexec(1, program), order.environment | marker)

        def ended(tree: ProcessTree) -> None:
            if tree.status != 0:
                self._files.remove_later(tree)

        tree = ProcessTree(marker, start)
        self._running[key] = tree, STAND_IN_S, ended
        log.info("%s pid=%d", key, start.pid)

    def start_probe(self, order: m.ProbeNode) -> None:
        """Begin a probe, unless one runs or this one has ended."""
        if self._count("probe") or order.serial == self.probe:
            return
        key = f"probe {order.serial}"
        marker = self._marker(key)
        folder = self._folders.memory / f"probe-{order.serial}"
        try:
            check_much_room(order.processes)
            make_private(self._folders.memory)
            make_private(folder)
            folder.rmdir()
            bounds = m.JobBounds(cwd="/", output=os.devnull)
            start = self._launcher.start(mpiexec(1, ["true"]), os.environ | marker, bounds)
        except (OSError, ValueError, ReshapeError) as error:
            self._end_probe(order.serial, str(error))
            return

        def ended(tree: ProcessTree) -> None:
            end = tree.end
            how = end.why or f"a program that does nothing ended with {end.exit_code}:{end.signal}"
            self._end_probe(order.serial, how if end.has_failed else "")

        self._running[key] = ProcessTree(marker, start), PROBE_S, ended

    def examine(self) -> None:
        """End errands that take too long, and forget those that have ended."""
        for key, (tree, limit_s, ended) in list(self._running.items()):
            now = time.monotonic()
            if tree.status is None:
                tree.start.read_reports()
                is_late = now - tree.started > limit_s
                if is_late or now - tree.looked > LOOK_S:
                    tree.look()
                if is_late:
                    log.warning("%s is ended after %g s", key, limit_s)
                    tree.send_signal(signal.SIGKILL)
            elif not tree.kill_descendants():
                tree.start.close()
                del self._running[key]
                ended(tree)

    def _marker(self, key: str) -> dict[str, str]:
        """Variables by which the agent recognises the processes of an errand."""
        return {AGENT_VARIABLE: self._mark, "RESHAPE_ERRAND": key}

    def _count(self, kind: str) -> int:
        return sum(key.startswith(kind) for key in self._running)

    def _end_probe(self, serial: int, why: str) -> None:
        self.probe, self.probe_failure = serial, why
        log.info("probe %d %s", serial, f"failed: {why}" if why else "passed")
