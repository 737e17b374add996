"""A decision of a policy is carried out only if it can be recorded and printed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.model.orders import Reason
from scheduler.partition.resizing import _check, _is_plain
from scheduler.policies.api import Decision, Grow, Shrink, Stay

VALUES = st.one_of(
    st.text(max_size=5),
    st.integers(-(2**66), 2**66),
    st.floats(),
    st.booleans(),
    st.none(),
    st.binary(max_size=2),
)
TEXTS = st.one_of(st.text(max_size=5), st.text("{}ab", max_size=5), st.none(), st.just("\ud800"))
FACTS = st.one_of(st.dictionaries(TEXTS, VALUES, max_size=3), st.none(), st.just({1: 2}))
REASONS = st.one_of(st.builds(Reason, TEXTS, TEXTS, FACTS), st.none())
DECISIONS = st.one_of(
    st.builds(Grow, VALUES, REASONS),
    st.builds(Stay, REASONS, VALUES),
    st.builds(Shrink, VALUES, REASONS),
)


@given(DECISIONS)
@example(Grow(4, Reason("rule", "{a}", {"a": 2**63 - 1})))
@example(Stay(Reason("rule", "{a}", {"a": -(2**63)})))
def test_a_plain_decision_is_read_back_equal(decision: Decision) -> None:
    if _is_plain(decision):
        assert msgspec.json.decode(msgspec.json.encode(decision), type=type(decision)) == decision


@pytest.mark.parametrize(
    "decision",
    [Grow(6, Reason("rule", "to {to}", {"to": 6, "s": 0.5, "why": "a"})), Stay(Reason("rule"), 4)],
)
def test_most_decisions_are_plain(decision: Decision) -> None:
    assert _is_plain(decision)
    _check(decision)


@pytest.mark.parametrize(
    ("decision", "kind"),
    [
        (Grow(6, Reason("rule", "{missing}")), "KeyError"),
        (Grow("6", Reason("rule")), "ValidationError"),
        (Stay(Reason("rule"), True), "ValidationError"),
        (Stay(Reason("rule", "", {"a": float("nan")})), "ValidationError"),
        (Stay(Reason("rule", "", {"a": [1]})), "ValidationError"),
        (Stay(Reason("\ud800")), "UnicodeEncodeError"),
        (Stay(None), "ValidationError"),
    ],
)
def test_a_decision_that_cannot_be_recorded_is_an_error(decision: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=f"cannot be recorded: {kind}"):
        _check(decision)
