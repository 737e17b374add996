"""The agent of a node: starts, watches and ends the groups of jobs (PRIO 2, System Monitor).

An agent makes no scheduling decisions. Once a second, and at every change, it reports all groups
of its node (:class:`~reshape.wire.messages.AgentHello`). The service compares the report with the
scheduler state and answers with commands, which may be repeated without harm. The agent continues
without the service, so that a restarted service finds its jobs.

A group has ended when its mpiexec and all descendants of it have ended. The agent is a subreaper:
it becomes the parent of descendants whose parents die. If the agent is killed, the kernel ends its
mpiexecs, and the next agent of the node ends what is left (:mod:`scheduler.node.leftovers`).

No single message or job can end or block the agent: it refuses messages that it cannot read, and a
process of its own opens the files of each group that it starts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from types import FrameType

import zmq

from reshape.errors import ProtocolError, ReshapeError
from reshape.private_folder import make_private
from reshape.resizing.restart_point import has_restart_point
from reshape.wire import messages as m
from reshape.wire.client import use_keys
from reshape.wire.codec import MAX_REQUEST_FRAME_BYTES, decode, encode, is_other_release, start_of
from scheduler.launchers.cores import binding_text, cores
from scheduler.launchers.local import (
    MpiexecStart,
    OutputFile,
    bound,
    start_mpiexec,
    start_proxy,
    start_spanning_mpiexec,
)
from scheduler.launchers.prctl import become_subreaper
from scheduler.launchers.starter import CANNOT_START
from scheduler.node import leftovers, mpi_memory
from scheduler.node.directory import ServiceDirectory
from scheduler.node.host_place import HostPlace
from scheduler.node.logs import RefusalLog
from scheduler.node.memory_use import MemoryUse
from scheduler.node.mpi_files import MpiFiles
from scheduler.node.processes import (
    AGENT_VARIABLE,
    EndedJobs,
    GroupProcesses,
    ProcessTree,
    wake_on_child,
)
from scheduler.node.stand_ins import STAND_IN_S, StandIns

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
#: Messages read in one turn of the loop.
TURN = 256
#: Silence of the service, in seconds, after which an agent opens another connection; not before
#: three reports have had no answer.
RECONNECT_S = 10.0
#: An agent without groups ends if its service has been silent for this long.
IDLE_EXIT_S = 60.0
#: Time limit for opening the output and entering the working directory of a group.
START_S = 20.0
#: A group is young for this long. Its processes still start others and create shared memory.
YOUNG_S = 3.0
#: Interval in seconds of searching the descendants of young groups, and of others.
LOOK_YOUNG_S, LOOK_S = 0.1, 5.0


class Agent:
    """Starts, watches and ends the groups of one node on behalf of its service.

    Parameters
    ----------
    directory : the directory of the service, which holds its endpoint and its secret; on another
        host what the agent has instead.
    node : name of this node.
    start_s : time limit in seconds for opening the files of a group.
    stand_in_s : time limit in seconds of a stand-in.
    address : address under which other hosts reach this one.
    ends_by_signal : whether SIGTERM announces that the host is taken away, as in a Slurm job. The
        agent then reports its end at once and ends its groups.

    Raises
    ------
    ReshapeError : the folder for shared memory is not safe to use.
    """

    def __init__(
        self,
        directory: ServiceDirectory | HostPlace,
        node: str,
        start_s: float = START_S,
        stand_in_s: float = STAND_IN_S,
        address: str = "",
        ends_by_signal: bool = False,
    ) -> None:
        self.directory = directory
        self.node = node
        self._remote = directory if isinstance(directory, HostPlace) else None
        self._incarnation = secrets.token_hex(8)
        self._cores = cores()
        self._heartbeat_s = HEARTBEAT_S
        self._address = address
        if self._remote is not None:
            self._heartbeat_s = self._remote.settings.heartbeat_s
            self._remote.write_job_access()
        self.start_s = start_s
        self.mark = f"{directory.memory.name}/{node}"
        self.groups: dict[tuple[int, int], GroupProcesses] = {}
        self.watches: dict[int, tuple[int, float]] = {}
        self.stopping = self._is_terminated = False
        self._ends_by_signal = ends_by_signal
        self._secret = directory.read_secret()
        self._ended = EndedJobs()
        self._forgotten: dict[int, int] = {}  # job -> highest group that the service acknowledged
        self._heard = time.monotonic()
        self._refusals = RefusalLog(log)
        self._other_release = False
        self._changed = True
        self._reported = 0.0
        make_private(directory.memory)
        self._mpi_files = MpiFiles(directory.memory / f"mpi-files-{node}")
        self._stand_ins = StandIns(self.mark, self._mpi_files, stand_in_s)
        self._memory_use = MemoryUse()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._connect()

    def _connect(self) -> None:
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        # A report holds the complete state, so old reports need no queue.
        self._socket.setsockopt(zmq.SNDHWM, 10)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_REQUEST_FRAME_BYTES)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        if self._remote is not None:
            use_keys(self._socket, self._remote.access)
            self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)  # milliseconds
        self._socket.connect(self.directory.endpoint)
        self._connected = time.monotonic()

    def _reconnect_if_silent(self, poller: zmq.Poller) -> None:
        """Open another connection if the service has answered no report for some time.

        ZeroMQ does not connect again after a message that is larger than the limit.
        """
        now = time.monotonic()
        if now - max(self._heard, self._connected) > max(RECONNECT_S, 3 * self._heartbeat_s):
            poller.unregister(self._socket)
            self._socket.close()
            self._connect()
            poller.register(self._socket, zmq.POLLIN)
            self._changed = True

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Serve until the service asks to stop, or until there is neither a group nor a service."""
        try:
            become_subreaper()
        except OSError as error:
            log.warning("this agent cannot adopt orphans: %s", error.strerror)
        leftovers.end_processes(self.mark)
        self._mpi_files.remove_left()
        wake = wake_on_child()
        if self._ends_by_signal:
            signal.signal(signal.SIGTERM, self._note_termination)
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(wake, zmq.POLLIN)
        while not (self.stopping and not self._is_busy):
            if self._is_terminated:
                self._stop_reporting_end()
            elif self._changed or time.monotonic() - self._reported > self._heartbeat_s:
                self._report()
            for ready, _event in poller.poll(self._poll_ms()):
                if ready == wake:
                    os.read(wake, 4096)
            for _ in range(TURN):
                if not self._socket.poll(0):
                    break
                self._receive(self._socket.recv_multipart())
            self._tick()
            self._reconnect_if_silent(poller)
            if self._may_exit():
                break
        if not self._is_terminated:
            self._report(ends=True)
        self._remove_memory()
        self._socket.close(linger=500)

    def _note_termination(self, _number: int, _frame: FrameType | None) -> None:
        self._is_terminated = True

    def _stop_reporting_end(self) -> None:
        """Report the end of this agent, so that its node is lost now, and end all groups."""
        if not self.stopping:
            log.info("terminated by a signal: the host is taken away")
            self._report(ends=True)
            self._stop("its host is taken away")

    def _poll_ms(self) -> int:
        groups = [group for group in self.groups.values() if not group.gone]
        if self.stopping or any(
            group.kill_at is not None or group.tree.status is not None for group in groups
        ):
            return 20
        if any(group.tree.awaits_proxies for group in groups):
            return 2
        now = time.monotonic()
        if any(now - group.tree.started < YOUNG_S for group in groups):
            return round(1000 * LOOK_YOUNG_S)
        return 50 if self._changed else 500

    @property
    def _is_busy(self) -> bool:
        return any(not group.gone for group in self.groups.values())

    def _may_exit(self) -> bool:
        if self._is_busy:
            return False
        if self._other_release:
            log.info("no group runs, and the service is of another release: ending")
            return True
        if self._remote is None and time.monotonic() - self._heard > IDLE_EXIT_S:
            log.info("no group runs, and there is no service: ending")
            return True
        return False

    def _report(self, *, ends: bool = False) -> None:
        self._reported, self._changed = time.monotonic(), False
        folders = self.directory.jobs_with_folder()
        self._memory_use.sample((g.job, g.tree) for g in self.groups.values() if not g.gone)
        hello = m.AgentHello(
            node=self.node,
            pid=os.getpid(),
            secret=self._secret,
            groups=[group.report() for group in self.groups.values()],
            restart_points=[job for job in folders if has_restart_point(self.directory.shm(job))],
            folders=folders,
            host="" if self._remote is None else socket.gethostname(),
            incarnation=self._incarnation,
            address=self._address,
            ends=ends,
            max_memory_mib=self._memory_use.report(),
            cores=self._cores,
        )
        try:
            self._socket.send_multipart(encode(hello), zmq.NOBLOCK)
        except zmq.Again:
            self._changed = True  # not connected: retry soon

    def _receive(self, frames: list[bytes]) -> None:
        """Carry out a message; one that cannot be read or carried out is refused and logged."""
        try:
            message = decode(frames)
        except ProtocolError as error:
            self._refuse(frames, str(error))
            return
        self._heard, self._other_release = time.monotonic(), False
        try:
            self._carry_out(message)
        except Exception as error:
            log.exception("cannot carry out %s", type(message).__name__)
            if isinstance(message, m.StartGroup | m.StartProxy):
                self._refuse_start(message.job, message.group, f"{type(error).__name__}: {error}")

    def _refuse(self, frames: list[bytes], why: str) -> None:
        jobs = sorted({job for (job, _), group in self.groups.items() if not group.gone})
        self._refusals.add(f"{why}; jobs {jobs} continue" if jobs else why)
        self._other_release = is_other_release(frames)
        if (start := start_of(frames)) is not None:
            self._refuse_start(*start, f"its agent cannot read the start: {why}")

    def _carry_out(self, message: m.Message) -> None:
        match message:
            case m.StartGroup():
                self._start(message, partial(self._start_mpiexec, message))
            case m.StartProxy():
                self._start(message, partial(self._start_proxy, message))
            case m.KillGroup():
                group = self.groups.get((message.job, message.group))
                if group is not None:
                    self._kill(group, message.grace_s, message.why)
            case m.ForgetGroups():
                self._forget(message.job, message.groups)
            case m.WatchJoin():
                if message.deadline_s > 0:
                    deadline = time.monotonic() + message.deadline_s
                    self.watches[message.job] = (message.serial, deadline)
                else:
                    self.watches.pop(message.job, None)
            case m.CancelAccept():
                self._stand_ins.start(message)
            case m.SweepJob():
                self._sweep(message.job)
            case m.AgentStop():
                log.info("the service requests the end of the agent")
                self._stop("the service was stopped")
            case m.Done():
                pass
            case m.Failure():
                self._refusals.add(f"the service answers: {message.message}")
            case _:
                self._refusals.add(f"unexpected message type {type(message).__name__}")

    def _stop(self, why: str) -> None:
        """End all groups, and then this agent."""
        self.stopping = True
        for group in self.groups.values():
            self._kill(group, 0.5, why)

    # ------------------------------------------------------------------ groups

    def _start(
        self,
        order: m.StartGroup | m.StartProxy,
        start: Callable[[dict[str, str]], MpiexecStart],
    ) -> None:
        """Start the processes of a group on this host, unless that was done before.

        Parameters
        ----------
        start : starts them, with the variables by which this agent recognises them.
        """
        key = (order.job, order.group)
        if key in self.groups or self.stopping or order.group <= self._forgotten.get(order.job, -1):
            return
        if isinstance(order, m.StartGroup):
            if (ended := self._ended.end_of(order)) is not None:
                log.warning("job=%d group=%d has run already: its end is reported again", *key)
                self.groups[key], self._changed = ended, True
                return
            self._ended.started(order)
        own = {AGENT_VARIABLE: self.mark}
        numbers = {"RESHAPE_JOB": str(order.job), "RESHAPE_GROUP": str(order.group)}
        cpus = {"RESHAPE_CPUS": binding_text(order.cpus)} if order.cpus else {}
        spans = isinstance(order, m.StartGroup) and bool(order.hosts)
        is_proxy = isinstance(order, m.StartProxy)
        tree = ProcessTree(own | numbers, spans=spans, is_proxy=is_proxy)
        try:
            if lack := mpi_memory.lack_of_room(order.size):
                raise ReshapeError(lack)
            self.directory.make_job_folder(order.job)
            tree.start = start(own | numbers | cpus)
        except (OSError, ValueError, ReshapeError) as error:
            self._refuse_start(*key, f"cannot start: {error}")
            return
        self.groups[key] = GroupProcesses(*key, tree, cpus=order.cpus)
        self._changed = True
        log.info("start job=%d group=%d size=%d pid=%d", *key, order.size, tree.pid)

    def _start_mpiexec(self, order: m.StartGroup, marks: dict[str, str]) -> MpiexecStart:
        environment = order.environment | marks
        argv = bound(order.argv) if order.binds else order.argv
        output = OutputFile(order.output, order.truncate)
        if not order.hosts:
            return start_mpiexec(environment, order.size, argv, cwd=order.cwd, output=output)
        return start_spanning_mpiexec(
            environment,
            order.hosts,
            order.rank_hosts,
            order.address,
            argv,
            cwd=order.cwd,
            output=output,
        )

    def _start_proxy(self, order: m.StartProxy, marks: dict[str, str]) -> MpiexecStart:
        return start_proxy(marks, order.command, cwd=order.cwd)

    def _refuse_start(self, job: int, number: int, why: str) -> None:
        """Record a group that was never started, so that the service learns the reason."""
        if (job, number) not in self.groups:
            self.groups[job, number] = GroupProcesses(job, number, ProcessTree({}))
            self._never_ran(self.groups[job, number], why)

    def _never_ran(self, group: GroupProcesses, why: str) -> None:
        group.gone, group.exit_code, group.why = True, CANNOT_START, why
        self._changed = True
        log.error("start job=%d group=%d: %s", group.job, group.group, why)

    def _kill(self, group: GroupProcesses, grace_s: float, why: str) -> None:
        if group.gone or group.kill_at is not None:
            return
        group.tree.look()
        group.why = group.why or why
        group.kill_at = time.monotonic() + grace_s
        log.info("kill job=%d group=%d: %s", group.job, group.group, why)
        group.tree.send_signal(signal.SIGTERM if grace_s else signal.SIGKILL)

    def _forget(self, job: int, numbers: list[int]) -> None:
        """Drop groups that have ended and whose end the service has recorded."""
        for number in numbers:
            group = self.groups.get((job, number))
            if group is not None and group.gone:
                del self.groups[job, number]
                self._forgotten[job] = max(number, self._forgotten.get(job, number))
                self._changed = True

    def _tick(self) -> None:
        """Reap children, finish kills, and enforce deadlines."""
        self._reap()
        for group in list(self.groups.values()):
            if not group.gone:
                try:
                    self._examine(group)
                except Exception:
                    log.exception("cannot examine group %d of job %d", group.group, group.job)
        now = time.monotonic()
        for job, (serial, deadline) in list(self.watches.items()):
            if now > deadline:
                self._join_overdue(job, serial)
        self._stand_ins.examine()
        living = [group.tree for group in self.groups.values() if not group.gone]
        self._mpi_files.note([*living, *self._stand_ins.trees()])
        self._mpi_files.remove_due()

    def _examine(self, group: GroupProcesses) -> None:
        tree, now = group.tree, time.monotonic()
        if tree.awaits_proxies and tree.start is not None:
            tree.has_proxies = bool(tree.start.proxies)
            self._changed |= tree.has_proxies
        is_due = group.kill_at is not None and now > group.kill_at
        if tree.status is None:
            age = now - tree.started
            if now - tree.looked > (LOOK_YOUNG_S if age < YOUNG_S else LOOK_S):
                tree.look()
            if age > self.start_s and group.kill_at is None and self._is_pending(group):
                self._give_up_start(group)
                return
            if is_due:
                tree.send_signal(signal.SIGKILL)
        if tree.status is not None or is_due:
            self._finish(group)

    def _is_pending(self, group: GroupProcesses) -> bool:
        return group.tree.start is not None and group.tree.start.is_pending

    def _give_up_start(self, group: GroupProcesses) -> None:
        """End a group whose files cannot be opened; its process may be impossible to kill."""
        assert group.tree.start is not None
        group.tree.send_signal(signal.SIGKILL)
        group.tree.start.close()
        self._never_ran(
            group,
            f"cannot open its output or enter its directory within {self.start_s:g} s: check that"
            " their file systems respond",
        )

    def _finish(self, group: GroupProcesses) -> None:
        """Kill the descendants of an mpiexec; the group has ended when all of them have."""
        tree = group.tree
        if tree.kill_descendants() or tree.status is None:
            return
        code = os.waitstatus_to_exitcode(tree.status)
        group.exit_code, group.signal = (code, 0) if code >= 0 else (0, -code)
        if tree.start is not None and tree.start.failure:
            group.why = tree.start.failure
        elif tree.is_proxy:
            pass  # its code has a meaning only for mpiexec
        elif code in (signal.SIGBUS, -signal.SIGBUS, 128 + signal.SIGBUS) and not group.why:
            free = shutil.disk_usage(mpi_memory.FOLDER).free >> 20
            group.why = (
                f"this code means a bus error if the program has not set it: {mpi_memory.FOLDER}"
                f" may have been full ({free} MiB are free now)"
            )
        if tree.start is not None:
            tree.start.close()
        if code != 0:
            self._mpi_files.remove_later(tree)
        self._memory_use.ended(group.job, tree.largest_process)
        group.gone = self._changed = True
        log.info(
            "end job=%d group=%d code=%d signal=%d %s",
            group.job,
            group.group,
            group.exit_code,
            group.signal,
            group.why,
        )

    def _reap(self) -> None:
        trees = [group.tree for group in self.groups.values()] + [*self._stand_ins.trees()]
        by_pid = {tree.pid: tree for tree in trees if tree.pid and tree.status is None}
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in by_pid:  # other children are orphans that this agent has adopted
                by_pid[pid].reaped(status, usage.ru_maxrss << 10)

    def _remove_memory(self) -> None:
        """Remove all shared memory before this agent ends, except that of jobs that may restart.

        What another agent of the service on this host uses stays, too, as when a batch system has
        granted parts of the host to two allocations.
        """
        self._mpi_files.finish()
        if self.stopping and (self._remote is None or not self._remote.is_shared(self.node)):
            for job in self.directory.jobs_with_folder():
                shutil.rmtree(self.directory.shm(job), ignore_errors=True)
            self.directory.job_access.unlink(missing_ok=True)
        if self._remote is not None:
            self._remote.remove(self.node)
        with contextlib.suppress(OSError):  # it is in use
            self.directory.memory.rmdir()

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

    def _sweep(self, job: int) -> None:
        """Remove the shared memory of a job that has ended, and forget its groups."""
        if any(key[0] == job and not group.gone for key, group in self.groups.items()):
            return
        self.watches.pop(job, None)
        self._forgotten.pop(job, None)
        self._memory_use.forget(job)
        self._ended.ended(job, [group for key, group in self.groups.items() if key[0] == job])
        self.groups = {key: group for key, group in self.groups.items() if key[0] != job}
        self._changed = True  # the next start of the job may wait for this
        shutil.rmtree(self.directory.shm(job), ignore_errors=True)
