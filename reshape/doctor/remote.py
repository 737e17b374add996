"""The hosts of `reshape doctor --hosts`, and commands on them through ssh."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from reshape.errors import ReshapeError


class HostEntry(msgspec.Struct, frozen=True):
    """A host: the name of its node, where ssh reaches it, and the processors of the node.

    `processors` is 0 if the file does not say how many there are.
    """

    name: str
    destination: str
    processors: int = 0

    @property
    def address(self) -> str:
        """Name or address under which other hosts reach this one."""
        return self.destination.rpartition("@")[2]


class _Node(msgspec.Struct):
    """A node as a configuration file describes it."""

    name: str
    processors: int = 0
    host: str = ""
    launcher: str = ""


class _File(msgspec.Struct):
    """What is read of a file; other fields are ignored."""

    nodes: list[str | _Node]
    processors_per_node: int = 0
    launcher: str = "local"
    ssh: str = "ssh"


def read_hosts(path: Path) -> tuple[list[HostEntry], str]:
    """Read the nodes on other hosts, and the ssh command, from a file.

    Parameters
    ----------
    path : YAML with a list `nodes` of names, or of mappings with `name`, `processors` and `host`.
        Nodes with the launcher local are left out.

    Raises
    ------
    ReshapeError : the file cannot be read, or has no node on another host.
    """
    import yaml  # late: only this command reads YAML here

    try:
        read = msgspec.convert(yaml.safe_load(path.read_text()), _File)
    except OSError as error:
        raise ReshapeError(f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ReshapeError(f"{path} lists no hosts: {' '.join(str(error).split())}") from None
    nodes = [
        _Node(entry, read.processors_per_node) if isinstance(entry, str) else entry
        for entry in read.nodes
    ]
    remote = [node for node in nodes if (node.launcher or read.launcher) != "local"]
    if not remote:
        raise ReshapeError(
            f"{path} has no node on another host: give its nodes the launcher ssh, slurm or none"
        )
    hosts = [HostEntry(node.name, node.host or node.name, node.processors) for node in remote]
    return hosts, read.ssh


_PROXY, _LAST = "HYDRA_LAUNCH: ", "HYDRA_LAUNCH_END"
#: Seconds from the end of the time limit of a command on a host until it is killed there.
_KILL_S = 2


class Remote:
    """Starts commands on hosts, each with a time limit after which it ends on its host, too.

    Parameters
    ----------
    ssh : command and options.
    limit_s : time limit of each command, seconds.
    """

    def __init__(self, ssh: str, limit_s: float) -> None:
        self._ssh, self.limit_s = shlex.split(ssh), limit_s

    def start(self, host: HostEntry, argv: Sequence[str], *, asks: bool = False) -> Started:
        """Start a command on a host, in the directory in which ssh starts commands.

        Parameters
        ----------
        asks : whether its standard input is a pipe; otherwise it is empty.

        Raises
        ------
        OSError : ssh cannot be started.
        """
        kept = {name: os.environ[name] for name in ("PYTHONPATH", "PATH") if name in os.environ}
        settings = [f"{name}={value}" for name, value in kept.items()]
        limited = ["timeout", f"--kill-after={_KILL_S}", f"{self.limit_s:g}", *argv]
        options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={max(1, round(self.limit_s))}"]
        command = shlex.join(["env", *settings, "UCX_LOG_LEVEL=error", *limited])
        return subprocess.Popen(
            [*self._ssh, *options, "--", host.destination, command],
            stdin=subprocess.PIPE if asks else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def finish(self, started: Sequence[Started]) -> str:
        """Wait for commands to end; return what went wrong, empty if nothing did."""
        faults = []
        for process in started:
            try:
                _, errors = process.communicate(timeout=self.limit_s + 2 * _KILL_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                faults.append(f"no answer within {self.limit_s:g} s")
                continue
            if process.returncode == 124:  # of timeout(1)
                faults.append(f"not finished after {self.limit_s:g} s (--limit allows more)")
            elif process.returncode != 0:
                faults.append(f"exit code {process.returncode}: {_last_line(errors)}")
        return "; ".join(dict.fromkeys(faults))


Started = subprocess.Popen[str]


def run_world(
    remote: Remote, mpiexec: str, hosts: Sequence[HostEntry], program: Sequence[str]
) -> tuple[list[str], str]:
    """Run a program with one rank on each host, under an mpiexec on the first one.

    mpiexec names the command that starts the processes of each host; these commands are started
    from here, so that the hosts need no ssh to each other.

    Returns
    -------
    lines that the program printed, and what went wrong (empty: nothing).
    """
    names = ",".join(f"{host.name}:1" for host in hosts)
    command = [mpiexec, "-launcher", "manual", "-localhost", hosts[0].address, "-hosts", names]
    command += ["-n", str(len(hosts)), *program_command(program)]
    started = [remote.start(hosts[0], command)]
    lines: list[str] = []
    try:
        assert started[0].stdout is not None
        proxies = []
        for line in started[0].stdout:
            if line.startswith(_LAST):
                break
            if line.startswith(_PROXY):
                proxies.append(shlex.split(line.removeprefix(_PROXY)))
        for host, proxy in zip(hosts, proxies, strict=False):
            started.append(remote.start(host, proxy))
        lines = started[0].stdout.read().splitlines()
    finally:
        fault = remote.finish(started)
    return lines, fault


def program_command(program: Sequence[str]) -> list[str]:
    """Return the command of a rank of one of the programs of `reshape.doctor.programs`."""
    return [sys.executable, "-m", "mpi4py", "-m", "reshape.doctor.programs", *program]


def _last_line(errors: str) -> str:
    return (errors.strip().splitlines() or ["no message"])[-1]
