"""The availability profile against a twin that counts second by second."""

from __future__ import annotations

from bisect import bisect_right
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.resources import Quantity
from scheduler.state.profile import Availability

HORIZON = 60
ends = st.lists(st.tuples(st.integers(-3, 20), st.integers(1, 4)), max_size=8)
requests = st.lists(
    st.tuples(st.integers(1, 12), st.integers(1, 9), st.integers(0, 12)), max_size=8
)


def free_at(profile: Availability, second: int) -> Quantity:
    return profile.frees[bisect_right(profile.times, second) - 1]


def slow_earliest(free: list[int], processors: int, duration: int, after: int) -> float:
    """First second from which enough is free in all seconds of the duration."""
    for start in range(after, HORIZON):
        if all(count >= processors for count in free[start : start + duration]):
            return start
    return inf


@given(st.integers(0, 5), ends, requests)
def test_equals_the_count_of_seconds(
    free: int, held: list[tuple[int, int]], wanted: list[tuple[int, int, int]]
) -> None:
    profile = Availability(0, free, sorted((float(t), i, p) for i, (t, p) in enumerate(held)))
    # Overdue processors are expected immediately after second 0, so the twin starts at second 1.
    slow = [free + sum(p for t, p in held if t <= second) for second in range(2 * HORIZON)]
    reserved = []
    for processors, duration, after in wanted:
        at = profile.earliest(processors, duration, after + 1)
        assert at == slow_earliest(slow, processors, duration, after + 1)
        if at < inf:
            profile.reserve(processors, at, duration)
            reserved.append((processors, at, duration))
            for second in range(int(at), int(at) + duration):
                slow[second] -= processors
        assert [free_at(profile, second) for second in range(1, HORIZON)] == slow[1:HORIZON]
    for processors, at, duration in reserved:
        profile.cancel(processors, at, duration)
    now = [free + sum(p for t, p in held if t <= second) for second in range(1, HORIZON)]
    assert [free_at(profile, second) for second in range(1, HORIZON)] == now


@given(st.integers(0, 5), ends, requests)
def test_lasting_tells_what_could_start_now(
    free: int, held: list[tuple[int, int]], wanted: list[tuple[int, int, int]]
) -> None:
    profile = Availability(
        1, free, sorted((float(max(2, t)), i, p) for i, (t, p) in enumerate(held))
    )
    for processors, duration, after in wanted:
        at = profile.earliest(processors, duration, after + 1)
        if at < inf:
            profile.reserve(processors, at, duration)
    lasting = profile.lasting()
    assert lasting == sorted(lasting)
    assert [s for _, s in lasting] == sorted((s for _, s in lasting), reverse=True)
    for processors in range(1, 13):
        for duration in range(1, 25):
            kept = any(processors <= most and duration <= s for most, s in lasting)
            assert kept == (profile.earliest(processors, duration, 1) == 1)


def slow_earlier(free: list[int], processors: int, duration: int, than: int) -> float:
    """First second before `than` from which enough is free until `than` or for the duration."""
    for start in range(1, than):
        if all(count >= processors for count in free[start : min(start + duration, than)]):
            return start
    return than


@given(st.integers(0, 5), ends, requests, st.lists(st.integers(1, 12), max_size=8))
def test_a_move_equals_a_cancellation_and_a_reservation(
    free: int, held: list[tuple[int, int]], wanted: list[tuple[int, int, int]], since: list[int]
) -> None:
    """`since` only saves the search of earlier times."""
    ends = sorted((float(max(2, t)), i, p) for i, (t, p) in enumerate(held))
    profile, twin = Availability(1, free, ends), Availability(1, free, ends)
    made = []
    for processors, duration, after in wanted:
        at = profile.earliest(processors, duration, after + 1)
        if at < inf:
            profile.reserve(processors, at, duration)
            twin.reserve(processors, at, duration)
            made.append((processors, duration, int(at)))
    for (processors, duration, at), known in zip(made, since, strict=False):
        seconds = [int(free_at(profile, second)) for second in range(1, HORIZON)]
        found = slow_earlier([0, *seconds], processors, duration, at)
        none_before = min(known, int(found))
        assert profile.earlier(processors, duration, at, none_before) == found
        assert profile.earlier(processors, duration, at) == found
        if found < at:
            most = profile.move(processors, duration, at, found)
            twin.cancel(processors, at, duration)
            twin.reserve(processors, found, duration)
            assert (profile.times, profile.frees) == (twin.times, twin.frees)
            now = [int(free_at(profile, second)) for second in range(1, HORIZON)]
            more = [b for a, b in zip(seconds, now, strict=True) if b > a]
            assert most == max(more, default=0)


def test_overdue_processors_are_expected_but_not_free() -> None:
    profile = Availability(10.0, 1, [(8.0, 1, 2), (10.0, 2, 1)])
    assert profile.earliest(1, 5, 10.0) == 10.0
    assert 10.0 < profile.earliest(4, 5, 10.0) < 10.0001
    assert profile.earliest(5, 5, 10.0) == inf


def test_reserving_too_much_fails() -> None:
    with pytest.raises(AssertionError, match="not free"):
        Availability(0, 2).reserve(3, 1, 1)
