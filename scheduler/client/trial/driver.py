"""A small service and agent in one: it starts real mpiexec groups and exchanges real messages.

It decides nothing itself: its caller decides when the job expands and contracts, and the job does
so by the same transaction as under a service. The job waits at each resize point until the driver
answers, so it cannot end while a group starts.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import zmq

from reshape.errors import ReshapeError
from reshape.files.job_folder import is_running
from reshape.mpi import clean_environment, mpiexec_path
from reshape.wire.codec import encode
from reshape.wire.identity import IDENTITY_VARIABLES
from scheduler.node.launching.prctl import die_with_parent
from scheduler.node.leftovers import remove_mpi_files
from scheduler.protocol import messages as m
from scheduler.protocol.messages import decode

JOB, TOKEN = 7, "secret"
#: Seconds until a driver gives up.
PATIENCE_S = 60.0
_POLL_MS = 20  # the ends of processes are seen as fast
_ENDS_S = 5.0  # a group that has SIGTERM; then it is killed
_MEMORY = Path("/dev/shm")
#: The name space of process numbers. Containers may share /dev/shm, but not these numbers.
PID_SPACE = os.stat("/proc/self/ns/pid").st_ino


def remove_memory_of_killed_trials() -> None:
    """Remove the shared memory of this user's trials whose processes were killed."""
    for folder in _MEMORY.glob(f"reshape-try-*-{PID_SPACE}-*"):
        pid = folder.name.split("-")[2]
        if pid.isdecimal() and not is_running(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)  # of another user


class MistakeError(ReshapeError):
    """The job does not run as it should; the message may have several lines."""


class Group:
    """One group of the job."""

    def __init__(self, number: int, size: int, process: subprocess.Popen[bytes], out: Path) -> None:
        self.number, self.size, self.process, self.out = number, size, process, out
        self.peer = b""  # socket identity of its rank 0, once it is ready
        self.was_killed = False

    @property
    def text(self) -> str:
        """Everything that it has printed."""
        return self.out.read_text(errors="replace")

    def check_success(self) -> None:
        """Raise a `MistakeError` if it has failed."""
        if status := self.process.returncode:
            raise MistakeError(f"group {self.number} ended with {status}: {self.text}")


class TrialDriver:
    """A job without a service, whose caller decides when it expands and contracts.

    Parameters
    ----------
    folder : folder for the socket and the output of the job.
    command : the program with its arguments.
    cwd : working directory of the job; that of this process if None.
    environment : variables of all groups.

    Attributes
    ----------
    shm : folder for shared memory, which is removed in the end.
    groups : every group by its number, those that have ended included.
    decide : answers the job at a resize point.
    on_idle : called again and again while the driver waits; it may raise an error.
    limit_s : seconds until it gives up to wait for the job.
    points : number of requests at resize points.
    hellos, ports, reports, faults, facts : what the job has sent.
    """

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        cwd: Path | None,
        environment: Mapping[str, str],
    ) -> None:
        self.folder, self.command, self.cwd = folder, list(command), cwd
        self.environment = environment
        self.shm = _MEMORY / f"reshape-try-{os.getpid()}-{PID_SPACE}-{time.monotonic_ns()}"
        self.groups: dict[int, Group] = {}
        self.decide: Callable[[m.AtResizePoint], m.Message | None] = lambda _: m.Proceed()
        self.on_idle: Callable[[], None] = lambda: None
        self.limit_s = PATIENCE_S
        self.points = 0
        self.hellos: list[m.Hello] = []
        self.reports: list[m.ResizeReport] = []
        self.facts: dict[str, object] = {}
        self.faults: list[m.ProgramFault] = []
        self.ports: list[m.JoinPort] = []
        self._waiting: tuple[bytes, m.AtResizePoint] | None = None  # without an answer so far
        self._order: Callable[[m.AtResizePoint], m.Message] | None = None  # of a resize
        self._connects: dict[int, str] = {}  # ports that wait for groups of a job that restarts
        self._serial = 0
        self._endpoint = f"ipc://{folder}/socket"
        self._context = zmq.Context()
        self._listen()

    def _listen(self) -> None:
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(self._endpoint)

    def __enter__(self) -> TrialDriver:
        return self

    def __exit__(self, *_: object) -> None:
        """End all groups, and remove what they have left in shared memory."""
        for group in self.groups.values():
            self.kill(group)
        remove_mpi_files()
        self._socket.close()
        self._context.term()
        for folder in self.folders:
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()

    # ------------------------------------------------------------ processes

    def start(
        self,
        size: int,
        role: str,
        number: int | None = None,
        groups: Mapping[int, int] | None = None,
        **environment: str,
    ) -> Group:
        """Start the mpiexec of a new group.

        Parameters
        ----------
        number : of the group; the next one if None.
        groups : sizes of the groups of the job, in their order; those that run if None and the
            group joins.
        """
        number = len(self.groups) if number is None else number
        if groups is None:
            groups = {n: g.size for n, g in self.groups.items() if role == "join"}
        out = self.folder / f"group-{number}.out"
        own = {
            "RESHAPE_SERVER": self._endpoint,
            "RESHAPE_JOB": str(JOB),
            "RESHAPE_GROUP": str(number),
            "RESHAPE_TOKEN": TOKEN,
            "RESHAPE_SHM": str(self.shm),
            "RESHAPE_ROLE": role,
            "RESHAPE_GROUPS": " ".join(f"{n}:{size}" for n, size in groups.items()),
            **self.environment,
            "OMP_NUM_THREADS": "1",
            "RESHAPE_ASK_EVERY_S": "0",  # the caller counts resize points
        }
        with out.open("ab") as stream:
            process = subprocess.Popen(
                [str(mpiexec_path()), "-n", str(size), *self.command],
                cwd=self.cwd,
                env=_outer_environment() | own | environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - it takes no lock
            )
        group = self.groups[number] = Group(number, size, process, out)
        return group

    def kill(self, group: Group) -> None:
        """End a group as an agent does: mpiexec and all processes below it."""
        if group.process.poll() is None:
            group.process.send_signal(signal.SIGTERM)
            try:
                group.process.wait(_ENDS_S)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(group.process.pid, signal.SIGKILL)
                group.process.wait()
        group.was_killed = True

    def kill_job(self, groups: Sequence[Group]) -> None:
        """End all groups of the job, which does not wait for an answer any more."""
        for group in groups:
            self.kill(group)
        self._waiting = None

    def restart(self, groups: Sequence[Group]) -> list[Group]:
        """Start the groups of a job again, from its restart point."""
        sizes = {group.number: group.size for group in groups}
        return [self.start(size, "restart", number, sizes) for number, size in sizes.items()]

    def cancel(self, port: str) -> None:
        """Release the job from Accept, by the module that agents run."""
        stand_in = [sys.executable, "-m", "reshape.resizing.stand_in", port]
        subprocess.run(
            [str(mpiexec_path()), "-n", "1", *stand_in],
            env=clean_environment(os.environ),
            stdin=subprocess.DEVNULL,
            check=True,
            timeout=30,
        )

    @property
    def folders(self) -> list[Path]:
        """Folders for the shared memory of the job, one for each host."""
        return sorted(self.shm.parent.glob(f"{self.shm.name}*"))

    @property
    def has_ended(self) -> bool:
        """Whether all groups have ended."""
        return all(group.process.poll() is not None for group in self.groups.values())

    @property
    def waits_at(self) -> m.AtResizePoint | None:
        """The resize point at which the job waits for an answer; None if it does not."""
        return None if self._waiting is None else self._waiting[1]

    # ------------------------------------------------------------ messages

    def serve(self, until: Callable[[], bool], still: bool = False) -> None:
        """Answer the job until a condition holds; let it wait at its resize point if `still`.

        Raises
        ------
        MistakeError : the condition does not hold in time.
        """
        deadline = time.monotonic() + self.limit_s
        while not until():
            if time.monotonic() > deadline:
                raise MistakeError(f"the condition did not hold within {self.limit_s} s")
            if self._waiting is not None and not still:
                (peer, point), self._waiting = self._waiting, None
                answer = (self._order or self.decide)(point)
                self._send(peer, answer or m.Proceed(), point.id)
            elif self._socket.poll(_POLL_MS):
                peer, *frames = self._socket.recv_multipart()
                message = decode(frames)
                assert getattr(message, "token", TOKEN) == TOKEN
                answer = self.on(peer, message)
                if answer is not None:
                    self._send(peer, answer, message.id)
            else:
                self.on_idle()

    def on(self, peer: bytes, message: m.Message) -> m.Message | None:
        """Take a message of the job; return the answer to it, if it has one now."""
        if isinstance(message, m.Hello):
            self.hellos.append(message)
            return m.Welcome()
        if isinstance(message, m.AtResizePoint):
            self.points += 1
            self._waiting = peer, message
            return None
        if isinstance(message, m.GroupReady):
            self.groups[message.group].peer = peer
            self._connect(message.group)
            return None
        if isinstance(message, m.JoinPort):
            self.ports.append(message)
            if message.serial == 0:
                self._connects[message.group] = message.port
                self._connect(message.group)
        elif isinstance(message, m.ResizeReport):
            if message.serial not in [report.serial for report in self.reports]:
                self.reports.append(message)
        elif isinstance(message, m.Facts):
            self.facts.update(message.facts)
        elif isinstance(message, m.ProgramFault):
            self.faults.append(message)
        return m.Done()

    def _connect(self, number: int) -> None:
        """Send a group of a job that restarts to its port, if both are ready."""
        if number in self._connects and self.groups[number].peer:
            self.send_to(self.groups[number], m.Connect(port=self._connects.pop(number)))

    def _send(self, peer: bytes, message: m.Message, number: int = 0) -> None:
        message.id = number
        self._socket.send_multipart([peer, *encode(message)])

    # ------------------------------------------------------------ requests of the caller

    def send_to(self, group: Group, message: m.Message) -> None:
        """Send an instruction to a group that is ready."""
        self._send(group.peer, message)

    def ready(self, size: int, **environment: str) -> Group:
        """Start a joining group; the job waits until the group is ready.

        Raises
        ------
        MistakeError : the group ends instead.
        """
        group = self.start(size, "join", None, None, **environment)
        self.serve(lambda: group.peer != b"" or group.process.poll() is not None, still=True)
        if not group.peer:
            raise MistakeError(f"the group ended with {group.process.returncode}: {group.text}")
        return group

    def order_join(self, group: Group) -> int:
        """Answer Join at each resize point until a port or a report comes; return the serial."""
        self._serial = serial = self._serial + 1
        self._order = lambda _: m.Join(serial=serial, group=group.number, size=group.size)
        told: tuple[list[m.JoinPort], list[m.ResizeReport]] = self.ports, self.reports
        self.serve(lambda: any(got.serial == serial for kind in told for got in kind))
        self._order = None
        return serial

    def await_report(self, serial: int) -> m.ResizeReport:
        """Answer the job until it reports this resize."""
        self.serve(lambda: serial in [r.serial for r in self.reports])
        return next(r for r in self.reports if r.serial == serial)

    def join(self, group: Group) -> m.ResizeReport:
        """Join a group that is ready."""
        serial = self.order_join(group)
        if serial in [port.serial for port in self.ports]:
            self.send_to(group, m.Connect(port=self.ports[-1].port))
        else:
            self.send_to(group, m.Abandon(why="the job does not accept"))
        return self.await_report(serial)

    def contract(self, *groups: int) -> m.ResizeReport:
        """Contract the job by groups, and wait until their processes have ended.

        Raises
        ------
        MistakeError : a process of them has failed.
        """
        self._serial = serial = self._serial + 1
        self._order = lambda at: (
            m.Proceed() if at.epoch == serial else m.Leave(serial=serial, groups=list(groups))
        )
        report = self.await_report(serial)
        self._order = None
        if report.ok:
            for number in groups:
                self.await_end(self.groups[number])
        return report

    def await_end(self, group: Group) -> None:
        """Wait until a group has ended with success; the job waits at its next resize point.

        Raises
        ------
        MistakeError : it has failed.
        """
        self.serve(lambda: group.process.poll() is not None, still=True)
        group.check_success()


def _outer_environment() -> dict[str, str]:
    """Environment of this process, without what would make its programs those of another job."""
    inherited = clean_environment(os.environ)
    return {name: value for name, value in inherited.items() if name not in IDENTITY_VARIABLES}
