"""The launcher of an agent: it starts groups, each under one mpiexec that dies with the agent.

On one host mpiexec forks the processes. On several hosts it waits for a proxy on each of them,
which the agents start (`spanning.py`). A small process beside the agent forks what is started
(`starter.py`).
"""

from __future__ import annotations

import errno
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import psutil

from reshape.errors import ReshapeError
from reshape.mpi import clean_environment, mpiexec_path
from scheduler.node.launching.prctl import become_subreaper, die_with_parent
from scheduler.node.launching.started import MpiexecStart, RankReports
from scheduler.node.launching.starter import NUMBER_BYTES

if TYPE_CHECKING:
    from scheduler.node.launching.starter import StartRequest

_STARTER, _SPANNING, _RANK, _OVER_HOSTS = (
    str(Path(__file__).with_name(name))
    for name in ("starter.py", "spanning.py", "rank.py", "over_hosts")
)
#: Variables that get the numbers of the descriptors for status, reports and commands of proxies.
_INHERITS = ["", "RESHAPE_REPORT"]
_SPANNING_INHERITS = ["RESHAPE_STATUS", "RESHAPE_REPORT", "RESHAPE_PROXIES"]
_NO_LIMITS: Mapping[str, int] = MappingProxyType({})
#: Seconds within which a process is forked, the start of the one that forks it included.
LIMIT_S = 5.0


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
        *,
        size: int = 1,
        cwd: str = "",
        output: str = "",
        error: str = "",
        truncate: bool = False,
        umask: int | None = None,
        limits: Mapping[str, int] = _NO_LIMITS,
        cgroup: str = "",
        is_program: bool = False,
        names_proxies: bool = False,
    ) -> MpiexecStart:
        """Start a command, such as an mpiexec.

        Parameters
        ----------
        command : program and arguments.
        environment : environment of the processes. Variables that tie this process to an mpiexec
            of its own are removed from it.
        size : number of ranks on this host, >= 1.
        cwd : working directory; "": that of this process.
        output, error : files for standard output and error. "": the output is that of this process,
            and errors go where the output goes.
        truncate : whether to empty these files; otherwise the output is appended to them.
        umask : None: that of this process.
        limits : soft resource limits by name (`job_bounds.LIMITS`); the others are those of this
            process.
        cgroup : folder of their control group (`reshape.files.cgroup`); "": that of this process.
        is_program : whether the command is the program of a job, and not an mpiexec or a proxy. It
            may call mpiexec itself.
        names_proxies : whether it is an mpiexec over several hosts (`mpiexec_over_hosts`).

        Raises
        ------
        OSError : no process can be started.
        """
        request: StartRequest = {
            "command": list(command),
            "is_program": is_program,
            "environment": clean_environment(environment),
            "cwd": cwd,
            "output": output,
            "error": error,
            "truncate": truncate,
            "umask": -1 if umask is None else umask,
            "limits": dict(limits),
            "cgroup": cgroup,
            "inherited": _SPANNING_INHERITS if names_proxies else _INHERITS,
        }
        return self._start(request, size, is_program=is_program, names_proxies=names_proxies)

    def _start(
        self, request: StartRequest, size: int, *, is_program: bool, names_proxies: bool
    ) -> MpiexecStart:
        """Start the process of a request, with the pipes on which it and its ranks report."""
        with ExitStack() as writers, ExitStack() as readers:
            status, status_writer = _pipe(readers, writers)
            ranks = RankReports(size)
            writers.callback(ranks.was_inherited)
            readers.callback(ranks.close)
            descriptors, proxies = [status_writer, ranks.writer], None
            if names_proxies:
                proxies, proxies_writer = _pipe(readers, writers)
                descriptors.append(proxies_writer)
            pid = self._fork(request, descriptors)
            readers.pop_all()  # there was no error: they stay open
        return MpiexecStart(pid, status, ranks, proxies, is_program=is_program)

    def _fork(self, request: StartRequest, descriptors: list[int]) -> int:
        """Let the starter fork; return the number of the new process.

        Parameters
        ----------
        descriptors : for the new process, that of the status first.

        Raises
        ------
        OSError : there is none.
        """
        plain: Any = request
        data = marshal.dumps(plain)
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
                preexec_fn=die_with_parent,  # noqa: PLW1509 - the agent has one Python thread
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


def _pipe(readers: ExitStack, writers: ExitStack) -> tuple[int, int]:
    """Open a pipe from a process that is started, whose ends these stacks close."""
    reader, writer = os.pipe()
    readers.callback(os.close, reader)
    writers.callback(os.close, writer)
    os.set_blocking(reader, False)
    return reader, writer


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
    command = [sys.executable, "-I", "-S", _SPANNING]
    command += [_mpiexec(), "-launcher", "manual", "-localhost", address]
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
