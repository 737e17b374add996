"""The agent of a node, and `reshape agent`, which runs it (PRIO 2, System Monitor).

An agent makes no scheduling decisions. Once a second, and at every change, it reports all groups
of its node (:class:`~scheduler.protocol.messages.AgentHello`). The service compares the report with
the scheduler state and answers with commands, which may be repeated without harm
(:mod:`scheduler.node.node_groups` carries them out). The agent continues without the
service, so that a restarted service finds its jobs.

If the agent is killed, the kernel ends its mpiexecs. The next agent of the node ends what is left
(:mod:`scheduler.node.leftovers`) and reports the ends that the service may not know. No single
message or job can end or block the agent: it refuses messages that it cannot read.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType

import click
import msgspec
import zmq

import reshape
from reshape.cli.options import example
from reshape.errors import ProtocolError, ReshapeError, ServiceUnavailable
from reshape.files.private_folder import make_private
from reshape.wire.access import AccessFile, read_access
from reshape.wire.codec import MAX_REQUEST_FRAME_BYTES, encode
from reshape.wire.connection import own_address, use_keys
from reshape.wire.identity import slurm_job
from scheduler.node.directory import HostPlace, Lock, ServiceDirectory
from scheduler.node.launching.cores import cores
from scheduler.node.launching.launcher import never_began
from scheduler.node.launching.prctl import survive_hangup
from scheduler.node.logs import FORMAT, BoundedLog, log_to_file
from scheduler.node.node_groups import NodeGroups
from scheduler.node.processes import wake_on_child
from scheduler.protocol import messages as m
from scheduler.protocol.client import ServiceConnection, expect
from scheduler.protocol.messages import decode, is_other_release, start_of

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
#: Messages read in one turn of the loop.
TURN = 256
#: Silence of the service, in seconds, after which an agent opens another connection; not before
#: three reports have had no answer.
RECONNECT_S = 10.0
#: An agent that has no groups, and no ends to report, ends if its service has been silent for this
#: long.
IDLE_EXIT_S = 60.0
#: Seconds to wait for the answer to an arrival, and between two log lines about a silent service.
ANSWER_S, SILENCE_LOG_S = 5.0, 30.0
#: Stands for the standard input instead of an access file.
STANDARD_INPUT = "-"


class Agent:
    """Serves one node: reports its groups to the service, and carries out the orders.

    Parameters
    ----------
    directory : the directory of the service, which holds its endpoint and its secret; on another
        host what the agent has instead.
    node : name of this node.
    lock : by which others see that an agent of the node runs.
    address : address under which other hosts reach this one.
    loses_host : whether SIGTERM or SIGINT announces that the host is taken away, as in a Slurm job.
        Otherwise the shared memory of jobs stays for the next agent of the node.

    Raises
    ------
    ReshapeError : the folder for shared memory is not safe to use.
    """

    def __init__(
        self,
        directory: ServiceDirectory | HostPlace,
        node: str,
        lock: Lock,
        address: str = "",
        loses_host: bool = False,
    ) -> None:
        self.directory = directory
        self.node = node
        self._lock = lock
        self._remote = directory if isinstance(directory, HostPlace) else None
        self._incarnation = secrets.token_hex(8)
        self._cores = cores()
        self._heartbeat_s = HEARTBEAT_S
        self._address = address
        if self._remote is not None:
            self._heartbeat_s = self._remote.settings.heartbeat_s
        self._is_terminated = self._is_replaced = False
        self._loses_host = loses_host
        self._secret = directory.read_secret()
        self._heard = time.monotonic()
        self._refusals = BoundedLog(log, burst=1, per_second=0.1)
        self._other_release = False
        self._reported = 0.0
        make_private(directory.memory)
        try:
            directory.write_job_access()
        except ReshapeError as error:  # a job that starts without the file writes it
            log.warning("%s", error)
        self._groups = NodeGroups(directory, node)
        self._orders = self._groups.orders()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._connect(directory.endpoint)

    def _connect(self, endpoint: str) -> None:
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        # A report holds the complete state, so old reports need no queue.
        self._socket.setsockopt(zmq.SNDHWM, 10)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_REQUEST_FRAME_BYTES)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        if self._remote is not None:
            use_keys(self._socket, self._remote.access)
            self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)  # milliseconds
        self._socket.connect(endpoint)
        self._connected = time.monotonic()

    def _reconnect_if_silent(self, poller: zmq.Poller) -> None:
        """Open another connection if the service has answered no report for some time.

        ZeroMQ does not connect again after a message that is larger than the limit, and the
        directory of the service may have been moved.
        """
        now = time.monotonic()
        if now - max(self._heard, self._connected) <= max(RECONNECT_S, 3 * self._heartbeat_s):
            return
        self._connected = now
        try:
            if isinstance(self.directory, ServiceDirectory):
                self.directory.follow()
            endpoint = self.directory.endpoint
        except ReshapeError as error:  # the jobs continue
            log.warning("cannot find the service: %s", error)
            return
        poller.unregister(self._socket)
        self._socket.close()
        self._connect(endpoint)
        poller.register(self._socket, zmq.POLLIN)
        self._groups.changed = True

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        """Serve until the service asks to stop, or until there is neither a group nor a service."""
        groups = self._groups
        groups.take_over()
        wake = wake_on_child()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note_termination)
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(wake, zmq.POLLIN)
        while not (groups.stopping and not groups.is_busy):
            if self._is_terminated:
                self._stop_reporting_end()
            elif groups.changed or time.monotonic() - self._reported > self._heartbeat_s:
                self._report()
            for ready, _event in poller.poll(groups.wait_ms()):
                if ready == wake:
                    os.read(wake, 4096)
            # First, since orders that have waited while this process was stopped are outdated.
            self._reconnect_if_silent(poller)
            for _ in range(TURN):
                if not self._socket.poll(0):
                    break
                self._receive(self._socket.recv_multipart())
            groups.examine()
            if self._may_exit():
                break
        if not self._is_terminated:
            self._report(ends=True)
        if not self._is_replaced:
            self._remove_memory()
        self._socket.close(linger=500)

    def _note_termination(self, _number: int, _frame: FrameType | None) -> None:
        self._is_terminated = True

    def _stop_reporting_end(self) -> None:
        """Report the end of this agent, so that its node is lost now, and end all groups."""
        if not self._groups.stopping:
            why = "its host is taken away" if self._loses_host else "its agent was ended"
            log.info("terminated by a signal: %s", why)
            self._report(ends=True)
            self._groups.stop(why)

    @property
    def _keeps_memory(self) -> bool:
        """Whether this agent is to leave the shared memory of jobs, from which they may restart."""
        return self._is_terminated and not self._loses_host

    def _may_exit(self) -> bool:
        if self._groups.is_busy:
            return False
        if self._other_release:
            log.info("no group runs, and the service is of another release: ending")
            return True
        place = self.directory
        if isinstance(place, ServiceDirectory) and time.monotonic() - self._heard > IDLE_EXIT_S:
            if self._groups.has_unknown_ends and place.path.is_dir():
                return False  # the next service learns from this agent alone how jobs have ended
            log.info("no group runs, and there is no service: ending")
            return True
        return False

    def _report(self, *, ends: bool = False) -> None:
        groups = self._groups
        self._reported, groups.changed = time.monotonic(), False
        with contextlib.suppress(OSError):  # the directory is gone, or full
            self._lock.keep()
        folders = self.directory.jobs_with_folder()
        hello = m.AgentHello(
            node=self.node,
            pid=os.getpid(),
            secret=self._secret,
            groups=groups.report(),
            restart_points=groups.restart_points(folders),
            folders=folders,
            host="" if self._remote is None else socket.gethostname(),
            incarnation=self._incarnation,
            address=self._address,
            ends=ends,
            keeps_memory=self._keeps_memory,
            max_memory_mib=groups.max_memory_mib(),
            cores=self._cores,
            probe=groups.errands.probe,
            probe_failure=groups.errands.probe_failure,
            positions=groups.positions(),
        )
        try:
            self._socket.send_multipart(encode(hello), zmq.NOBLOCK)
        except zmq.Again:
            groups.changed = True  # not connected: retry soon

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
            if isinstance(message, m.StartGroup):
                end = never_began(f"{type(error).__name__}: {error}", "")
                self._groups.refuse_start(message.job, message.group, end)

    def _refuse(self, frames: list[bytes], why: str) -> None:
        jobs = self._groups.running_jobs()
        self._refusals.error("refused: %s", f"{why}; jobs {jobs} continue" if jobs else why)
        self._other_release = is_other_release(frames)
        if (start := start_of(frames)) is not None:
            end = never_began(f"its agent cannot read the start: {why}", "job")
            self._groups.refuse_start(*start, end)

    def _carry_out(self, message: m.Message) -> None:
        kind = type(message)
        if kind in self._orders:
            self._orders[kind](message)
        elif isinstance(message, m.AgentStop):
            log.info("the service requests the end of the agent")
            self._is_replaced = message.is_replaced
            self._groups.stop("the service was stopped")
        elif isinstance(message, m.Failure):
            self._refusals.error("refused: the service answers: %s", message.message)
            with contextlib.suppress(ReshapeError):  # it was removed
                self._secret = self.directory.read_secret()  # it may have been made again
        elif not isinstance(message, m.Done):
            self._refusals.error("refused: unexpected message type %s", kind.__name__)

    def _remove_memory(self) -> None:
        """Remove all shared memory before this agent ends, except that of jobs that may restart.

        What another agent of the service on this host uses stays, too, as when a batch system has
        granted parts of the host to two allocations.
        """
        groups = self._groups
        groups.finish()
        if self._keeps_memory:
            return
        if groups.stopping and (self._remote is None or not self._remote.is_shared(self.node)):
            self.directory.remove_all()
        if self._remote is not None:
            self._remote.remove(self.node)
        with contextlib.suppress(OSError):  # it is in use
            self.directory.memory.rmdir()


# ---------------------------------------------------------------- the command


@click.command()
@click.option("--dir", "directory", type=click.Path(path_type=Path), hidden=True)
@click.option(
    "--connect",
    "access",
    metavar="ACCESS-FILE",
    help="Access file of the role agent, such as DIR/access/agent.json; - reads standard input.",
)
@click.option("--node", required=True, help="Name of this node in the machine file.")
@click.option("--background", is_flag=True, help="Return when the service has accepted the agent.")
@click.option(
    "--log",
    "log_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Log file; default: standard error, or ~/.reshape/agent-NODE.log with --background.",
)
@example("reshape agent --connect agent.json --node n2")
def main(
    directory: Path | None,
    access: str | None,
    node: str,
    background: bool,
    log_file: Path | None,
) -> None:
    """Serve a node of a service on another host.

    The agent connects over TCP and reconnects without a limit of time. Jobs continue while the
    service is away. The service starts the agents of nodes with the launchers local and ssh by
    itself.
    """
    if (directory is None) == (access is None):
        raise click.UsageError("name the service by --connect ACCESS-FILE")
    survive_hangup()
    if directory is not None:
        _serve_local(ServiceDirectory(directory), node)
    else:
        assert access is not None
        _serve_remote(_read_agent_access(access), node, background, log_file)


def _serve_local(directory: ServiceDirectory, node: str) -> None:
    directory.read_secret()  # raises if it is not the directory of a service
    log_to_file(directory.log(f"agent-{node}"))
    directory.keep_open()
    with directory.agent_lock(node) as lock:
        if lock is None:
            log.info("an agent of %s is already running", node)
            return
        log.info("agent of %s pid=%d", node, os.getpid())
        access = directory.read_job_access()  # jobs may have processes on other hosts, too
        address = "" if access is None else own_address(access.endpoint)
        Agent(directory, node, lock, address=address).run()


def _read_agent_access(name: str) -> AccessFile:
    """Read an access file, and check that it is one of an agent."""
    if name == STANDARD_INPUT:
        try:
            access = msgspec.json.decode(sys.stdin.buffer.read(), type=AccessFile)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ReshapeError(f"the access file on standard input is damaged: {error}") from None
    else:
        access = read_access(Path(name).expanduser())
    if access.role != "agent":
        raise ReshapeError(
            f"the access file has the role {access.role}: an agent needs one of the role agent,"
            " such as DIR/access/agent.json of the service"
        )
    return access


def _serve_remote(access: AccessFile, node: str, background: bool, log_file: Path | None) -> None:
    if log_file is None:
        logging.basicConfig(level=logging.INFO, format=FORMAT, stream=sys.stderr)
    host = arrive(access, node)
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(host.agent_lock(node))
        if lock is None:
            raise ReshapeError(f"an agent of {node} already runs on this host")
        if background:
            log_file = (log_file or Path.home() / ".reshape" / f"agent-{node}.log").absolute()
            log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if child := os.fork():  # the child inherits the lock
                print(
                    f"agent of {node} serves {access.endpoint}, process {child}; its log is"
                    f" {log_file}",
                    flush=True,
                )
                os._exit(0)
            _detach(log_file)
        if log_file is not None:
            log_to_file(log_file)
        log.info("agent of %s pid=%d serves %s", node, os.getpid(), access.endpoint)
        # Slurm sends SIGTERM before it takes the node away.
        in_slurm = bool(slurm_job())
        address = own_address(access.endpoint)
        Agent(host, node, lock, address=address, loses_host=in_slurm).run()


def arrive(access: AccessFile, node: str) -> HostPlace:
    """Ask the service how to serve a node, until it answers.

    Raises
    ------
    AccessRefused : the service refuses the key.
    ReshapeError : the service refuses this agent; the message is its reason.
    """
    arrival = m.AgentArrival(node=node, host=socket.gethostname(), release=reshape.__version__)
    logged = float("-inf")
    while True:
        with ServiceConnection(access.endpoint, access) as client:
            try:
                answer = client.request(arrival, ANSWER_S)
            except ServiceUnavailable as error:
                if time.monotonic() - logged > SILENCE_LOG_S:
                    logged = time.monotonic()
                    log.warning("waiting for the service: %s", error)
                time.sleep(0.2)
                continue
        return HostPlace(access, expect(m.AgentSettings, answer))


def _detach(log_file: Path) -> None:
    """Leave the session of the caller, which may be that of an ssh server."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    output = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.chdir("/")
    for handler in logging.getLogger().handlers[:]:
        logging.getLogger().removeHandler(handler)
