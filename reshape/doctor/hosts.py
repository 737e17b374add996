"""The checks of `reshape doctor --hosts`: each host, each pair of hosts, and joins over all hosts.

No agent and no service is needed. Each host is reached from here through ssh; the hosts reach each
other only by MPI, as in a job.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, pairwise
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from reshape.doctor.checks import Check, check_free_memory
from reshape.doctor.host_facts import release_of
from reshape.errors import ReshapeError
from reshape.mpi import mpiexec_path

#: Up to this many hosts, all pairs are measured; of more hosts, each with the next one.
_ALL_PAIRS = 4
#: Difference of two clocks that is noted, seconds.
_CLOCK_S = 1.0
#: Bandwidth below which is noted that moves of data are slow: 1 Gbit/s less 20 %, bytes/s.
_SLOW = 100e6
_PROXY, _LAST = "HYDRA_LAUNCH: ", "HYDRA_LAUNCH_END"
#: Seconds from the end of the time limit of a command on a host until it is killed there.
_KILL_S = 2


class HostEntry(msgspec.Struct, frozen=True):
    """A host: its node, as a configuration file describes it.

    Attributes
    ----------
    processors : of the node; 0: the file does not say how many there are.
    host : where ssh reaches it; "": by the name of its node.
    launcher : "": that of the file.
    """

    name: str
    processors: int = 0
    host: str = ""
    launcher: str = ""

    @property
    def destination(self) -> str:
        """Where ssh reaches it."""
        return self.host or self.name

    @property
    def address(self) -> str:
        """Name or address under which other hosts reach this one."""
        return self.destination.rpartition("@")[2]


class _File(msgspec.Struct):
    """What is read of a file; other fields are ignored."""

    nodes: list[str | HostEntry]
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
        HostEntry(entry, read.processors_per_node) if isinstance(entry, str) else entry
        for entry in read.nodes
    ]
    hosts = [node for node in nodes if (node.launcher or read.launcher) != "local"]
    if not hosts:
        raise ReshapeError(
            f"{path} has no node on another host: give its nodes the launcher ssh, slurm or none"
        )
    return hosts, read.ssh


class Remote:
    """Starts commands on hosts, each with a time limit after which it ends on its host, too.

    Parameters
    ----------
    ssh : command and options.
    limit_s : time limit of each command, seconds.
    """

    def __init__(self, ssh: str, limit_s: float) -> None:
        self._ssh, self.limit_s = shlex.split(ssh), limit_s

    def start(self, host: HostEntry, argv: Sequence[str]) -> subprocess.Popen[str]:
        """Start a command on a host, in the directory in which ssh starts commands.

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
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def finish(self, started: Sequence[subprocess.Popen[str]]) -> str:
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


# ---------------------------------------------------------------- the checks


def examine_hosts(
    hosts: Sequence[HostEntry], ssh: str, shared: Path, limit_s: float
) -> list[Check]:
    """Run all checks, except those that depend on a failed one.

    Parameters
    ----------
    shared : folder that all hosts are to share.
    limit_s : time limit of each command on a host, seconds.
    """
    remote, word = Remote(ssh, limit_s), f"reshape-doctor-{uuid.uuid4().hex}"
    folder = shared / word
    try:
        folder.mkdir()
        (folder / word).write_text(word)
    except OSError as error:
        raise ReshapeError(f"cannot write to {shared}: {error.strerror}; see --shared") from None
    try:
        with ThreadPoolExecutor(len(hosts)) as pool:
            answers = list(pool.map(lambda host: _ask(remote, host, folder, word), hosts))
        checks = [
            check
            for host, (facts, why) in zip(hosts, answers, strict=True)
            for check in check_host(host, facts, why, folder)
        ]
        reached = [host for host, (facts, _) in zip(hosts, answers, strict=True) if facts]
        pairs = list(combinations(reached, 2) if len(reached) <= _ALL_PAIRS else pairwise(reached))
        faults = {check.name for check in checks if check.status == "fault"}
        checks += [check_pair(remote, *pair) for pair in pairs]
        if len(reached) > 1:
            is_shared = not any(f"{host.name} shared folder" in faults for host in reached)
            checks.append(check_joins(remote, reached, folder if is_shared else None))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return checks


def _ask(
    remote: Remote, host: HostEntry, folder: Path, word: str
) -> tuple[dict[str, Any] | None, str]:
    """Return the facts of a host with the difference of its clock; None and why if it fails.

    The host told its time between the start of the command and the end of its output. The middle of
    that time is taken for it, with half of it as error.
    """
    command = [sys.executable, "-m", "reshape.doctor.host_facts", str(folder), word]
    asked = time.time()
    try:
        process = remote.start(host, command)
    except OSError as error:
        return None, str(error)
    assert process.stdout is not None
    output = process.stdout.read()
    took_s = time.time() - asked
    why = remote.finish([process])
    try:
        facts: dict[str, Any] = json.loads(output)
    except ValueError:
        return None, why or "it printed no facts"
    told = facts.get("time", inf)  # earlier releases do not tell it
    facts |= {"clock_s": told - asked - took_s / 2, "clock_error_s": took_s / 2}
    return facts, ""


def check_host(
    host: HostEntry, facts: dict[str, Any] | None, why: str, folder: Path
) -> list[Check]:
    """State what the facts of a host mean for jobs.

    Parameters
    ----------
    facts : see `reshape.doctor.host_facts`, with ``clock_s`` and ``clock_error_s``; None if the
        host gave none, for the reason `why`.
    """
    name = host.name
    if facts is None:
        fix = f"try: ssh {host.destination} {sys.executable} -m reshape --version"
        return [Check(f"{name} reached", "fault", why, "no agent can be started by ssh", fix)]
    return [
        Check(f"{name} reached", "ok", f"{facts['host']} at {host.destination}"),
        _check_releases(name, facts),
        _check_clock(name, facts["clock_s"], facts["clock_error_s"]),
        _check_cpus(host, facts["cpus"]),
        _check_memory(name, facts["shm_free"]),
        _check_shared(name, facts, folder),
    ]


def _check_releases(name: str, facts: dict[str, Any]) -> Check:
    here = {package: release_of(package) for package in facts["releases"]}
    releases = facts["releases"] | {"python": facts["python"]}
    here["python"] = platform.python_version()
    result = ", ".join(f"{package} {release or 'missing'}" for package, release in releases.items())
    other = [package for package in releases if releases[package] != here[package]]
    if not other:
        return Check(f"{name} releases", "ok", result, "the same as here")
    fix = ", ".join(f"install {package} {here[package]} there" for package in other)
    serious = {"reshape-mpi", "mpich"} & set(other)
    meaning = "its agent is refused, or jobs cannot span it" if serious else "not the same as here"
    return Check(f"{name} releases", "fault" if serious else "note", result, meaning, fix)


def _check_clock(name: str, difference_s: float, error_s: float) -> Check:
    if error_s >= _CLOCK_S or difference_s == inf:
        result = f"not known: the answer took {2 * error_s:.1f} s, or has no time"
        return Check(f"{name} clock", "skipped", result)
    result = f"{1000 * difference_s:+z.1f} ms (+-{1000 * error_s:.1f} ms)"
    if abs(difference_s) - error_s < _CLOCK_S:
        return Check(f"{name} clock", "ok", result, "times in logs agree")
    meaning = "times in its logs differ; the service uses only its own clock"
    return Check(f"{name} clock", "note", result, meaning, f"synchronise the clock of {name}")


def _check_cpus(host: HostEntry, cpus: int) -> Check:
    result = f"{cpus}" + (f" for {host.processors} processors" if host.processors else "")
    if host.processors > cpus:
        meaning = "ranks share CPUs and are not bound"
        fix = f"give {host.name} at most {cpus} processors"
        return Check(f"{host.name} CPUs", "note", result, meaning, fix)
    meaning = "ranks are bound" if host.processors else ""
    return Check(f"{host.name} CPUs", "ok", result, meaning)


def _check_memory(name: str, free: int) -> Check:
    if free < 0:
        meaning = "data moves by messages; jobs cannot restart after a failed resize"
        fix = f"mount a tmpfs on /dev/shm of {name} that you can write to"
        return Check(f"{name} /dev/shm", "fault", "cannot be written to", meaning, fix)
    fix = f"on {name}: mount -o remount,size=50% /dev/shm"
    return check_free_memory(f"{name} /dev/shm", free, f"{free / 2**30:.1f} GiB free", fix)


def _check_shared(name: str, facts: dict[str, Any], folder: Path) -> Check:
    fault = facts["shared"]
    if not fault and not (folder / f"{folder.name}-{facts['host']}").exists():
        fault = f"what {name} writes to {folder.parent} does not appear here"
    if not fault:
        return Check(f"{name} shared folder", "ok", str(folder.parent), "jobs may run there")
    meaning = "jobs submitted from there end with an error on this host"
    fix = f"mount the file system of {folder.parent} on {name}, or name another one by --shared"
    return Check(f"{name} shared folder", "fault", fault, meaning, fix)


def check_pair(remote: Remote, a: HostEntry, b: HostEntry) -> Check:
    """Measure the messages of a world of two ranks, one on each host."""
    name = f"{a.name}-{b.name}"
    lines, fault = run_world(remote, str(mpiexec_path()), (a, b), ("pair",))
    measured = next((json.loads(line) for line in lines if line[:1] == "{"), None)
    if fault or measured is None:
        meaning = "no group can span these hosts"
        fix = (
            f"let {a.name} and {b.name} reach each other on all ports, by the addresses of the file"
        )
        return Check(name, "fault", fault or "no result", meaning, fix)
    rate = measured["bytes_per_s"]
    result = f"{1e6 * measured['latency_s']:.1f} us, {rate / 1e6:.0f} MB/s"
    if rate >= _SLOW:
        return Check(name, "ok", result, "one group can span them")
    return Check(
        name, "note", result, "one group can span them; moves of data between them are slow"
    )


def check_joins(remote: Remote, hosts: Sequence[HostEntry], folder: Path | None) -> Check:
    """Let a group on each host join the others in turn, and the first group leave.

    Parameters
    ----------
    folder : of a file system that the hosts share; None if there is none.
    """
    if folder is None:
        return Check("joins and leaves", "skipped", "needs the shared folder")
    leavers = ",".join(str(group) for group in range(len(hosts) - 1))
    mpiexec = [str(mpiexec_path()), "-launcher", "fork", "-n", "1"]
    started: list[subprocess.Popen[str]] = []
    for number, host in enumerate(hosts):
        program = ("groups", str(folder), str(number), leavers)
        started.append(remote.start(host, [*mpiexec, *program_command(program)]))
    fault = remote.finish(started)
    if fault:
        meaning = "jobs cannot grow from one of these hosts onto another"
        fix = "let the hosts reach each other on all ports, by their host names, too"
        return Check("joins and leaves", "fault", fault, meaning, fix)
    result = f"{len(hosts)} groups joined in turn; all but the last one left"
    return Check("joins and leaves", "ok", result, "jobs grow and leave hosts")
