"""Hostile messages at a service that answers resize points.

    python benchmarks/reliability/hostile.py [--messages 10000] [--seconds 8] [--files 4096]

starts a real service that listens on its local socket and, with CURVE, on TCP. Jobs (a stand-in
replaces their processes and the agent) reach resize points at a steady rate, first without and then
beside each kind of hostile traffic, which another process sends over connections of its own. Each
row has

- `sent`: messages or connections that were sent within the time of the row;
- `refused`: by how much the counts of refusals in `reshape info` have grown;
- `lines`: lines that the log of the service has grown by;
- `p50_ms`, `p99_ms`: latency of the resize points; `ratio`: p99 relative to that without attack;
- `connect_s`: the longest time in which a client with a key connected and got an answer;
- `memory_mib`: the most resident memory that the service had.

The service may have `--files` files open. Of silent connections, twice as many are made, and as
many are open at a time. The exit code is 1 if the service or a job of it is gone, or if not
everything was refused. On the local socket, connections that end within a message are not counted,
nor are messages above the limit of ZeroMQ, nor frames of a message without an end.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from reshape.wire.access import read_access
from scheduler.node.access_keys import AccessKeys
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.protocol.client import ServiceConnection, connect

sys.path.insert(0, str(Path(__file__).parents[1] / "scheduler"))
from hostile_attacks import ATTACKS, BY_MANY, UNCOUNTED, Target
from hostile_connections import PROCESSES
from service import SIZE, FirstRanks, service, submission, submit

#: Slow connections; seconds between two connections of a client with a key.
SLOW, PROBE_S = 5000, 0.2
#: Seconds within which the service has read all that an attack has sent, on a machine under load.
COUNTED_S = 60.0


def _attack(
    name: str, target: Target, part: int, most: int, seconds: float, pipe: Connection
) -> None:
    """Carry out an attack at a steady rate; send how many steps were made."""
    steps = ATTACKS[name](target, part)
    pipe.send(None)
    pipe.recv()
    began, made = time.monotonic(), 0
    while made < most and time.monotonic() - began < seconds:
        due = began + made * seconds / most
        if (wait := due - time.monotonic()) > 0:
            time.sleep(wait)
        next(steps)
        made += 1
    steps.close()  # type: ignore[attr-defined]
    pipe.send(made)


def _probe(access: Path, pipe: Connection) -> None:
    """Connect with a key again and again; send the longest time until the answer."""
    longest = 0.0
    pipe.send(None)
    pipe.recv()
    while not pipe.poll(PROBE_S):
        began = time.monotonic()
        with connect(access) as client:
            client.request(m.ServerInfo(), 60.0)
        longest = max(longest, time.monotonic() - began)
    pipe.send(longest)


class Aside:
    """A process that runs beside the resize points.

    Parameters
    ----------
    work : sends None when it is ready, waits for None to begin, and sends its result.
    """

    def __init__(self, work: Callable[..., None], *values: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(*values, theirs), daemon=True)
        self._process.start()
        theirs.close()  # its end is noticed, then
        self._pipe.recv()

    def begin(self) -> None:
        """Let it begin."""
        self._pipe.send(None)

    def finish(self) -> float:
        """Ask it to end; return its result."""
        with suppress(BrokenPipeError):  # it has ended by itself
            self._pipe.send(None)
        result: float = self._pipe.recv()
        self._process.join()
        return result


def info_of(place: ServiceDirectory) -> m.Info:
    """Ask the service for its state."""
    with ServiceConnection(place.endpoint) as client:
        answer = client.request(m.ServerInfo(), 10.0)
    assert isinstance(answer, m.Info)
    return answer


def lines_of(place: ServiceDirectory) -> int:
    """Count the lines of the log of the service."""
    return place.log("serve").read_bytes().count(b"\n")


def _forget_peak(pid: int) -> None:
    """Let the kernel note the most resident memory of a process anew (proc(5), clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peak_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) >> 10


def measure(options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    """Run all rows; return them, and what went wrong."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    rows: list[dict[str, Any]] = []
    wrong: list[str] = []
    listen = ("--listen", f"127.0.0.1:{port}", "--allow-root")
    with service(SIZE * options.jobs, "fcfs", *listen) as (place, agent, pid):
        keys = AccessKeys(place.path, place.owner)
        user = place.path / "mallory.json"
        keys.create(user, "user", "mallory")
        submit(place.endpoint, options.jobs, submission(SIZE))
        while len(agent.tokens) < options.jobs:
            time.sleep(0.1)
        job = keys.folder / "job.json"
        target = Target(place.endpoint, port, user, job, 1, options.files)
        for transport in ("local", "TCP"):
            access = read_access(target.job) if transport == "TCP" else None
            endpoint = place.endpoint if access is None else access.endpoint
            jobs = FirstRanks(endpoint, agent.tokens, access)
            jobs.steadily(min(options.rate, 500.0), 2.0)  # every job connects
            names = [name for name in options.attacks or ATTACKS if name.endswith(transport)]
            for name in (None, *names) if names else ():
                _forget_peak(pid)
                row = _row(name, transport, target, place, jobs, options)
                row["memory_mib"] = _peak_mib(pid)
                rows.append(row)
                base = next(r for r in rows if r["attack"] == f"none, {transport}")
                row["ratio"] = round(row["p99_ms"] / base["p99_ms"], 2)
                if name and name not in UNCOUNTED and row["refused"] < row["sent"]:
                    wrong.append(f"{name}: {row['refused']} of {row['sent']} refused")
            jobs.peers.close()
        after = info_of(place)
        if (after.pid, after.running) != (pid, options.jobs):
            wrong.append(f"{after.running} of {options.jobs} jobs run, process {after.pid}")
    return rows, wrong


def _row(
    name: str | None,
    transport: str,
    target: Target,
    place: ServiceDirectory,
    jobs: FirstRanks,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Measure resize points, beside an attack if there is one."""
    refused, lines = sum(info_of(place).refused.values()), lines_of(place)
    seconds = options.seconds
    most = {"silent, TCP": 2 * options.files, "slow, TCP": SLOW}.get(name or "", options.messages)
    many = 0 if name is None else PROCESSES if name in BY_MANY else 1
    probe = Aside(_probe, place.path if transport == "local" else target.user)
    attackers = [Aside(_attack, name, target, part, most // many, seconds) for part in range(many)]
    for aside in (probe, *attackers):
        aside.begin()
    latencies, _ = jobs.steadily(options.rate, seconds)
    sent = round(sum(attacker.finish() for attacker in attackers))
    connect_s = round(probe.finish(), 2)
    if name is not None:
        until = time.monotonic() + COUNTED_S
        while sum(info_of(place).refused.values()) - refused < sent and time.monotonic() < until:
            if name in UNCOUNTED:
                break
            time.sleep(0.1)
    p50, p99 = (1e3 * np.quantile(latencies, (0.5, 0.99))).round(2).tolist()
    return {
        "attack": name or f"none, {transport}",
        "sent": sent,
        "refused": sum(info_of(place).refused.values()) - refused,
        "lines": lines_of(place) - lines,
        "p50_ms": p50,
        "p99_ms": p99,
        "connect_s": connect_s,
    }


def main() -> int:
    """Print the table, or the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100, help="running jobs (100)")
    parser.add_argument("--rate", type=float, default=500, help="resize points a second (500)")
    parser.add_argument("--messages", type=int, default=10_000, help="of each attack (10000)")
    parser.add_argument("--seconds", type=float, default=8, help="time of each row (8)")
    parser.add_argument("--attacks", nargs="+", choices=[*ATTACKS], help="these alone")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--files", type=int, default=4096, help="open files of the service (4096)")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (options.files, options.files))
    os.environ.pop("RESHAPE_DIR", None)
    rows, wrong = measure(options)
    if options.json:
        print(json.dumps({"rows": rows, "wrong": wrong}, indent=2))
    else:
        names = [*rows[0]]
        print(f"{names[0]:>26}" + "".join(f"{name:>11}" for name in names[1:]))
        for row in rows:
            what, *figures = row.values()
            print(f"{what:>26}" + "".join(f"{figure:>11}" for figure in figures))
        print("\n".join(wrong) or "the service and all jobs run; everything was refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
