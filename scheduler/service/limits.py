"""Limits that keep a service alive: open files, memory of unfinished messages, and a full disk.

The service raises the number of files that it may have open, and keeps some of them spare.

ZeroMQ aborts the process if a local connection comes when no file is left. On TCP the gate limits
the connections. On the socket in the service directory, which only its owner reaches, the service
takes the name of the socket away while few files are left; then no new connection reaches ZeroMQ.

ZeroMQ keeps all frames of a message until the last one has come, and has no limit for their number.
On TCP the gate counts the bytes of each connection. On the local socket nothing stands between
ZeroMQ and its peers. ZeroMQ also keeps the answers that a peer does not read, of any size. So the
service watches its own memory. When that has grown much, the service closes all connections, with
which ZeroMQ gives up what it has kept of their messages. Their peers connect again and repeat what
was not answered, as after a restart of the service; so it does no harm if the memory has grown for
another reason.

With a full disk, the service decides nothing until its journal can be written again. Messages of
agents and applications are held and handled afterwards, so that no report is lost; jobs wait at
their next resize point. Questions are answered, and commands are refused with the reason. Each
message declares which of these it is (`reshape.wire.messages.Kind`).
"""

from __future__ import annotations

import logging
import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from reshape.errors import ReshapeError
from reshape.wire.codec import encode
from scheduler.protocol import messages as m
from scheduler.service.permissions import Sender

log = logging.getLogger(__name__)

#: Most files that the service allows itself and its children, if the system allows as many.
MOST_FILES = 16384
#: Growth of the resident memory after which all connections are closed, in bytes.
MOST_GROWTH_BYTES = 256 << 20
_PAGE_BYTES = resource.getpagesize()


def raise_limit() -> None:
    """Raise the number of files that this process may have open, as far as it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class SpareFiles:
    """Takes the names of sockets away while less than an eighth of all files is left.

    Parameters
    ----------
    sockets : paths of the sockets.
    """

    def __init__(self, sockets: Sequence[Path]) -> None:
        self._sockets = sockets
        self._null = os.open(os.devnull, os.O_RDONLY)
        self._withheld: list[Path] = []

    def keep(self) -> None:
        """Compare the number of files with the limit."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            lowest = os.dup(self._null)  # the kernel gives the lowest number that is free
        except OSError:
            lowest = limit
        else:
            os.close(lowest)
        is_short = limit != resource.RLIM_INFINITY and lowest >= limit - limit // 8
        if is_short and not self._withheld:
            log.error("%d files are open, of at most %d: new connections wait", lowest, limit)
            self._withheld = [path for path in self._sockets if path.exists()]
            for path in self._withheld:
                path.rename(_withheld_name(path))
        elif self._withheld and not is_short:
            log.warning("files are left again: new connections are accepted")
            self.restore()

    def close(self) -> None:
        """Give the sockets their names back for good."""
        self.restore()
        os.close(self._null)

    def restore(self) -> None:
        """Give the sockets their names back until the files are counted again."""
        for path in self._withheld:
            _withheld_name(path).rename(path)
        self._withheld = []


def _withheld_name(path: Path) -> Path:
    return path.with_name(path.name + ".withheld")


class MemoryGuard:
    """Compares the resident memory of this process with what it was."""

    def __init__(self) -> None:
        # It stays open, because the process may have no file left later.
        self._file = os.open("/proc/self/statm", os.O_RDONLY)
        self._least = self._resident()

    def growth(self) -> int:
        """Return by how many bytes the memory has grown, if that is too much; else 0.

        Growth is measured from the least memory since `accept`.
        """
        resident = self._resident()
        self._least = min(self._least, resident)
        growth = resident - self._least
        return growth if growth > MOST_GROWTH_BYTES else 0

    def accept(self) -> None:
        """Measure further growth from what the process has now."""
        self._least = self._resident()

    def close(self) -> None:
        """Close the file that it reads."""
        os.close(self._file)

    def _resident(self) -> int:
        pages = os.pread(self._file, 100, 0).split()[1]
        return int(pages) * _PAGE_BYTES


#: Seconds between two attempts to write the journal.
RETRY_S = 0.5
#: Bytes of the messages that are held; further ones are dropped, and their senders repeat them.
LIMIT_BYTES = 64 << 20
#: What a held message takes at least, with what is kept about it.
LEAST_BYTES = 1024

#: Peer, frames and sender of a message.
Received: TypeAlias = tuple[bytes, list[bytes], Sender]


class RoomForJournal:
    """Whether the journal can be written, and the messages that are held until it can.

    Attributes
    ----------
    reason : why the last attempt to write the journal failed; empty if it did not.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._retry_at = 0.0  # monotonic seconds
        # Held messages in the order of their last arrival, by peer and what a repetition has in
        # common; reports of agents are taken first.
        self._hellos: dict[tuple[bytes, bytes], Received] = {}
        self._held: dict[tuple[bytes, bytes], Received] = {}
        self._bytes = 0

    def note_failure(self, reason: str) -> None:
        """Note that the journal could not be written."""
        if not self.reason:
            log.error("%s; the service waits until there is room", reason)
        self.reason, self._retry_at = reason, time.monotonic() + RETRY_S

    def note_success(self) -> None:
        """Note that the journal was written."""
        if self.reason:
            log.warning("the journal can be written again: the service continues")
        self.reason = ""

    def retry_is_due(self) -> bool:
        """Whether it is time to try to write the journal again."""
        return time.monotonic() >= self._retry_at

    def hold(self, received: Received, message: m.Message) -> None:
        """Hold a message that is not a question.

        Raises
        ------
        ReshapeError : it is a command, which is refused.
        """
        peer, _, sender = received
        if message.kind != "report":
            raise ReshapeError(
                f"{self.reason}; the service waits until there is room: make room and try again"
            )
        is_hello = isinstance(message, m.AgentHello) and "agent" in sender.roles
        common = type(message).__name__.encode()
        if not message.supersedes:
            common = encode(msgspec.structs.replace(message, id=0))[1]
        held = self._hellos if is_hello else self._held
        before = held.pop((peer, common), None)
        more = _bytes(received) - (0 if before is None else _bytes(before))
        if self._bytes + more <= LIMIT_BYTES:
            held[peer, common] = received
            self._bytes += more
        elif before is not None:
            self._bytes -= _bytes(before)

    @property
    def holds(self) -> bool:
        """Whether messages are held."""
        return bool(self._hellos or self._held)

    def take(self) -> Received:
        """Return the first message that is held, and stop holding it. Precondition: `holds`."""
        held = self._hellos or self._held
        received = held.pop(next(iter(held)))
        self._bytes -= _bytes(received)
        return received


def _bytes(received: Received) -> int:
    """Memory that a held message takes, about: its frames, and what a repetition has in common."""
    return LEAST_BYTES + 2 * sum(map(len, received[1]))
