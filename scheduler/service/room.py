"""A full disk: the service decides nothing until its journal can be written again.

Messages of agents and applications are held and handled afterwards, so that no report is lost; jobs
wait at their next resize point. Questions, which change nothing, are answered. Other commands are
refused with the reason.
"""

from __future__ import annotations

import logging
import time
from typing import TypeAlias

from reshape.errors import ProtocolError
from scheduler.protocol import messages as m
from scheduler.protocol.messages import decode
from scheduler.service.permissions import Sender

log = logging.getLogger(__name__)

#: Seconds between two attempts to write the journal.
RETRY_S = 0.5
#: Messages that are held; further ones are dropped, and their senders repeat them.
LIMIT = 100_000

_HELD = (
    m.Hello
    | m.AtResizePoint
    | m.JoinPort
    | m.ResizeReport
    | m.Facts
    | m.GroupReady
    | m.AgentHello
    | m.RunStep
    | m.EndStep
    | m.ProgramFault
)

#: Messages that change nothing, so that their answers need not wait for the journal.
QUESTIONS = (
    m.ListJobs
    | m.ReadArray
    | m.CheckSubmission
    | m.Explain
    | m.Wait
    | m.WaitStep
    | m.ServerInfo
    | m.ListNodes
    | m.ListReservations
    | m.ListPools
    | m.RequestQuote
    | m.ForecastStarts
    | m.ForecastJob
)


#: Peer, frames and sender of a message.
_Received: TypeAlias = tuple[bytes, list[bytes], Sender]


class RoomForJournal:
    """Whether the journal can be written, and the messages that are held until it can."""

    def __init__(self) -> None:
        self._reason = ""
        self._retry_at = 0.0  # monotonic seconds
        self._held: list[_Received] = []
        self._hellos: dict[bytes, _Received] = {}  # the latest report of each agent

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
            return isinstance(decode(frames), QUESTIONS)
        except ProtocolError:
            return False

    def hold(self, peer: bytes, frames: list[bytes], sender: Sender) -> m.Message | None:
        """Hold a message, or return the refusal of a command."""
        try:
            message = decode(frames)
        except ProtocolError as error:
            return m.Failure(message=str(error))
        if isinstance(message, m.AgentHello) and "agent" in sender.roles:
            self._hellos[peer] = peer, frames, sender
        elif not isinstance(message, _HELD):
            text = f"{self._reason}; the service waits until there is room: make room and try again"
            return m.Failure(id=message.id, message=text)
        elif len(self._held) < LIMIT:
            self._held.append((peer, frames, sender))
        return None

    def held_messages(self) -> list[_Received]:
        """Return the messages that were held, and stop holding them."""
        held = [*self._hellos.values(), *self._held]
        self._hellos, self._held = {}, []
        return held
