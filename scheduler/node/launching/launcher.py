"""The launcher of an agent: it starts groups, each under one mpiexec that dies with the agent.

A start reports whether mpiexec could be started, what the ranks report, and how the group ended.

On one host mpiexec forks the processes. On several hosts it waits for a proxy on each of them,
which the agents start. A small process beside the agent forks what is started (`starter.py`).
"""

from __future__ import annotations

import errno
import json
import marshal
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil

from reshape.errors import ReshapeError
from reshape.mpi import clean_environment, mpiexec_path
from scheduler.node.directory import MEMORY
from scheduler.node.launching import job_bounds
from scheduler.node.launching.prctl import become_subreaper
from scheduler.node.launching.starter import CANNOT_START, NO_ROOM, NUMBER_BYTES
from scheduler.protocol.agent_messages import Fault, GroupEnd, JobBounds

_STARTER, _RANK, _OVER_HOSTS = (
    str(Path(__file__).with_name(name)) for name in ("starter.py", "rank.py", "over_hosts")
)
_UNBOUNDED = JobBounds()
#: Seconds within which a process is forked, the start of the one that forks it included.
LIMIT_S = 5.0


class MpiexecStart:
    """An mpiexec that is being started, or runs, and what the ranks under it report.

    Each rank reports its own end (`rank.py`), through a pipe to the agent. The commands of proxies
    on other hosts come by the same pipe (`starter.py`). So an exit code and a
    signal of the same number differ, and the rank that failed first differs from those that were
    ended because of it. The exit code of mpiexec counts if no rank has failed by itself. It is then
    that of MPI_Abort, for which hydra kills the ranks, or there is a cause outside of the program.

    Parameters
    ----------
    fork : starts a process with these file descriptors and returns its number. It is a child of
        this process that becomes mpiexec when its output is open and its working directory is
        entered. The descriptors are for the outcome of the start and for reports.
    size : number of ranks on this host.
    is_program : whether the process is the program itself, without an mpiexec.
    spans : whether it has processes on other hosts, too.

    Attributes
    ----------
    pid : number of the process.
    begun : process number of the parent of each program that has begun, by rank.
    proxies : commands that start the proxies on the other hosts; empty if there are none (yet).
    failed : how the rank that failed first has ended; None: none has failed.
    ended_at : monotonic time at which the end of the last rank of this host was read; None: some
        have not ended.

    Raises
    ------
    OSError : no process can be started.
    """

    def __init__(
        self,
        fork: Callable[[list[int]], int],
        size: int,
        *,
        is_program: bool = False,
        spans: bool = False,
    ) -> None:
        self.is_program, self.spans, self._size = is_program, spans, size
        self.begun: dict[int, int] = {}
        self.proxies: list[list[str]] = []
        self.failed: GroupEnd | None = None
        self.ended_at: float | None = None
        self._ended: set[int] = set()
        self._texts = {"start": b"", "reports": b""}
        self._open: dict[str, int] = {}  # descriptors of the pipes that may have more to read
        with ExitStack() as writers, ExitStack() as readers:
            inherited = []
            for name in self._texts:
                reader, writer = os.pipe()
                readers.callback(os.close, reader)
                writers.callback(os.close, writer)
                os.set_blocking(reader, False)
                self._open[name] = reader
                inherited.append(writer)
            self.pid = fork(inherited)
            readers.pop_all()  # there was no error: they stay open

    @property
    def is_pending(self) -> bool:
        """Whether it is still unknown if mpiexec could be started."""
        self._read("start")
        return "start" in self._open

    @property
    def failure(self) -> tuple[str, str]:
        """Whose reason ("job" or "node"), and why mpiexec could not be started; empty if it was."""
        self._read("start")
        whose, _, why = self._texts["start"].decode(errors="replace").partition(": ")
        return whose, why

    @property
    def awaits_proxies(self) -> bool:
        """Whether the commands of the proxies on other hosts are still to be read."""
        return self.spans and not self.proxies and "reports" in self._open

    def running(self) -> list[int]:
        """Return the process numbers of the parents of the programs that have not ended."""
        return [pid for rank, pid in self.begun.items() if rank not in self._ended]

    def read_reports(self) -> None:
        """Take note of the reports that have come."""
        self._read("reports")
        *lines, self._texts["reports"] = self._texts["reports"].split(b"\n")
        for line in lines:
            self._note(*line.decode(errors="replace").split(" ", 3))

    def close(self) -> None:
        """Stop waiting for the outcome of the start, and for reports of ranks."""
        while self._open:
            os.close(self._open.popitem()[1])

    def end(self, status: int, *, is_proxy: bool) -> GroupEnd:
        """Return how the group has ended on this host.

        Parameters
        ----------
        status : wait status of mpiexec, or of the proxy of an mpiexec on another host.
        """
        # The ends of ranks that come later are a consequence of the end of mpiexec.
        self.read_reports()
        if self.is_program and self.begun:
            self._note("0", "ended", str(status))
        fault, why = self.failure
        if fault:
            return never_began(why, "job" if fault == "job" else "node")
        code, began = os.waitstatus_to_exitcode(status), bool(self.begun)
        if self.failed is not None:
            return msgspec.structs.replace(self.failed, began=began)
        if code == 0 or (began and (is_proxy or (self.ended_at is not None and not self.spans))):
            return GroupEnd(began=began)
        # A signal has ended mpiexec, or the parents of the programs.
        is_signal = code < 0 or code == signal.SIGKILL or (code == signal.SIGTERM and not began)
        code, number = (0, abs(code)) if is_signal else (code, 0)
        why = "" if began else f"mpiexec ended with {code}:{number} before the program began"
        return GroupEnd(exit_code=code, signal=number, why=why, began=began)

    def _read(self, pipe: str) -> None:
        """Read what was written to a pipe; close it at its end."""
        while pipe in self._open:
            try:
                part = os.read(self._open[pipe], 1 << 16)
            except BlockingIOError:
                return
            self._texts[pipe] += part
            if not part:
                os.close(self._open.pop(pipe))

    def _note(self, rank: str, what: str, number: str, program: str = "") -> None:
        if what == "begun":
            self.begun[int(rank)] = int(number)
            return
        if what == "proxies":
            self.proxies = json.loads(program)
            return
        self._ended.add(int(rank))
        if len(self._ended) == self._size:
            self.ended_at = time.monotonic()
        if self.failed is not None:
            return
        if what == "refused":
            self.failed = _refused(int(rank), int(number), program)
        elif int(number):
            self.failed = _failed(int(rank), int(number))


class ProcessLauncher:
    """Starts the processes of groups, which are children of this process and die with it.

    This process never waits for a file system of a job: a process of its own opens the output and
    enters the working directory. The starter, which forks it, is started with the first of them,
    and again if it has ended.

    Raises
    ------
    OSError : this process cannot become the parent of the processes.
    """

    def __init__(self) -> None:
        become_subreaper()
        self._connection: socket.socket | None = None

    def close(self) -> None:
        """End the starter; the processes that it has started continue."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        bounds: JobBounds = _UNBOUNDED,
        *,
        size: int = 1,
        cgroup: str = "",
        is_program: bool = False,
        spans: bool = False,
    ) -> MpiexecStart:
        """Start a command, such as an mpiexec.

        Parameters
        ----------
        command : program and arguments.
        environment : environment of the processes. Variables that tie this process to an mpiexec
            of its own are removed from it.
        bounds : where the processes run and write, and what they inherit.
        size : number of ranks on this host, >= 1.
        cgroup : folder of their control group (`reshape.files.cgroup`); "": that of this process.
        is_program : whether the command is the program of a job, and not an mpiexec or a proxy. It
            may call mpiexec itself.
        spans : whether it is an mpiexec over several hosts (`mpiexec_over_hosts`).

        Raises
        ------
        OSError : no process can be started.
        """
        environment = clean_environment(environment)
        if bounds.own_folders:
            environment[job_bounds.VARIABLE] = "\n".join(bounds.own_folders)
        request = {
            "command": list(command),
            "is_program": is_program,
            "environment": environment,
            "cgroup": cgroup,
            "spans": spans,
            **msgspec.structs.asdict(bounds),
        }
        fork = partial(self._fork, request)
        return MpiexecStart(fork, size, is_program=is_program, spans=spans)

    def _fork(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Let the starter fork, with the descriptor of the status first; return the number."""
        data = marshal.dumps(request)
        # Without an answer nothing was started, so that a second request is no second start.
        answer = self._ask(data, descriptors) or self._ask(data, descriptors)
        if not answer:
            raise OSError(errno.EAGAIN, "the process that starts others does not answer")
        number = int.from_bytes(answer, "little", signed=True)
        if number < 0:
            raise OSError(-number, os.strerror(-number))
        return number

    def _ask(self, data: bytes, descriptors: list[int]) -> bytes:
        """Send a request and return its answer; empty, and disconnected, if there is none."""
        connection = self._connection or self._open()
        answer = b""
        try:
            length = len(data).to_bytes(NUMBER_BYTES, "little")
            socket.send_fds(connection, [length], descriptors)
            connection.sendall(data)
            answer = connection.recv(NUMBER_BYTES)
        except TimeoutError:
            connection.shutdown(socket.SHUT_RDWR)  # a process that cannot answer does not start
            answer = connection.recv(NUMBER_BYTES)
            self._kill()
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        if not answer:
            self.close()
        return answer

    def _open(self) -> socket.socket:
        own, other = socket.socketpair()
        with other:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", _STARTER, str(other.fileno())],
                env={},
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                start_new_session=True,
            )
        self._process = psutil.Process(process.pid)
        process.returncode = 0  # the agent waits for all its children elsewhere
        own.settimeout(LIMIT_S)
        self._connection = own
        return own

    def _kill(self) -> None:
        """End a process that does not answer, which may have received descriptors of a start."""
        with suppress(psutil.Error):
            self._process.kill()  # verifies the start time of the process first
        self.close()


def mpiexec(size: int, argv: Sequence[str]) -> list[str]:
    """Return the command for `size` processes of a program on this host."""
    return [_mpiexec(), "-launcher", "fork", "-n", str(size), *rank_command(argv)]


def mpiexec_over_hosts(
    hosts: Sequence[str], rank_hosts: Sequence[int], address: str, argv: Sequence[str]
) -> list[str]:
    """Return the command for a program on several hosts, of which this one is host 0.

    What it starts has the commands for the hosts 1, 2 and so on as its `proxies`.

    Parameters
    ----------
    hosts : names of the hosts, which hydra does not look up.
    rank_hosts : number of the host of each rank; each host has at least one.
    address : address under which the other hosts reach this one.
    """
    counts = [f"{name}:{rank_hosts.count(host)}" for host, name in enumerate(hosts)]
    command = [_mpiexec(), "-launcher", "manual", "-localhost", address]
    command += ["-hosts", ",".join(counts), "-rankmap", ",".join(map(str, rank_hosts))]
    return [*command, "-n", str(len(rank_hosts)), *rank_command(argv)]


def rank_command(argv: Sequence[str]) -> list[str]:
    """Return the command by which hydra runs a program as a rank, bound and with a report."""
    return [sys.executable, "-I", "-S", _RANK, *argv]


def script_over_hosts(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a script whose job is on several hosts.

    It finds an mpiexec first on its PATH that starts a step of the job
    (`scheduler.client.scripts.mpiexec`).
    """
    path = os.pathsep.join([_OVER_HOSTS, environment.get("PATH", os.defpath)])
    return {**environment, "PATH": path, "RESHAPE_PYTHON": sys.executable}


def _mpiexec() -> str:
    try:
        return str(mpiexec_path({}))
    except ReshapeError:
        return "mpiexec"  # searched on the PATH of the job, by the new process


# ---------------------------------------------------------------- how a group has ended


def failed_start(error: Exception) -> GroupEnd:
    """End of a group for which no process could be started."""
    is_too_long = isinstance(error, OSError) and error.errno == errno.E2BIG
    is_job = is_too_long or isinstance(error, ValueError)
    return never_began(f"cannot start: {error}", "job" if is_job else "node")


def never_began(why: str, fault: Fault) -> GroupEnd:
    """End of a group without a program that has begun."""
    return GroupEnd(exit_code=CANNOT_START, why=why, began=False, fault=fault)


def _refused(rank: int, number: int, program: str) -> GroupEnd:
    """End of a group with a rank whose program the system refuses with this error number."""
    shown = program if program.isprintable() else repr(program)
    why = f"cannot start {shown}: {os.strerror(number)}"
    fault: Fault = "node" if number in NO_ROOM else "job"
    return GroupEnd(exit_code=CANNOT_START, why=why, rank=rank, fault=fault)


def _failed(rank: int, status: int) -> GroupEnd:
    """End of a group with a rank whose program has this wait status."""
    code, why = os.waitstatus_to_exitcode(status), ""
    if code in (-signal.SIGBUS, 128 + signal.SIGBUS):  # a shell adds 128
        free = shutil.disk_usage(MEMORY).free >> 20
        why = f"a bus error: {MEMORY} may have been full ({free} MiB are free now)"
    return GroupEnd(exit_code=max(code, 0), signal=max(-code, 0), why=why, rank=rank)
