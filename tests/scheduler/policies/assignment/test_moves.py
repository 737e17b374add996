"""Rules for moving waiting jobs: margins, and that no job moves back and forth."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler.policies.assignment.moves import MoveRules

RULES = MoveRules(gain=0.5, least_s=60.0)
WAITS = st.floats(0, 1e6)


@pytest.mark.parametrize(
    ("present_s", "others_s", "expected"),
    [
        (1000.0, [500.0], 0),  # exactly half
        (1000.0, [501.0], None),
        (119.0, [59.5], None),  # half, but not a minute
        (120.0, [60.0], 0),
        (1000.0, [400.0, 300.0, 300.0], 1),  # the shortest wait, the first of equal ones
        (inf, [5000.0], 0),  # it would never start where it is
        (inf, [inf], None),
        (1000.0, [], None),
    ],
)
def test_both_margins_decide(present_s: float, others_s: list[float], expected: int | None) -> None:
    assert RULES.choice(present_s, others_s) == expected


@given(here=WAITS, share=st.floats(0, 1), gain=st.floats(0.5, 1), least_s=st.floats(0.001, 1.0))
def test_a_job_that_moved_does_not_move_back_by_the_same_waits(
    here: float, share: float, gain: float, least_s: float
) -> None:
    there = here * share if here < inf else 1e6 * share
    rules = MoveRules(gain=gain, least_s=least_s)
    assume(rules.choice(here, [there]) is not None)
    assert rules.choice(there, [here]) is None


@pytest.mark.parametrize("wrong", [{"gain": 1.1}, {"least_s": -1.0}, {"depth": 0}])
def test_numbers_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        MoveRules(**wrong)  # type: ignore[arg-type]
