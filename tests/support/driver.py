"""A small service and agent in one: it starts real mpiexec groups and exchanges real messages.

It decides nothing itself: a test decides when the job expands and contracts. The job waits at each
resize point until the driver answers (`patient.py`), so it cannot end while a group starts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import psutil
import zmq
from paths import SUPPORT

from reshape.files.positions import POSITIONS_FILE
from reshape.mpi import clean_environment, mpiexec_path
from reshape.wire.codec import encode
from scheduler.node.groups import mpi_memory
from scheduler.protocol import messages as m
from scheduler.protocol.messages import decode

JOB, TOKEN = 7, "secret"
TIMEOUT_S = 60.0


class LibraryMemory:
    """Shared memory of the MPI library, which remains when processes are killed."""

    def __init__(self) -> None:
        self._began = time.time()

    def clean(self) -> None:
        """Remove the files that were created since then and that no process uses any more."""
        mpi_memory.remove(mpi_memory.changed_between(self._began, time.time()))


def run(size: int, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program under mpiexec, without a service."""
    memory = LibraryMemory()
    process = subprocess.Popen(
        [str(mpiexec_path()), "-n", str(size), sys.executable, *argv],
        env=clean_environment(os.environ) | {"OMP_NUM_THREADS": "1"} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, err = process.communicate()
    memory.clean()
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


class Group:
    """One group of the job."""

    def __init__(self, number: int, size: int, process: subprocess.Popen[bytes], out: Path) -> None:
        self.number, self.size, self.process, self.out = number, size, process, out
        self.peer = b""  # socket identity of its rank 0, once it is ready
        self.memory = LibraryMemory()

    @property
    def text(self) -> str:
        """Everything that it has printed."""
        return self.out.read_text()

    def processes(self) -> list[int]:
        """Process numbers of its ranks: the children of mpiexec's proxies."""
        found = psutil.Process(self.process.pid).children(recursive=True)
        return [p.pid for p in found if "python" in p.name()]


class Driver:
    """A job under a service that the test controls.

    Parameters
    ----------
    folder : folder for the socket and the output of the job.
    argv : the program, without the interpreter.
    shm : folder for shared memory; below /dev/shm if None.
    patient : whether the job waits for answers at resize points as long as they take.
    environment : variables of all groups.
    """

    def __init__(
        self,
        folder: Path,
        argv: Sequence[str],
        shm: Path | None = None,
        patient: bool = True,
        **environment: str,
    ) -> None:
        start = [sys.executable, str(SUPPORT / "patient.py")] if patient else [sys.executable]
        self.folder, self.argv = folder, [*start, *map(str, argv)]
        self.environment = environment
        self.shm = shm or Path("/dev/shm") / f"reshape-test-{os.getpid()}-{time.monotonic_ns()}"
        self.groups: dict[int, Group] = {}
        self.welcome = m.Welcome()
        self.decide: Callable[[m.AtResizePoint], m.Message | None] = lambda _: m.Proceed()
        self.points = 0  # requests at resize points
        self.latest: m.AtResizePoint | None = None  # the latest of them
        self.hellos: list[m.Hello] = []
        self.reports: list[m.ResizeReport] = []
        self.facts: dict[str, object] = {}
        self.faults: list[m.ProgramFault] = []
        self.ports: list[m.JoinPort] = []
        self.answers_ports = True  # False: as a service that ends at this moment
        self.confirms_reports = True
        self.report_count = 0
        self._waiting: tuple[bytes, m.AtResizePoint] | None = None  # without an answer so far
        self._serial = 0
        self._endpoint = f"ipc://{folder}/socket"
        self._context = zmq.Context()
        self._listen()

    def _listen(self) -> None:
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(self._endpoint)

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for group in self.groups.values():
            self.kill(group)
        for group in self.groups.values():
            group.memory.clean()
        self._socket.close()
        self._context.term()
        for folder in self.folders:
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        if error is not None:
            for group in self.groups.values():
                print(f"--- group {group.number}, exit {group.process.returncode}\n{group.text}")

    # ------------------------------------------------------------ processes

    def start(self, size: int, role: str, **environment: str) -> Group:
        """Start the mpiexec of a new group."""
        number = len(self.groups)
        out = self.folder / f"group-{number}.out"
        own = {
            "RESHAPE_SERVER": self._endpoint,
            "RESHAPE_JOB": str(JOB),
            "RESHAPE_GROUP": str(number),
            "RESHAPE_TOKEN": TOKEN,
            "RESHAPE_SHM": str(self.shm),
            "RESHAPE_ROLE": role,
            "RESHAPE_GROUPS": " ".join(
                f"{n}:{g.size}" for n, g in self.groups.items() if role == "join"
            ),
            **self.environment,
            "OMP_NUM_THREADS": "1",
            "RESHAPE_ASK_EVERY_S": "0",  # tests count resize points
        }
        with out.open("wb") as stream:
            process = subprocess.Popen(
                [str(mpiexec_path()), "-n", str(size), *self.argv],
                env=clean_environment(os.environ) | own | environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        group = self.groups[number] = Group(number, size, process, out)
        return group

    def kill(self, group: Group) -> None:
        """End a group as an agent does: mpiexec and all processes below it."""
        if group.process.poll() is None:
            group.process.send_signal(signal.SIGTERM)
            try:
                group.process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(group.process.pid, signal.SIGKILL)
                group.process.wait()

    def cancel(self, port: str) -> None:
        """Release the job from Accept, by the module that agents run."""
        subprocess.run(
            [
                str(mpiexec_path()),
                "-n",
                "1",
                sys.executable,
                "-m",
                "reshape.resizing.stand_in",
                port,
            ],
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
    def segments(self) -> list[str]:
        """Names of the files in the shared memory of the job on all hosts."""
        files = (path.name for folder in self.folders for path in folder.iterdir())
        return sorted(name for name in files if name != POSITIONS_FILE)

    # ------------------------------------------------------------ messages

    def end_service(self) -> None:
        """Close the socket, as a service that ends."""
        self._socket.close()

    def restart_service(self) -> None:
        """Open a socket on the same endpoint, as a service that starts again."""
        self._listen()

    def serve(
        self, until: Callable[[], bool], timeout: float = TIMEOUT_S, still: bool = False
    ) -> None:
        """Answer the job until a condition holds; let it wait at its resize point if `still`."""
        deadline = time.monotonic() + timeout
        while not until():
            assert time.monotonic() < deadline, f"the condition did not hold within {timeout} s"
            if self._waiting is not None and not still:
                (peer, point), self._waiting = self._waiting, None
                self._send(peer, self.decide(point) or m.Proceed(), point.id)
            elif self._socket.poll(20):
                peer, *frames = self._socket.recv_multipart()
                self._on(peer, decode(frames))

    def _on(self, peer: bytes, message: m.Message) -> None:
        assert getattr(message, "token", TOKEN) == TOKEN
        answer: m.Message | None = m.Done()
        if isinstance(message, m.Hello):
            self.hellos.append(message)
            answer = self.welcome
        elif isinstance(message, m.AtResizePoint):
            self.points, self.latest = self.points + 1, message
            self._waiting, answer = (peer, message), None
        elif isinstance(message, m.GroupReady):
            self.groups[message.group].peer = peer
            answer = None
        elif isinstance(message, m.JoinPort):
            self.ports.append(message)
            answer = answer if self.answers_ports else None
        elif isinstance(message, m.ResizeReport):
            self.report_count += 1
            answer = answer if self.confirms_reports else None
            if message.serial not in [report.serial for report in self.reports]:
                self.reports.append(message)
        elif isinstance(message, m.Facts):
            self.facts.update(message.facts)
        elif isinstance(message, m.ProgramFault):
            self.faults.append(message)
        if answer is not None:
            self._send(peer, answer, message.id)

    def _send(self, peer: bytes, message: m.Message, number: int = 0) -> None:
        message.id = number
        self._socket.send_multipart([peer, *encode(message)])

    # ------------------------------------------------------------ requests of a test

    def send_to(self, group: Group, message: m.Message) -> None:
        """Send Connect or Abandon to a group that is ready."""
        self._send(group.peer, message)

    def ready(self, size: int, **environment: str) -> Group:
        """Start a joining group; the job waits until the group is ready."""
        group = self.start(size, "join", **environment)
        self.serve(lambda: group.peer != b"" or group.process.poll() is not None, still=True)
        assert group.peer, f"the group ended with {group.process.returncode}: {group.text}"
        return group

    def order_join(self, group: Group) -> int:
        """Answer Join at each resize point until a port or a report comes; return the serial."""
        self._serial = serial = self._serial + 1
        self.decide = lambda _: m.Join(serial=serial, group=group.number, size=group.size)
        self.serve(lambda: any(got.serial == serial for got in [*self.ports, *self.reports]))
        self.decide = lambda _: m.Proceed()
        return serial

    def await_report(self, serial: int, timeout: float = TIMEOUT_S) -> m.ResizeReport:
        """Answer the job until it reports this resize."""
        self.serve(lambda: serial in [r.serial for r in self.reports], timeout)
        return next(r for r in self.reports if r.serial == serial)

    def join(self, group: Group) -> m.ResizeReport:
        """Join a group that is ready."""
        serial = self.order_join(group)
        if serial in [port.serial for port in self.ports]:
            self.send_to(group, m.Connect(port=self.ports[-1].port))
        else:
            self.send_to(group, m.Abandon(why="the job does not accept"))
        return self.await_report(serial)

    def expand(self, size: int, **environment: str) -> m.ResizeReport:
        """Start a group and join it."""
        return self.join(self.ready(size, **environment))

    def contract(self, *groups: int) -> m.ResizeReport:
        """Contract the job by groups, and wait until their processes have ended."""
        self._serial = serial = self._serial + 1
        self.decide = lambda at: (
            m.Leave(serial=serial, groups=list(groups)) if at.epoch != serial else m.Proceed()
        )
        report = self.await_report(serial)
        self.decide = lambda _: m.Proceed()
        if report.ok:
            for number in groups:
                process = self.groups[number].process
                self.serve(lambda process=process: process.poll() is not None, still=True)
                assert process.returncode == 0, self.groups[number].text
        return report

    def finish(self, timeout: float = TIMEOUT_S) -> str:
        """Answer the job until all groups have ended with success; return their output."""
        for group in self.groups.values():
            self.serve(lambda group=group: group.process.poll() is not None, timeout)
        codes = {g.number: g.process.returncode for g in self.groups.values()}
        assert not any(codes.values()), codes
        return "".join(g.text for g in self.groups.values())
