"""The node agent: the application monitor of one node (PRIO 2, System Monitor).

It starts the mpiexec of every group, watches it, and keeps running when the service is gone, so
that a service that comes back finds its jobs. It decides nothing. Once a second, and at every
change, it says all it knows (:class:`~reshape.wire.messages.AgentHello`); the service compares that
with what it wants and answers with commands, which may be repeated without harm.

A group is gone when its mpiexec *and* every process that ever descended from it are gone. The agent
is a subreaper, so orphans come to it; if the agent itself is killed, the kernel takes its mpiexecs
down with it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import psutil
import zmq

from reshape.errors import ReshapeError
from reshape.resizing.restart_point import has_restart_point
from reshape.wire import messages as m
from scheduler.launchers.local import start_mpiexec
from scheduler.launchers.prctl import become_subreaper
from scheduler.node.directory import ServiceDirectory
from scheduler.node.processes import (
    SEGMENT_YOUNG_S,
    GroupProcesses,
    remove_orphaned_segments,
    wake_on_child,
)

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
#: An agent without groups whose service stays away this long has no reason to live.
LONELY_S = 60.0


class Agent:
    """Starts, watches and ends the groups of one node, as its service says.

    Parameters
    ----------
    directory : the service's directory; its endpoint and secret are read there.
    node : name of this node.
    """

    def __init__(self, directory: ServiceDirectory, node: str) -> None:
        self.directory = directory
        self.node = node
        self.secret = directory.read_secret()
        self.groups: dict[tuple[int, int], GroupProcesses] = {}
        self.watches: dict[int, tuple[int, float]] = {}
        self.helpers: dict[int, tuple[subprocess.Popen[bytes], float]] = {}
        self.stopping = False
        self.heard = time.monotonic()
        self._changed = True
        self._beat = 0.0
        self._born = time.time()
        self._tidy_at: float | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._connect()

    def _connect(self) -> None:
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        # Old beats are worthless: each says everything.
        self._socket.setsockopt(zmq.SNDHWM, 10)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.connect(self.directory.endpoint)

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Serve until told to stop, or until there is nothing to do and nobody to do it for."""
        try:
            become_subreaper()
        except OSError as error:
            log.warning("this agent cannot adopt orphans: %s", error.strerror)
        wake = wake_on_child()
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(wake, zmq.POLLIN)
        while not (self.stopping and not self._busy()):
            if self._changed or time.monotonic() - self._beat > HEARTBEAT_S:
                self._hello()
            waits_for_death = self.stopping or any(
                group.kill_at is not None or group.status is not None
                for group in self.groups.values()
                if not group.gone
            )
            for ready, _event in poller.poll(
                20 if waits_for_death else 50 if self._changed else 500
            ):
                if ready == wake:
                    os.read(wake, 4096)
            while self._socket.poll(0):
                self._take(self._socket.recv_multipart())
            self._tick()
            if not self._busy() and time.monotonic() - self.heard > LONELY_S:
                log.info("no service and no group: ending")
                return
        self._hello()
        if self._tidy_at is not None:
            time.sleep(SEGMENT_YOUNG_S)
            remove_orphaned_segments(self._born)
        self._socket.close(linger=500)

    def _busy(self) -> bool:
        return any(not group.gone for group in self.groups.values())

    def _hello(self) -> None:
        self._beat, self._changed = time.monotonic(), False
        jobs = {job for job, _ in self.groups}
        hello = m.AgentHello(
            node=self.node,
            pid=os.getpid(),
            secret=self.secret,
            groups=[group.report() for group in self.groups.values()],
            restart_points=[job for job in jobs if has_restart_point(self.directory.shm(job))],
        )
        try:
            self._socket.send_multipart(m.encode(hello), zmq.NOBLOCK)
        except zmq.Again:
            self._changed = True  # nobody to tell it to: try again soon

    def _take(self, frames: list[bytes]) -> None:
        message = m.decode(frames)
        self.heard = time.monotonic()
        match message:
            case m.StartGroup():
                self.start_group(message)
            case m.KillGroup():
                group = self.groups.get((message.job, message.group))
                if group is not None:
                    self._kill(group, message.grace_s, message.why)
            case m.WatchJoin():
                if message.deadline_s > 0:
                    deadline = time.monotonic() + message.deadline_s
                    self.watches[message.job] = (message.serial, deadline)
                else:
                    self.watches.pop(message.job, None)
            case m.CancelAccept():
                self._cancel_accept(message)
            case m.SweepJob():
                self._sweep(message.job)
            case m.AgentStop():
                log.info("told to stop")
                self.stopping = True
                for group in self.groups.values():
                    self._kill(group, 0.5, "the service was stopped")
            case m.Done():
                pass
            case m.Failure():
                log.error("the service says: %s", message.message)
            case _:
                log.error("unexpected message %s", type(message).__name__)

    # ------------------------------------------------------------------ groups

    def start_group(self, order: m.StartGroup) -> None:
        """Start the mpiexec of a group, unless the group is known already."""
        key = (order.job, order.group)
        if key in self.groups or self.stopping:
            return
        group = self.groups[key] = GroupProcesses(order)
        self._changed = True
        try:
            output = os.open(order.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            self._never_ran(group, f"cannot write the output: {error}")
            return
        try:
            group.process = start_mpiexec(
                order.environment, order.size, order.argv, cwd=order.cwd, output=output
            )
        except (OSError, ReshapeError) as error:
            self._never_ran(group, f"cannot start in {order.cwd}: {error}")
            return
        finally:
            os.close(output)
        group.pid, group.started = group.process.pid, time.monotonic()
        log.info("start job=%d group=%d size=%d pid=%d", *key, order.size, group.pid)

    def _never_ran(self, group: GroupProcesses, why: str) -> None:
        group.gone, group.exit_code, group.why = True, 126, why
        log.error("start job=%d group=%d: %s", group.order.job, group.order.group, why)

    def _kill(self, group: GroupProcesses, grace_s: float, why: str) -> None:
        if group.gone or group.kill_at is not None:
            return
        group.look()
        group.why = group.why or why
        group.kill_at = time.monotonic() + grace_s
        log.info("kill job=%d group=%d: %s", group.order.job, group.order.group, why)
        with contextlib.suppress(ProcessLookupError):
            os.kill(group.pid, signal.SIGTERM if grace_s else signal.SIGKILL)

    def _tick(self) -> None:
        """Reap the dead, finish the killing, look at what is new."""
        self._reap()
        now = time.monotonic()
        for group in self.groups.values():
            if group.gone:
                continue
            if group.status is None:
                young = now - group.started < 5.0
                if now - group.looked > (0.5 if young else 5.0):
                    group.look()
                if group.kill_at is not None and now > group.kill_at:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(group.pid, signal.SIGKILL)
            if group.status is not None or (group.kill_at is not None and now > group.kill_at):
                self._finish(group)
        for job, (serial, deadline) in list(self.watches.items()):
            if now > deadline:
                self._join_overdue(job, serial)
        if self._tidy_at is not None and now > self._tidy_at:
            self._tidy_at = None
            remove_orphaned_segments(self._born)
        for pid, (_, deadline) in self.helpers.items():
            if now > deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _finish(self, group: GroupProcesses) -> None:
        """End what outlived the group's mpiexec; the group is gone when all of it is."""
        alive = group.living()
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if alive or group.status is None:
            return
        code = os.waitstatus_to_exitcode(group.status)
        group.exit_code, group.signal = (code, 0) if code >= 0 else (0, -code)
        if code != 0:
            self._tidy_at = time.monotonic() + 2 * SEGMENT_YOUNG_S
        group.gone = self._changed = True
        log.info(
            "end job=%d group=%d code=%d signal=%d %s",
            group.order.job,
            group.order.group,
            group.exit_code,
            group.signal,
            group.why,
        )

    def _reap(self) -> None:
        by_pid = {group.pid: group for group in self.groups.values() if not group.gone}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            # The agent reaps for itself (orphans come to it too), so Popen must not wait again.
            if pid in by_pid:
                by_pid[pid].status = status
                process = by_pid[pid].process
                assert process is not None
                process.returncode = os.waitstatus_to_exitcode(status)
            elif pid in self.helpers:
                helper, _ = self.helpers.pop(pid)
                helper.returncode = os.waitstatus_to_exitcode(status)

    # ------------------------------------------------------------------ resizes

    def _join_overdue(self, job: int, serial: int) -> None:
        """Kill a job that hangs within a resize; it can restart from its restart point."""
        del self.watches[job]
        if not has_restart_point(self.directory.shm(job)):
            return
        log.warning("resize %d of job %d is overdue", serial, job)
        for (other, _), group in self.groups.items():
            if other == job:
                self._kill(group, 0.5, f"resize {serial} did not finish in time")

    def _cancel_accept(self, order: m.CancelAccept) -> None:
        """Connect in place of a dead newcomer and say "cancel" (FIELD: a blocked Accept)."""
        helper = start_mpiexec(
            order.environment, 1, [sys.executable, "-m", "reshape.resizing.stand_in", order.port]
        )
        self.helpers[helper.pid] = (helper, time.monotonic() + 10.0)
        log.info("cancel accept of job=%d serial=%d", order.job, order.serial)

    def _sweep(self, job: int) -> None:
        """Remove what a finished job left in memory, and forget its groups."""
        if any(key[0] == job and not group.gone for key, group in self.groups.items()):
            return
        self.watches.pop(job, None)
        self.groups = {key: group for key, group in self.groups.items() if key[0] != job}
        self._changed = True  # a second life of the job may wait for this
        shutil.rmtree(self.directory.shm(job), ignore_errors=True)


@click.command()
@click.option("--dir", "directory", required=True, type=click.Path(path_type=Path))
@click.option("--node", required=True, help="Name of this node.")
def main(directory: Path, node: str) -> None:
    """Run the agent of one node (started by the service)."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    place = ServiceDirectory(directory)
    with place.agent_lock(node) as locked:
        if not locked:
            log.info("an agent of %s is already running", node)
            return
        log.info("agent of %s pid=%d", node, os.getpid())
        Agent(place, node).run()
