"""Attacks on a service, which `benchmarks/reliability/hostile.py` runs."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path

import msgspec
import zmq
from hostile_connections import PROCESSES, handshakes, record, silent, slow
from service import SIZE, submission

from reshape.wire.access import AccessFile, read_access
from reshape.wire.codec import MAX_REQUEST_BYTES, MAX_REQUEST_FRAME_BYTES, PROTOCOL, encode
from reshape.wire.connection import use_keys
from scheduler.protocol import messages as m


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
    files : files that the service may have open.
    """

    endpoint: str
    port: int
    user: Path
    job: Path
    victim: int
    files: int


Attack = Callable[[Target, int], Iterator[None]]
"""Sends one hostile message, or makes one hostile connection, at each step.

The second argument is the number of the process, of those that carry out the attack.
"""


#: Milliseconds within which a service under load answers a message, or has dropped its answer.
ANSWER_MS = 10_000
#: The begin of a connection without keys, and of a message (ZMTP 3.1).
_GREETING = b"\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL" + bytes(48)
_OPENING = _GREETING + b"\4\x29\5READY\x0bSocket-Type\0\0\0\6DEALER\x08Identity\0\0\0\0"
_FIRST_FRAME = b"\1\x09reshape/2"


def malformed(target: Target, _part: int) -> Iterator[None]:
    """Messages that are no messages, over the local socket."""
    return _send(_bad_frames(), target.endpoint)


def malformed_tcp(target: Target, _part: int) -> Iterator[None]:
    """The same over TCP with the key of a user."""
    return _send(_bad_frames(), target.endpoint, read_access(target.user))


def oversized(target: Target, _part: int) -> Iterator[None]:
    """Messages above the limit, and above that of ZeroMQ; only a few, since each is large."""
    sizes = (MAX_REQUEST_BYTES + 1, MAX_REQUEST_BYTES + 1, MAX_REQUEST_FRAME_BYTES + 1)
    for size in cycle(sizes):
        frames = iter([[PROTOCOL, bytes(size)]])
        yield from _send(frames, target.endpoint, last_ms=0)  # the largest ones have no answer
        time.sleep(0.2)


def half(target: Target, _part: int) -> Iterator[None]:
    """Connections to the local socket that end within the greeting or within a message."""
    beginning = _FIRST_FRAME + b"\2" + (1 << 20).to_bytes(8, "big") + b"half"
    texts = (_GREETING[:9], _GREETING, _OPENING, b"GET /\r\n")
    for text in cycle(texts):
        with socket.socket(socket.AF_UNIX) as peer, suppress(OSError):
            peer.connect(target.endpoint.removeprefix("ipc://"))
            peer.sendall(text)
            if text == _OPENING:
                peer.recv(100, socket.MSG_WAITALL)  # no frame may come before greeting and READY
                peer.sendall(beginning)
        yield


def endless(target: Target, _part: int) -> Iterator[None]:
    """Messages without an end over the local socket; only a few frames, since each is large."""
    frame = b"\3" + (16 << 20).to_bytes(8, "big") + bytes(16 << 20)
    while True:
        with socket.socket(socket.AF_UNIX) as peer, suppress(OSError):
            peer.connect(target.endpoint.removeprefix("ipc://"))
            peer.sendall(_OPENING)
            peer.recv(100, socket.MSG_WAITALL)  # no frame may come before greeting and READY
            peer.sendall(_FIRST_FRAME)
            while True:  # until the service closes the connection
                peer.sendall(frame)
                time.sleep(0.02)
                yield


def wrong_token(target: Target, _part: int) -> Iterator[None]:
    """Messages in the name of a job without its token."""
    return _send(_forged(target), target.endpoint)


def wrong_token_tcp(target: Target, _part: int) -> Iterator[None]:
    """The same over TCP with the key of jobs."""
    return _send(_forged(target), target.endpoint, read_access(target.job))


def other_user(target: Target, _part: int) -> Iterator[None]:
    """Requests about the job of another user, and requests that a user may not send."""
    requests: list[m.Message] = [
        m.ChangeJobs.one(target.victim, m.CancelJob()),
        m.Explain(job=target.victim),
        m.Stop(kill=True),
        m.AgentHello(node="local", pid=1, secret="", groups=[], restart_points=[]),
    ]
    return _send(map(encode, cycle(requests)), target.endpoint, read_access(target.user))


def wrong_key(target: Target, _part: int) -> Iterator[None]:
    """Connections with a key that was never granted."""
    access = read_access(target.user)
    while True:
        public, secret = (key.decode() for key in zmq.curve_keypair())
        unknown = msgspec.structs.replace(access, public_key=public, secret_key=secret)
        yield from _connect_once(unknown.endpoint, unknown)


def no_key(target: Target, _part: int) -> Iterator[None]:
    """Connections without CURVE, and other protocols."""
    while True:
        yield from _connect_once(f"tcp://127.0.0.1:{target.port}", None)
        with suppress(OSError), socket.create_connection(("127.0.0.1", target.port)) as peer:
            peer.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
            peer.settimeout(1.0)
            peer.recv(4096)
        yield


def replayed(target: Target, _part: int) -> Iterator[None]:
    """The recorded bytes of a valid connection with a request, sent again in other connections."""
    parts = record(target.port, target.user)
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", target.port)) as peer:
            peer.settimeout(1.0)
            for part in parts:
                peer.sendall(part)
            while peer.recv(4096):
                pass
        yield


def silent_ones(target: Target, part: int) -> Iterator[None]:
    """As many silent connections as the service may have open files."""
    return silent(target.port, part, target.files // PROCESSES)


def slow_ones(target: Target, part: int) -> Iterator[None]:
    """Connections that send their opening byte by byte."""
    opening = b"".join(record(target.port, target.user))
    return slow(target.port, part, target.files // PROCESSES, opening)


def flood(target: Target, part: int) -> Iterator[None]:
    """Connections that begin a handshake, at which the service has to compute."""
    return handshakes(target.port, part, b"".join(record(target.port, target.user)))


ATTACKS: dict[str, Attack] = {
    "malformed, local": malformed,
    "oversized, local": oversized,
    "half, local": half,
    "endless, local": endless,
    "wrong token, local": wrong_token,
    "malformed, TCP": malformed_tcp,
    "wrong token, TCP": wrong_token_tcp,
    "another user's job, TCP": other_user,
    "wrong key, TCP": wrong_key,
    "no key, TCP": no_key,
    "replayed, TCP": replayed,
    "silent, TCP": silent_ones,
    "slow, TCP": slow_ones,
    "handshakes, TCP": flood,
}
#: Attacks by several processes at the same time.
BY_MANY = {"silent, TCP", "slow, TCP", "handshakes, TCP"}
#: Attacks that the service refuses without a count: ZeroMQ closes the connection.
UNCOUNTED = {"half, local", "oversized, local", "endless, local"}


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
            [PROTOCOL, b"\x82\xa4type\xa6Cancel\xa1x" + b"\x91" * 5000],
        )[number % 8]


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
    messages: Iterator[list[bytes]],
    endpoint: str,
    access: AccessFile | None = None,
    last_ms: int = ANSWER_MS,
) -> Iterator[None]:
    """Send messages over one connection, and read the answers.

    TCP drops what has not been sent yet when a connection is closed on which data has arrived that
    was not read, so that the last answers are waited for, `last_ms` milliseconds for the next one.
    """
    left = 0
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 2000)
        if access is not None:
            use_keys(peer, access)
        peer.connect(endpoint if access is None else access.endpoint)
        try:
            for frames in messages:
                peer.send_multipart(frames)
                left += 1
                while peer.poll(0):
                    peer.recv_multipart()
                    left -= 1
                yield
        finally:
            while left and peer.poll(last_ms):
                peer.recv_multipart()
                left -= 1


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
