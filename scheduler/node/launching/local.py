"""Groups of processes, each under one mpiexec that dies with its agent.

On one host mpiexec forks the processes. On several hosts it waits for a proxy on each of them,
which the agents start (:mod:`scheduler.node.launching.spanning`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from reshape.errors import ReshapeError
from reshape.mpi import clean_environment, mpiexec_path
from scheduler.node.launching.rank_reports import RankReports
from scheduler.node.launching.starter_process import StarterProcess

if TYPE_CHECKING:
    from scheduler.node.launching.starter import StartRequest

_SPANNING = str(Path(__file__).with_name("spanning.py"))
_OVER_HOSTS = str(Path(__file__).with_name("over_hosts"))
_RANK = str(Path(__file__).with_name("rank.py"))


class OutputFiles(NamedTuple):
    """Files for the standard output and error of a group.

    Attributes
    ----------
    path : file for the standard output; "": that of this process.
    error : file for the standard error; "": the same.
    truncate : whether the start empties the files; otherwise the output is appended to them.
    """

    path: str = ""
    error: str = ""
    truncate: bool = False


#: Those of this process.
_OWN = OutputFiles()


class Inherited(NamedTuple):
    """What processes inherit besides the environment; see `scheduler.node.launching.inherited`.

    Attributes
    ----------
    umask : None: that of this process.
    limits : soft resource limits by name; the others are those of this process.
    cgroup : folder of their control group (`reshape.files.cgroup`); "": that of this process.
    """

    umask: int | None = None
    limits: Mapping[str, int] = {}
    cgroup: str = ""


_NOTHING = Inherited()


def rank_command(argv: Sequence[str]) -> list[str]:
    """Return the command by which hydra runs a program as a rank, bound and with a report."""
    return [sys.executable, "-I", "-S", _RANK, *argv]


class MpiexecStart:
    """An mpiexec that is being started, or runs.

    Attributes
    ----------
    pid : number of the process that becomes mpiexec when its output is open and its working
        directory is entered; a child of this process.
    ranks : what its ranks on this host report.
    proxies_end : file descriptor from which the commands of proxies on other hosts are read.
    """

    def __init__(self, pid: int, status: int, ranks: RankReports) -> None:
        self.pid = pid
        self.ranks = ranks
        self.proxies_end: int | None = None
        self._status = status
        self._text = b""
        self._is_decided = False
        self._proxies: list[list[str]] = []

    @property
    def is_pending(self) -> bool:
        """Whether it is still unknown if mpiexec could be started."""
        self._read()
        return not self._is_decided

    @property
    def failure(self) -> tuple[str, str]:
        """Whose reason ("job" or "node"), and why mpiexec could not be started; empty if it was."""
        self._read()
        whose, _, why = self._text.decode(errors="replace").partition(": ")
        return whose, why

    @property
    def proxies(self) -> list[list[str]]:
        """Commands that start the proxies on the other hosts; empty if there are none (yet)."""
        if self.proxies_end is not None:
            try:
                text = os.read(self.proxies_end, 1 << 16)
            except BlockingIOError:
                return self._proxies
            os.close(self.proxies_end)
            self.proxies_end = None
            self._proxies = json.loads(text) if text else []
        return self._proxies

    def _read(self) -> None:
        while not self._is_decided:
            try:
                part = os.read(self._status, 4096)
            except BlockingIOError:
                return
            self._text += part
            if not part:
                self._decide()

    def close(self) -> None:
        """Stop waiting for the outcome of the start, and for reports of ranks."""
        self.ranks.close()
        if self.proxies_end is not None:
            os.close(self.proxies_end)
            self.proxies_end = None
        self._decide()

    def _decide(self) -> None:
        if not self._is_decided:
            self._is_decided = True
            os.close(self._status)


class LocalLauncher:
    """Starts the processes of groups, which are children of this process and die with it.

    This process never waits for a file system of a job: a process of its own opens the output and
    enters the working directory.

    Raises
    ------
    OSError : this process cannot become the parent of the processes.
    """

    def __init__(self) -> None:
        self._starter = StarterProcess()

    def close(self) -> None:
        """End the process that starts others; those that it has started continue."""
        self._starter.close()

    def start_mpiexec(
        self,
        environment: Mapping[str, str],
        size: int,
        argv: Sequence[str],
        *,
        cwd: str = "",
        output: OutputFiles = _OWN,
        inherited: Inherited = _NOTHING,
    ) -> MpiexecStart:
        """Start `size` processes of a program under one mpiexec.

        Parameters
        ----------
        environment : environment of the processes. Variables that tie this process to an mpiexec
            of its own are removed from it.
        size : number of processes, >= 1.
        argv : program and arguments.
        cwd : working directory; that of this process if empty.
        output : files for standard output and error.
        inherited : umask and limits of the processes.

        Raises
        ------
        OSError : no process can be started.
        """
        command = [_mpiexec(), "-launcher", "fork", "-n", str(size), *rank_command(argv)]
        variables = clean_environment(environment)
        return self._start(variables, command, size, cwd, output, inherited)

    def start_script(
        self,
        environment: Mapping[str, str],
        argv: Sequence[str],
        *,
        cwd: str = "",
        output: OutputFiles = _OWN,
        inherited: Inherited = _NOTHING,
        over_hosts: bool = False,
    ) -> MpiexecStart:
        """Start a program once, without an mpiexec, so that it may call mpiexec itself.

        The process that would be mpiexec is the program. The other parameters and the errors are
        those of `start_mpiexec`.

        Parameters
        ----------
        over_hosts : whether its job is on several hosts. It then finds an mpiexec first on its PATH
            that starts a step of the job (`scheduler.client.scripts.mpiexec`).
        """
        variables = clean_environment(environment)
        if over_hosts:
            variables["PATH"] = os.pathsep.join([_OVER_HOSTS, variables.get("PATH", os.defpath)])
            variables["RESHAPE_PYTHON"] = sys.executable
        return self._start(variables, list(argv), 1, cwd, output, inherited, is_program=True)

    def start_spanning_mpiexec(
        self,
        environment: Mapping[str, str],
        hosts: Sequence[str],
        rank_hosts: Sequence[int],
        address: str,
        argv: Sequence[str],
        *,
        cwd: str = "",
        output: OutputFiles = _OWN,
        inherited: Inherited = _NOTHING,
    ) -> MpiexecStart:
        """Start the mpiexec of a group on several hosts, and the processes on this host, host 0.

        Its `proxies` are the commands for the hosts 1, 2 and so on. The other parameters and the
        errors are those of `start_mpiexec`.

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
        command += ["-n", str(len(rank_hosts)), *rank_command(argv)]
        size = rank_hosts.count(0)
        read, write = os.pipe()
        os.set_blocking(read, False)
        variables = clean_environment(environment)
        try:
            start = self._start(variables, command, size, cwd, output, inherited, proxies=write)
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        start.proxies_end = read
        return start

    def start_proxy(
        self,
        environment: Mapping[str, str],
        size: int,
        command: Sequence[str],
        *,
        cwd: str = "",
        inherited: Inherited = _NOTHING,
    ) -> MpiexecStart:
        """Start the proxy of a group whose mpiexec is on another host.

        Parameters
        ----------
        environment : variables for the processes of this host alone.
        size : number of processes on this host.
        command : one of `MpiexecStart.proxies`.
        cwd : working directory of the processes, which must exist here.

        Raises
        ------
        OSError : no process can be started.
        """
        variables = clean_environment(os.environ) | dict(environment)
        return self._start(variables, list(command), size, cwd, _OWN, inherited)

    def _start(
        self,
        environment: dict[str, str],
        command: list[str],
        size: int,
        cwd: str,
        output: OutputFiles,
        inherited: Inherited,
        *,
        is_program: bool = False,
        proxies: int | None = None,
    ) -> MpiexecStart:
        """Start a command for so many ranks.

        Parameters
        ----------
        proxies : file descriptor to which it writes the commands of proxies on other hosts.
        """
        ranks: RankReports | None = None
        read, write = os.pipe()
        os.set_blocking(read, False)
        try:
            ranks = RankReports(size)
            descriptors = [write, ranks.writer, *([] if proxies is None else [proxies])]
            spanning = ["RESHAPE_STATUS", "RESHAPE_REPORT", "RESHAPE_PROXIES"]
            request: StartRequest = {
                "command": command,
                "is_program": is_program,
                "environment": environment,
                "cwd": cwd,
                "output": output.path,
                "error": output.error,
                "truncate": output.truncate,
                "umask": -1 if inherited.umask is None else inherited.umask,
                "limits": dict(inherited.limits),
                "cgroup": inherited.cgroup,
                "inherited": ["", "RESHAPE_REPORT"] if proxies is None else spanning,
            }
            pid = self._starter.start(request, descriptors)
        except BaseException:
            os.close(read)
            if ranks is not None:
                ranks.close()
            raise
        finally:
            os.close(write)
            if ranks is not None:
                ranks.was_inherited()
        return MpiexecStart(pid, read, ranks)


def _mpiexec() -> str:
    try:
        return str(mpiexec_path({}))
    except ReshapeError:
        return "mpiexec"  # searched on the PATH of the job, by the new process
