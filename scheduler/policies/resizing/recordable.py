"""Whether the decisions of a resizing policy can be recorded and printed.

A policy is foreign code, whose decisions and reasons may hold any objects; numbers of NumPy become
those of Python.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from scheduler.policies.containment import plain_value
from scheduler.policies.resizing.interface import Decision, Grow, Shrink, Stay

_DECISIONS: Final = (Grow, Shrink, Stay)
_json = msgspec.json.Encoder(enc_hook=plain_value)
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in _DECISIONS
}


def checked(answer: object) -> Decision:
    """Return what a policy returned as it is recorded, if that can be recorded and printed.

    Raises
    ------
    TypeError, ValueError : it is no decision; the decision or its reason cannot be recorded.
    """
    if not isinstance(answer, _DECISIONS):
        raise TypeError(f"it returned {answer!r}, which is neither Grow nor Shrink nor Stay")
    try:
        decision: Decision = _DECODERS[type(answer)].decode(_json.encode(answer))
        decision.reason.text.format(**decision.reason.facts)
    except Exception as error:
        kind = type(error).__name__
        raise ValueError(f"{answer} cannot be recorded: {kind}: {error}") from error
    return decision


def finite(decision: Decision) -> Decision:
    """Return a decision of a policy of this package, which can be recorded if its facts are finite.

    Such a policy is asked at each resize point of a simulation, where `checked` would take long.

    Raises
    ------
    ValueError : a number is infinite, or is none; JSON cannot hold it.
    """
    for name, value in decision.reason.facts.items():
        if type(value) is float:
            number: float = value
            if number - number != 0.0:
                raise ValueError(f"{decision} cannot be recorded: {name} is {number}")
    return decision
