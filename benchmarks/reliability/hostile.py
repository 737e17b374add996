"""Hostile messages at a service that answers resize points.

    python benchmarks/reliability/hostile.py [--messages 10000] [--seconds 8] [--json]

starts a real service that listens on its local socket and, with CURVE, on TCP. Jobs (a stand-in
replaces their processes and the agent) reach resize points at a steady rate, first without and then
beside each kind of hostile traffic, which another process sends over connections of its own. Each
row has

- `sent`: messages or connections that were sent within the time of the row;
- `refused`: by how much the counts of refusals in `reshape info` have grown;
- `lines`: lines that the log of the service has grown by;
- `p50_ms`, `p99_ms`: latency of the resize points; `ratio`: p99 relative to that without attack.

The exit code is 1 if the service or a job of it is gone, or if not everything was refused. The
count for "no key" is a lower bound: it omits as many connections as there are proven ones.
Connections that end within a message are not counted, nor are messages above the limit of ZeroMQ.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, cycle
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import zmq

from reshape.wire import messages as m
from reshape.wire.access import read_access
from reshape.wire.access_file import AccessFile
from reshape.wire.client import Client, use_keys
from reshape.wire.codec import MAX_REQUEST_BYTES, MAX_REQUEST_FRAME_BYTES, PROTOCOL, encode
from scheduler.node.access_keys import AccessKeys
from scheduler.node.directory import ServiceDirectory

sys.path.insert(0, str(Path(__file__).parents[1] / "scheduler"))
from service import SIZE, FirstRanks, service, submission, submit

#: Rounds of the opening of a TCP connection that are recorded and sent again.
RECORDED_S = 0.3


@dataclass(frozen=True)
class Target:
    """What an attacker knows of a service.

    Attributes
    ----------
    endpoint : local socket.
    port : TCP port on this machine.
    user : access file of a user who owns no job.
    job : access file of jobs.
    victim : number of a job of another user.
    """

    endpoint: str
    port: int
    user: Path
    job: Path
    victim: int


Attack = Callable[[Target], Iterator[None]]
"""Sends one hostile message, or makes one hostile connection, at each step."""


def malformed(target: Target) -> Iterator[None]:
    """Messages that are no messages, over the local socket."""
    return _send(_bad_frames(), target.endpoint)


def malformed_tcp(target: Target) -> Iterator[None]:
    """The same over TCP with the key of a user."""
    return _send(_bad_frames(), target.endpoint, read_access(target.user))


def oversized(target: Target) -> Iterator[None]:
    """Messages above the limit, and above that of ZeroMQ; only a few, since each is large."""
    sizes = (MAX_REQUEST_BYTES + 1, MAX_REQUEST_BYTES + 1, MAX_REQUEST_FRAME_BYTES + 1)
    for size in cycle(sizes):
        frames = iter([[PROTOCOL, bytes(size)]])
        yield from _send(frames, target.endpoint)
        time.sleep(0.2)


def half(target: Target) -> Iterator[None]:
    """Connections to the local socket that end within the greeting or within a message."""
    greeting = b"\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL" + bytes(48)
    ready = b"\4\x26\5READY\x0bSocket-Type\0\0\0\6DEALER\x08Identity\0\0\0\0"
    beginning = b"\1\x09reshape/1\2" + (1 << 20).to_bytes(8, "big") + b"half"
    texts = (greeting[:9], greeting, greeting + ready, greeting + ready + beginning, b"GET /\r\n")
    for text in cycle(texts):
        with socket.socket(socket.AF_UNIX) as peer, suppress(OSError):
            peer.connect(target.endpoint.removeprefix("ipc://"))
            peer.sendall(text)
        yield


def wrong_token(target: Target) -> Iterator[None]:
    """Messages in the name of a job without its token."""
    return _send(_forged(target), target.endpoint)


def wrong_token_tcp(target: Target) -> Iterator[None]:
    """The same over TCP with the key of jobs."""
    return _send(_forged(target), target.endpoint, read_access(target.job))


def other_user(target: Target) -> Iterator[None]:
    """Requests about the job of another user, and requests that a user may not send."""
    requests: list[m.Message] = [
        m.Cancel(job=target.victim),
        m.Explain(job=target.victim),
        m.Stop(kill=True),
        m.AgentHello(node="local", pid=1, secret="", groups=[], restart_points=[]),
    ]
    return _send(map(encode, cycle(requests)), target.endpoint, read_access(target.user))


def wrong_key(target: Target) -> Iterator[None]:
    """Connections with a key that was never granted."""
    access = read_access(target.user)
    while True:
        public, secret = (key.decode() for key in zmq.curve_keypair())
        unknown = msgspec.structs.replace(access, public_key=public, secret_key=secret)
        yield from _connect_once(unknown.endpoint, unknown)


def no_key(target: Target) -> Iterator[None]:
    """Connections without CURVE, and other protocols."""
    while True:
        yield from _connect_once(f"tcp://127.0.0.1:{target.port}", None)
        with suppress(OSError), socket.create_connection(("127.0.0.1", target.port)) as peer:
            peer.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
            peer.settimeout(1.0)
            peer.recv(4096)
        yield


def replayed(target: Target) -> Iterator[None]:
    """The recorded bytes of a valid connection with a request, sent again in other connections."""
    parts = _record(target)
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", target.port)) as peer:
            peer.settimeout(1.0)
            for part in parts:
                peer.sendall(part)
            while peer.recv(4096):
                pass
        yield


ATTACKS: dict[str, Attack] = {
    "malformed, local": malformed,
    "oversized, local": oversized,
    "half, local": half,
    "wrong token, local": wrong_token,
    "malformed, TCP": malformed_tcp,
    "wrong token, TCP": wrong_token_tcp,
    "another user's job, TCP": other_user,
    "wrong key, TCP": wrong_key,
    "no key, TCP": no_key,
    "replayed, TCP": replayed,
}
#: Attacks that the service refuses without a count: ZeroMQ closes the connection.
UNCOUNTED = {"half, local", "oversized, local"}


def _bad_frames() -> Iterator[list[bytes]]:
    numbers = random.Random(0)
    body = encode(m.Submit(submission=submission(1)))[1]
    for number in count():
        cut = numbers.randrange(1, len(body))
        yield (
            [b""],
            [PROTOCOL],
            [PROTOCOL, body[:cut]],
            [b"reshape/999", body],
            [PROTOCOL, numbers.randbytes(200)],
            [PROTOCOL, body[:4] + numbers.randbytes(8) + body[12:]],
            [PROTOCOL, body, body],
        )[number % 7]


def _forged(target: Target) -> Iterator[list[bytes]]:
    job, token = target.victim, "0" * 32
    point = m.AtResizePoint(
        job=job,
        token=token,
        epoch=99,
        size=SIZE,
        registered_bytes=0,
        iteration=1,
        iteration_s=1.0,
    )
    facts = m.Facts(job=job, token=token, facts={"verified": False})
    report = m.ResizeReport(job=job, token=token, serial=1, ok=True)
    return map(encode, cycle([point, facts, report]))


def _send(
    messages: Iterator[list[bytes]], endpoint: str, access: AccessFile | None = None
) -> Iterator[None]:
    """Send messages over one connection, and read the answers."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 2000)
        if access is not None:
            use_keys(peer, access)
        peer.connect(endpoint if access is None else access.endpoint)
        for frames in messages:
            peer.send_multipart(frames)
            while peer.poll(0):
                peer.recv_multipart()
            yield


def _connect_once(endpoint: str, access: AccessFile | None) -> Iterator[None]:
    """Make one connection, and send a request over it as soon as it is accepted."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        peer.setsockopt(zmq.RECONNECT_IVL, -1)
        if access is not None:
            use_keys(peer, access)
        monitor = peer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        peer.connect(endpoint)
        with suppress(zmq.Again):  # the connection may be closed already
            peer.send_multipart(encode(m.Stop(kill=True)), zmq.NOBLOCK)
        monitor.poll(1000)
        peer.disable_monitor()
        monitor.close(linger=0)
    yield


def _record(target: Target) -> list[bytes]:
    """Record what the client of a valid connection sends, in the pieces in which it sends it."""
    access, parts = read_access(target.user), list[bytes]()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        with Client(endpoint, access) as client:
            ours, _ = listener.accept()
            theirs = socket.create_connection(("127.0.0.1", target.port))
            with ours, theirs:
                until = time.monotonic() + RECORDED_S
                ours.settimeout(0.01)
                theirs.settimeout(0.01)
                while time.monotonic() < until:
                    with suppress(TimeoutError):
                        parts.append(ours.recv(1 << 16))
                        theirs.sendall(parts[-1])
                    with suppress(TimeoutError):
                        ours.sendall(theirs.recv(1 << 16))
                client.send(m.ServerInfo(), 5.0)
                ours.settimeout(5.0)
                parts.append(ours.recv(1 << 16))
    return parts


def _attack(name: str, target: Target, most: int, seconds: float, pipe: Connection) -> None:
    """Carry out an attack at a steady rate; send how many steps were made."""
    steps = ATTACKS[name](target)
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


class Attacker:
    """A process that carries out one attack."""

    def __init__(self, name: str, target: Target, most: int, seconds: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_attack, args=(name, target, most, seconds, theirs), daemon=True
        )
        self._process.start()
        theirs.close()  # its end is noticed, then
        self._pipe.recv()
        self._pipe.send(None)

    def finish(self) -> int:
        """Wait for its end; return how many messages or connections it has made."""
        made: int = self._pipe.recv()
        self._process.join()
        return made


def info_of(place: ServiceDirectory) -> m.Info:
    """Ask the service for its state."""
    with Client(place.endpoint) as client:
        answer = client.request(m.ServerInfo(), 10.0)
    assert isinstance(answer, m.Info)
    return answer


def lines_of(place: ServiceDirectory) -> int:
    """Count the lines of the log of the service."""
    return place.log("serve").read_bytes().count(b"\n")


def measure(options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    """Run all rows; return them, and what went wrong."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    rows: list[dict[str, Any]] = []
    wrong: list[str] = []
    listen = ("--listen", f"127.0.0.1:{port}")
    with service(SIZE * options.jobs, "fcfs", *listen) as (place, agent, pid):
        keys = AccessKeys(place.path, place.owner)
        user = place.path / "mallory.json"
        keys.create(user, "user", "mallory")
        submit(place.endpoint, options.jobs, submission(SIZE))
        while len(agent.tokens) < options.jobs:
            time.sleep(0.1)
        target = Target(place.endpoint, port, user, keys.folder / "job.json", 1)
        for transport in ("local", "TCP"):
            access = read_access(target.job) if transport == "TCP" else None
            endpoint = place.endpoint if access is None else access.endpoint
            jobs = FirstRanks(endpoint, agent.tokens, access)
            jobs.steadily(min(options.rate, 500.0), 2.0)  # every job connects
            names = [name for name in options.attacks or ATTACKS if name.endswith(transport)]
            for name in (None, *names) if names else ():
                row = _row(name, transport, target, place, jobs, options)
                rows.append(row)
                base = next(r for r in rows if r["attack"] == f"none, {transport}")
                row["ratio"] = round(row["p99_ms"] / base["p99_ms"], 2)
                # ZeroMQ does not say which connection has ended: proven ones are subtracted.
                open_ones = options.jobs if name == "no key, TCP" else 0
                if name and name not in UNCOUNTED and row["refused"] < row["sent"] - open_ones:
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
    sent, seconds = 0, options.seconds
    if name is None:
        latencies, _ = jobs.steadily(options.rate, seconds)
    else:
        attacker = Attacker(name, target, options.messages, seconds)
        latencies, _ = jobs.steadily(options.rate, seconds)
        sent = attacker.finish()
        until = time.monotonic() + 5.0
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
    options = parser.parse_args()
    os.environ.pop("RESHAPE_DIR", None)
    rows, wrong = measure(options)
    if options.json:
        print(json.dumps({"rows": rows, "wrong": wrong}, indent=2))
    else:
        names = [*rows[0]]
        print(f"{names[0]:>26}" + "".join(f"{name:>9}" for name in names[1:]))
        for row in rows:
            what, *figures = row.values()
            print(f"{what:>26}" + "".join(f"{figure:>9}" for figure in figures))
        print("\n".join(wrong) or "the service and all jobs run; everything was refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
