"""Counts as text."""

from __future__ import annotations

import pytest

from scheduler.text.formats import counted, format_moment, listed


def test_one_is_singular_and_digits_are_grouped() -> None:
    texts = [counted(number, "job") for number in (0, 1, 2, 1000, 1234567)]
    assert texts == ["0 jobs", "1 job", "2 jobs", "1 000 jobs", "1 234 567 jobs"]
    assert [counted(1, "process"), counted(2, "process")] == ["1 process", "2 processes"]


def test_numbers_are_listed_with_their_noun() -> None:
    assert [listed("job", [3]), listed("job", [3, 5])] == ["job 3", "jobs 3, 5"]


@pytest.mark.parametrize("at", [-1e300, 1e18, 253402400000.0])
def test_a_moment_beyond_the_calendar_is_a_number_of_seconds(at: float) -> None:
    assert format_moment(at) == f"{at:g} s after 1970"
