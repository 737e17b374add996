"""The peers that wait for jobs: no entry outlives its answer or its peer."""

from __future__ import annotations

import pytest

from reshape.errors import ReshapeError
from scheduler.service.later_answers import REPEATED_S, Waits


def test_an_answer_ends_the_entries_of_a_job() -> None:
    waits = Waits()
    waits.add(1, b"a", 10)
    waits.add(1, b"b", 20)
    waits.add(2, b"a", 11)
    assert waits.jobs_among({1, 3}) == {1}
    assert waits.pop(1) == [(b"a", 10), (b"b", 20)]
    assert waits.pop(1) == []
    assert len(waits) == 1


def test_a_repeated_question_replaces_the_earlier_one() -> None:
    waits = Waits()
    for request in range(50_000):
        waits.add(1, b"a", request)
    assert len(waits) == 1
    assert waits.pop(1) == [(b"a", 49_999)]


def test_a_peer_that_does_not_repeat_its_question_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits, now = Waits(limit=5), 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    for job in range(5):
        waits.add(job, b"gone", job)
    waits.add(0, b"here", 9)
    now += REPEATED_S
    waits.add(0, b"here", 10)
    assert len(waits) == 6
    now += 1.0
    waits.add(1, b"late", 1)
    assert len(waits) == 2
    assert (waits.pop(0), waits.pop(1)) == ([(b"here", 10)], [(b"late", 1)])
    waits.add(0, b"gone", 11)


def test_a_peer_may_wait_for_a_bounded_number_of_jobs() -> None:
    waits = Waits(limit=2)
    waits.add(1, b"a", 1)
    waits.add(2, b"a", 2)
    waits.add(2, b"a", 3)
    with pytest.raises(ReshapeError, match="waits for 2 jobs already"):
        waits.add(3, b"a", 4)
    waits.add(3, b"b", 1)
    waits.pop(1)
    waits.add(3, b"a", 5)
