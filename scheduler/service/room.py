"""A full disk: the service decides nothing until its journal can be written again.

Messages of agents and applications are held and handled afterwards, so that no report is lost; jobs
wait at their next resize point. Questions are answered, and commands are refused with the reason.
Each message declares which of these it is (`reshape.wire.messages.Kind`).
"""

from __future__ import annotations

import logging
import time
from typing import TypeAlias

import msgspec

from reshape.errors import ProtocolError
from reshape.wire.codec import encode
from scheduler.protocol import messages as m
from scheduler.protocol.messages import decode
from scheduler.service.permissions import Sender

log = logging.getLogger(__name__)

#: Seconds between two attempts to write the journal.
RETRY_S = 0.5
#: Bytes of the messages that are held; further ones are dropped, and their senders repeat them.
LIMIT_BYTES = 64 << 20
#: What a held message takes at least, with what is kept about it.
LEAST_BYTES = 1024

#: Peer, frames and sender of a message.
Received: TypeAlias = tuple[bytes, list[bytes], Sender]


class RoomForJournal:
    """Whether the journal can be written, and the messages that are held until it can."""

    def __init__(self) -> None:
        self._reason = ""
        self._retry_at = 0.0  # monotonic seconds
        # Held messages in the order of their last arrival, by peer and what a repetition has in
        # common; reports of agents are taken first.
        self._hellos: dict[tuple[bytes, bytes], Received] = {}
        self._held: dict[tuple[bytes, bytes], Received] = {}
        self._bytes = 0

    @property
    def is_missing(self) -> bool:
        """Whether the last attempt to write the journal failed."""
        return bool(self._reason)

    @property
    def reason(self) -> str:
        """Why the last attempt to write the journal failed; empty if it did not."""
        return self._reason

    def note_failure(self, reason: str) -> None:
        """Note that the journal could not be written."""
        if not self._reason:
            log.error("%s; the service waits until there is room", reason)
        self._reason, self._retry_at = reason, time.monotonic() + RETRY_S

    def note_success(self) -> None:
        """Note that the journal was written."""
        if self._reason:
            log.warning("the journal can be written again: the service continues")
        self._reason = ""

    def retry_is_due(self) -> bool:
        """Whether it is time to try to write the journal again."""
        return time.monotonic() >= self._retry_at

    def is_question(self, frames: list[bytes]) -> bool:
        """Whether a message changes nothing, so that it can be answered meanwhile."""
        try:
            return decode(frames).kind == "question"
        except ProtocolError:
            return False

    def hold(self, peer: bytes, frames: list[bytes], sender: Sender) -> m.Message | None:
        """Hold a message, or return the refusal of a command."""
        try:
            message = decode(frames)
        except ProtocolError as error:
            return m.Failure(message=str(error))
        if message.kind != "report":
            text = f"{self._reason}; the service waits until there is room: make room and try again"
            return m.Failure(id=message.id, message=text)
        is_hello = isinstance(message, m.AgentHello) and "agent" in sender.roles
        common = type(message).__name__.encode()
        if not message.supersedes:
            common = encode(msgspec.structs.replace(message, id=0))[1]
        held, received = self._hellos if is_hello else self._held, (peer, frames, sender)
        before = held.pop((peer, common), None)
        more = _bytes(received) - (0 if before is None else _bytes(before))
        if self._bytes + more <= LIMIT_BYTES:
            held[peer, common] = received
            self._bytes += more
        elif before is not None:
            self._bytes -= _bytes(before)
        return None

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
