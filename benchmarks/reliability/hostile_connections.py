"""Connections that attack a service: silent ones, slow ones, and floods of handshakes.

Each comes from several processes and from several addresses of the loopback interface, and is
bounded in number and time. `benchmarks/reliability/hostile.py` runs them.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

from reshape.wire.access import read_access
from scheduler.protocol import messages as m
from scheduler.protocol.client import ServiceConnection

#: Processes that make connections at the same time, and addresses of each.
PROCESSES, ADDRESSES = 4, 8
#: Bytes of greeting and HELLO, with which a client begins.
HELLO_BYTES = 266
#: Connections of a flood that one process leaves open.
OPEN_HANDSHAKES = 100
#: Seconds in which the opening of a TCP connection is recorded.
RECORDED_S = 0.3


def silent(port: int, part: int, most: int) -> Iterator[None]:
    """Connections that send nothing; at most `most` of them are open."""
    held: deque[socket.socket] = deque()
    with ExitStack() as stack:
        stack.callback(lambda: [peer.close() for peer in held])
        for number in count():
            held.append(_connection(port, part, number))
            if len(held) > most:
                held.popleft().close()
            yield


def slow(port: int, part: int, most: int, opening: bytes) -> Iterator[None]:
    """Connections that send a valid opening byte by byte; at most `most` of them are open."""
    held: deque[tuple[socket.socket, Iterator[int]]] = deque()
    with ExitStack() as stack:
        stack.callback(lambda: [peer.close() for peer, _ in held])
        for number in count():
            held.append((_connection(port, part, number), iter(opening)))
            if len(held) > most:
                held.popleft()[0].close()
            for _ in range(min(5, len(held))):
                peer, rest = held[0]
                held.rotate(-1)
                with suppress(OSError, StopIteration):  # the service may have closed it
                    peer.send(bytes([next(rest)]))
            yield


def handshakes(port: int, part: int, opening: bytes) -> Iterator[None]:
    """Connections that send the opening of another connection and leave the rest to the service."""
    held: deque[socket.socket] = deque()
    with ExitStack() as stack:
        stack.callback(lambda: [peer.close() for peer in held])
        for number in count():
            peer = _connection(port, part, number)
            with suppress(OSError):
                peer.send(opening[:HELLO_BYTES])
            held.append(peer)
            if len(held) > OPEN_HANDSHAKES:
                held.popleft().close()
            yield


def _connection(port: int, part: int, number: int) -> socket.socket:
    """Connect from one of the addresses of a process."""
    peer = socket.socket()
    with suppress(OSError):  # the queue of the port is full
        peer.settimeout(1.0)
        peer.bind((f"127.0.{1 + part}.{1 + number % ADDRESSES}", 0))
        peer.connect(("127.0.0.1", port))
        peer.setblocking(False)
    return peer


def record(port: int, user: Path) -> list[bytes]:
    """Record what the client of a valid connection sends, in the pieces in which it sends it."""
    access, parts = read_access(user), list[bytes]()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        with ServiceConnection(endpoint, access) as client:
            ours, _ = listener.accept()
            theirs = socket.create_connection(("127.0.0.1", port))
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
