"""Hooks: commands that users let run at the end of their jobs, on the first node of each."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Iterable

from scheduler.node.groups.processes import AGENT_VARIABLE, ProcessTree
from scheduler.node.launching import own_folders
from scheduler.node.launching.local import Inherited, LocalLauncher, OutputFiles
from scheduler.protocol import messages as m

log = logging.getLogger(__name__)

#: Time limit of a hook, seconds.
HOOK_S = 60.0
#: Hooks that run at a time on a node, at most.
MOST_HOOKS = 100
#: Interval in seconds of searching the descendants of a hook.
LOOK_S = 0.1


class Hooks:
    """The hooks of an agent, at most one for each end of a job.

    Parameters
    ----------
    mark : name of the agent, which its processes carry in their environment.
    limit_s : time limit of a hook in seconds.
    """

    def __init__(self, launcher: LocalLauncher, mark: str, limit_s: float = HOOK_S) -> None:
        self._launcher, self._mark, self._limit_s = launcher, mark, limit_s
        self._trees: dict[int, ProcessTree] = {}  # by job

    def trees(self) -> Iterable[ProcessTree]:
        """Return the processes of all hooks."""
        return self._trees.values()

    def start(self, order: m.RunHook) -> None:
        """Start the hook of a job that has ended; a failure is logged and has no consequence."""
        if order.job in self._trees or len(self._trees) >= MOST_HOOKS:
            log.warning("hook of job=%d is left out: %d run", order.job, len(self._trees))
            return
        marker = {AGENT_VARIABLE: self._mark, "RESHAPE_HOOK": str(order.job)}
        folders = {own_folders.VARIABLE: "\n".join(order.own_folders)}
        try:
            start = self._launcher.start_script(
                order.environment | marker | folders,
                ["/bin/sh", "-c", order.command],
                cwd=order.cwd,
                output=OutputFiles(order.output, order.error),
                inherited=Inherited(order.umask, order.limits),
            )
        except (OSError, ValueError) as error:
            log.warning("hook of job=%d: cannot start: %s", order.job, error)
            return
        self._trees[order.job] = ProcessTree(marker, start, is_script=True)
        log.info("hook of job=%d pid=%d", order.job, start.pid)

    def examine(self) -> None:
        """End hooks that take too long, and forget those that have ended."""
        for job, tree in list(self._trees.items()):
            self._examine(job, tree)

    def _examine(self, job: int, tree: ProcessTree) -> None:
        now = time.monotonic()
        assert tree.start is not None
        if tree.status is None:
            tree.start.ranks.read()
            if now - tree.looked > LOOK_S:
                tree.look()
            if now - tree.started > self._limit_s:
                log.warning("hook of job=%d is ended after %g s", job, self._limit_s)
                tree.send_signal(signal.SIGKILL)
        elif not tree.kill_descendants():
            end = tree.end
            if (end.exit_code, end.signal) != (0, 0):
                why = f": {end.why}" if end.why else ""
                log.warning(
                    "hook of job=%d ended with %d:%d%s", job, end.exit_code, end.signal, why
                )
            tree.start.close()
            del self._trees[job]
