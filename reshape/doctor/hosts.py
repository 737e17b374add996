"""The checks of `reshape doctor --hosts`: each host, each pair of hosts, and joins over all hosts.

No agent and no service is needed. Each host is reached from here; the hosts reach each other only
by MPI, as in a job.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from reshape.doctor.checks import Check
from reshape.doctor.remote import HostEntry, Remote, program_command, run_world
from reshape.errors import ReshapeError
from reshape.mpi import mpiexec_path

#: Up to this many hosts, all pairs are measured; of more hosts, each with the next one.
_ALL_PAIRS = 4
_QUESTIONS = 10
#: Difference of two clocks that is noted, seconds.
_CLOCK_S = 1.0
_SCARCE_BYTES = 1 << 30
#: Bandwidth below which is noted that moves of data are slow: 1 Gbit/s less 20 %, bytes/s.
_SLOW = 100e6


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

    The difference is that of the question with the shortest answer, with half that time as error.
    """
    command = [sys.executable, "-m", "reshape.doctor.host_facts", str(folder), word]
    try:
        process = remote.start(host, command, asks=True)
    except OSError as error:
        return None, str(error)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        facts: dict[str, Any] = json.loads(process.stdout.readline() or "null") or {}
        answers = []
        for _ in range(_QUESTIONS if facts else 0):
            asked = time.time()
            process.stdin.write("\n")
            process.stdin.flush()
            there = float(process.stdout.readline())
            took_s = time.time() - asked
            answers.append((took_s, there - asked - took_s / 2))
    except (OSError, ValueError):
        facts, answers = {}, []
    why = remote.finish([process])
    if not facts or not answers:
        return None, why or "it printed no facts"
    took_s, facts["clock_s"] = min(answers)
    facts["clock_error_s"] = took_s / 2
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
    here = {package: _release(package) for package in facts["releases"]}
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


def _release(package: str) -> str:
    try:
        return version(package)
    except ImportError:
        return ""


def _check_clock(name: str, difference_s: float, error_s: float) -> Check:
    result = f"{1000 * difference_s:+.1f} ms (+-{1000 * error_s:.1f} ms)"
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
    result = f"{free / 2**30:.1f} GiB free"
    if free >= _SCARCE_BYTES:
        return Check(f"{name} /dev/shm", "ok", result, "room for the registered data of jobs")
    meaning = "larger registered data stays in private memory and moves by messages"
    fix = f"on {name}: mount -o remount,size=50% /dev/shm"
    return Check(f"{name} /dev/shm", "note", result, meaning, fix)


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
    name, began = f"{a.name}-{b.name}", time.monotonic()
    lines, fault = run_world(remote, str(mpiexec_path()), (a, b), ("pair",))
    took_s = round(time.monotonic() - began, 3)
    measured = next((json.loads(line) for line in lines if line[:1] == "{"), None)
    if fault or measured is None:
        meaning = "no group can span these hosts"
        fix = (
            f"let {a.name} and {b.name} reach each other on all ports, by the addresses of the file"
        )
        return Check(name, "fault", fault or "no result", meaning, fix, took_s)
    rate = measured["bytes_per_s"]
    result = f"{1e6 * measured['latency_s']:.1f} us, {rate / 1e6:.0f} MB/s"
    if rate >= _SLOW:
        return Check(name, "ok", result, "one group can span them", seconds=took_s)
    meaning = "one group can span them; moves of data between them are slow"
    return Check(name, "note", result, meaning, seconds=took_s)


def check_joins(remote: Remote, hosts: Sequence[HostEntry], folder: Path | None) -> Check:
    """Let a group on each host join the others in turn, and the first group leave.

    Parameters
    ----------
    folder : of a file system that the hosts share; None if there is none.
    """
    if folder is None:
        return Check("joins and leaves", "skipped", "needs the shared folder")
    began = time.monotonic()
    leavers = ",".join(str(group) for group in range(len(hosts) - 1))
    mpiexec = [str(mpiexec_path()), "-launcher", "fork", "-n", "1"]
    started: list[subprocess.Popen[str]] = []
    for number, host in enumerate(hosts):
        program = ("groups", str(folder), str(number), leavers)
        started.append(remote.start(host, [*mpiexec, *program_command(program)]))
    fault = remote.finish(started)
    took_s = round(time.monotonic() - began, 3)
    if fault:
        meaning = "jobs cannot grow from one of these hosts onto another"
        fix = "let the hosts reach each other on all ports, by their host names, too"
        return Check("joins and leaves", "fault", fault, meaning, fix, took_s)
    result = f"{len(hosts)} groups joined in turn; all but the last one left"
    return Check("joins and leaves", "ok", result, "jobs grow and leave hosts", seconds=took_s)
