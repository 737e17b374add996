"""The connection of a command or an agent to the service, and its answers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from reshape.errors import ProtocolError
from reshape.wire.access import AccessFile
from reshape.wire.codec import MAX_ANSWER_BYTES
from reshape.wire.connection import Connection, located
from reshape.wire.messages import MessageBase
from scheduler.protocol.messages import Message, decode

A = TypeVar("A", bound=MessageBase)

#: Requests that `ServiceConnection.request_all` sends ahead of their answers.
AHEAD = 64


class ServiceConnection(Connection[Message]):
    """A connection to the service that receives all messages; see `Connection`."""

    def __init__(
        self, endpoint: str, access: AccessFile | None = None, max_bytes: int = MAX_ANSWER_BYTES
    ) -> None:
        super().__init__(endpoint, access, decode, max_bytes)

    def request_all(self, messages: Iterable[Message], timeout: float) -> Iterator[Message]:
        """Send messages, and yield their answers in the same order; a refusal is a `Failure`.

        Some messages are sent ahead of the answers, so that the service handles them together.

        Parameters
        ----------
        timeout : seconds for each answer.

        Raises
        ------
        ServiceUnavailable : no answer in time. At most `AHEAD` messages were sent that have none.
        ProtocolError : the service speaks another version.
        """
        numbers: deque[int] = deque()
        answers: dict[int, Message] = {}
        for message in messages:
            numbers.append(self.send(message, timeout))
            if len(numbers) == AHEAD:
                yield self._answer_to(numbers.popleft(), answers, timeout)
        while numbers:
            yield self._answer_to(numbers.popleft(), answers, timeout)

    def _answer_to(self, number: int, answers: dict[int, Message], timeout: float) -> Message:
        """Wait for the answer to a request, and keep those to other requests in `answers`."""
        until = time.monotonic() + timeout
        while number not in answers:
            answer = self.receive(until - time.monotonic())
            if answer is None:
                raise self.unavailable(timeout)
            answers[answer.id] = answer
        return answers.pop(number)


def connect(service: str | Path, max_bytes: int = MAX_ANSWER_BYTES) -> ServiceConnection:
    """Connect to the service that a directory or an access file names.

    Parameters
    ----------
    max_bytes : size of the largest answer to accept.

    Raises
    ------
    ServiceUnavailable : no service runs in the directory.
    ReshapeError : the file in the directory, or the access file, cannot be used.
    """
    return ServiceConnection(*located(service), max_bytes)


def expect(kind: type[A], answer: MessageBase | None) -> A:
    """Return an answer that has to be of a type.

    Raises
    ------
    ProtocolError : it is of another type, or there is none.
    """
    if isinstance(answer, kind):
        return answer
    got = "no answer" if answer is None else f"the answer {type(answer).__name__}"
    raise ProtocolError(
        f"the service sends {got} where {kind.__name__} is expected: use the same release on both"
        " sides"
    )
