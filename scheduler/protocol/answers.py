"""Answers of the network, checked before they are used."""

from __future__ import annotations

from typing import TypeVar

from reshape.errors import ProtocolError
from reshape.wire.messages import MessageBase

A = TypeVar("A", bound=MessageBase)


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
