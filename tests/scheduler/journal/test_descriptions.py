"""Accounts of jobs: processor-seconds from what they held and the sizes on which they computed."""

from __future__ import annotations

import pytest

from scheduler.journal.descriptions import processor_seconds


def test_a_job_of_one_size() -> None:
    assert processor_seconds([(10.0, "0-3"), (25.0, "")], [(10.0, 4)], 25.0) == {4: 60.0}


def test_processors_of_a_group_that_starts_count_for_the_present_size() -> None:
    held = [(0.0, "0-1"), (10.0, "0-3"), (30.0, "0-1"), (40.0, "")]
    sizes = [(0.0, 2), (15.0, 4), (28.0, 2)]
    found = processor_seconds(held, sizes, 40.0)
    assert found == {2: pytest.approx(20 + 20 + 8 + 20), 4: pytest.approx(52)}


def test_a_running_job_is_counted_until_now_and_a_redirected_one_not_in_the_queue() -> None:
    assert processor_seconds([(0.0, "0")], [(0.0, 1)], 7.0) == {1: 7.0}
    held = [(0.0, "0-1"), (5.0, ""), (9.0, "4-5")]
    assert processor_seconds(held, [(0.0, 2), (5.0, 0), (9.0, 2)], 10.0) == {2: 12.0}
    assert processor_seconds([], [], 10.0) == {}
