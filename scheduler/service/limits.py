"""Limits that keep a service alive: files, memory of unfinished messages, a full disk, long turns.

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

A policy of a user that does not return keeps the loop of the service from going on, and nothing in
Python can end it. A thread watches the loop, and the log names the policy.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import msgspec

from reshape.errors import ReshapeError
from reshape.wire.codec import encode
from scheduler.model.events import Event, JobEvent
from scheduler.policies.containment import running_policy
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

    @property
    def withholds(self) -> bool:
        """Whether the names are taken away."""
        return bool(self._withheld)

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
            with suppress(FileNotFoundError):  # another program has removed it
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


#: Seconds after which a turn of the loop is long.
LONG_TURN_S = 10.0
#: Events of a decision that the log names, at most.
MOST_EVENTS = 5


class LoopWatch:
    """Watches the thread that makes it, from another one, and logs what it does in a long turn.

    It logs again whenever the turn has taken twice as long.

    Parameters
    ----------
    patience_s : seconds after which a turn is long.

    Attributes
    ----------
    busy_since : when the present turn began, monotonic seconds; None: the loop waits for messages.
    deciding : returns the events on which the core decides now.
    """

    def __init__(self, patience_s: float = LONG_TURN_S) -> None:
        self.busy_since: float | None = None
        self.deciding: Callable[[], Sequence[Event]] = tuple
        self._patience_s, self._watched = patience_s, threading.get_ident()
        self._turn: float | None = None
        self._due_s = patience_s
        self._is_over = threading.Event()
        # A daemon: the service may end with an error.
        threading.Thread(target=self._run, name="loop-watch", daemon=True).start()

    def close(self) -> None:
        """Let the thread end."""
        self._is_over.set()

    def _run(self) -> None:
        while not self._is_over.wait(self._patience_s / 10):
            self.look()

    def look(self) -> None:
        """Log what the watched thread does if its turn is long."""
        since = self.busy_since
        if since != self._turn:
            self._turn, self._due_s = since, self._patience_s
        if since is not None and (took_s := time.monotonic() - since) > self._due_s:
            self._due_s = 2 * took_s
            self._log(took_s)

    def _log(self, took_s: float) -> None:
        policy = running_policy(sys._current_frames().get(self._watched))
        events = self.deciding()
        on = f" on {', '.join(map(_short, events[:MOST_EVENTS]))}" if events else ""
        if not policy:
            log.warning("the service has read no message for %.1f s; it is busy%s", took_s, on)
            return
        log.error(
            "%s has not returned for %.1f s%s: the service does nothing else; if it never returns,"
            " kill -9 %d ends the service, and its jobs continue",
            *(policy, took_s, on, os.getpid()),
        )


def _short(event: Event) -> str:
    job = f" job={event.job}" if isinstance(event, JobEvent) else ""
    return type(event).__name__ + job
