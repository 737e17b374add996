"""Whether the decisions of a resizing policy can be recorded and printed.

A policy is foreign code, whose decisions and reasons may hold any objects; numbers of NumPy become
those of Python. What is certainly plain data is not encoded, which would take long at each resize
point.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from scheduler.model.orders import Reason
from scheduler.policies.containment import plain_value
from scheduler.policies.resizing.interface import Decision, Grow, Shrink, Stay

_DECISIONS: Final = (Grow, Shrink, Stay)
_json = msgspec.json.Encoder(enc_hook=plain_value)
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in _DECISIONS
}
#: Compiled code compares such integers fast.
_MOST_PLAIN: Final = 2**62 - 1
#: Texts of reasons that are kept as filled in; the policies of this package have fewer.
_MOST_TEXTS = 1000


def checked(answer: object, filled_in: dict[str, tuple[str, ...]] | None = None) -> Decision:
    """Return what a policy returned as it is recorded, if that can be recorded and printed.

    Parameters
    ----------
    filled_in : text of a reason -> names of the facts that have filled it in; such a text is not
        filled in again. None: fill in each, since a text of foreign code may depend on the values.

    Raises
    ------
    TypeError, ValueError : it is no decision; the decision or its reason cannot be recorded.
    """
    if not isinstance(answer, _DECISIONS):
        raise TypeError(f"it returned {answer!r}, which is neither Grow nor Shrink nor Stay")
    decision: Decision = answer
    try:
        if not is_plain(decision):
            decision = _DECODERS[type(decision)].decode(_json.encode(decision))
        text, facts = decision.reason.text, decision.reason.facts
        if filled_in is None:
            text.format(**facts)
        elif filled_in.get(text) != tuple(facts):
            text.format(**facts)
            if len(filled_in) >= _MOST_TEXTS:
                filled_in.clear()
            filled_in[text] = tuple(facts)
    except Exception as error:
        kind = type(error).__name__
        raise ValueError(f"{decision} cannot be recorded: {kind}: {error}") from error
    return decision


def is_plain(decision: Any) -> bool:
    """Whether a decision can certainly be recorded; encoding most of them would take long.

    Types are compared in variables: behind ``type(x) is int`` compiled code takes for granted that
    the parts of `x` have their declared types, and a policy is foreign code.
    """
    kind: object = type(decision)
    if kind is Grow:
        size = decision.to
    elif kind is Stay:
        if decision.lasting is not True and decision.lasting is not False:
            return False
        if decision.retry is not True and decision.retry is not False:
            return False
        size = 0 if decision.sweet_spot is None else decision.sweet_spot
    else:
        return False
    reason = decision.reason
    of_size: object = type(size)
    of_reason: object = type(reason)
    if of_size is not int or of_reason is not Reason or not isinstance(reason.facts, dict):
        return False
    for name, value in reason.facts.items():
        if not (_is_plain_text(name) and _is_plain_value(value)):
            return False
    return _is_plain_text(reason.rule) and _is_plain_text(reason.text) and _is_plain_value(size)


def _is_plain_text(text: Any) -> bool:
    return type(text) is str and text.isascii()


def _is_plain_value(value: Any) -> bool:
    """Whether JSON certainly holds a value: ASCII text, an integer of 62 bits, a finite number."""
    kind: object = type(value)
    if kind is int:
        whole: int = value
        return -_MOST_PLAIN <= whole <= _MOST_PLAIN
    if kind is float:
        number: float = value
        return number - number == 0.0
    return _is_plain_text(value)
