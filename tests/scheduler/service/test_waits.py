"""The peers that wait for jobs: no entry outlives its answer or its peer."""

from __future__ import annotations

import pytest

from reshape.errors import ReshapeError
from scheduler.service.later_answers import Waits


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


def test_a_peer_that_is_gone_leaves_nothing() -> None:
    waits = Waits()
    for job in range(5):
        waits.add(job, b"a", job)
    waits.add(0, b"b", 9)
    waits.drop(b"a")
    waits.drop(b"a")
    assert len(waits) == 1
    assert waits.pop(0) == [(b"b", 9)]


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


def test_all_waiting_peers_are_probed_in_turn() -> None:
    waits = Waits()
    peers = [b"a", b"b", b"c"]
    for peer in peers:
        waits.add(1, peer, 0)
    found = [peer for _ in range(3) for peer in waits.next_to_probe(2)]
    assert sorted(found) == sorted(peers * 2)
    assert sorted(waits.next_to_probe(10)) == peers
