"""The connection of a command or an agent to the service, and its answers."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from reshape.errors import ProtocolError
from reshape.wire.access import AccessFile
from reshape.wire.codec import MAX_ANSWER_BYTES
from reshape.wire.connection import Connection, located
from reshape.wire.messages import MessageBase
from scheduler.protocol.messages import Message, decode

A = TypeVar("A", bound=MessageBase)


class ServiceConnection(Connection[Message]):
    """A connection to the service that receives all messages; see `Connection`."""

    def __init__(self, endpoint: str, access: AccessFile | None = None) -> None:
        super().__init__(endpoint, access, decode, MAX_ANSWER_BYTES)


def connect(service: str | Path) -> ServiceConnection:
    """Connect to the service that a directory or an access file names.

    Raises
    ------
    ServiceUnavailable : no service runs in the directory.
    ReshapeError : the file in the directory, or the access file, cannot be used.
    """
    return ServiceConnection(*located(service))


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
