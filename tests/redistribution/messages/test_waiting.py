"""Backoff while waiting: a rank yields its core and then sleeps, unless MPI has work to do."""

import pytest

from redistribution.messages import waiting
from redistribution.messages.waiting import (
    LONGEST_SLEEP_S,
    SLEEP_AFTER_S,
    SLEEP_FRACTION,
    WORK_S,
    YIELD_AFTER_S,
    Backoff,
)


class Clock:
    """Time that only the test advances, and what pauses did."""

    def __init__(self):
        self.now = 0.0
        self.pauses = []

    def pause(self, backoff):
        """What ``backoff.pause()`` does: None, "yield" or the seconds that it sleeps."""
        self.pauses.clear()
        backoff.pause()
        return self.pauses[0] if self.pauses else None

    def test_taking(self, seconds):
        """A test of requests that takes this long and returns the requests."""

        def test(requests):
            self.now += seconds
            return requests

        return test


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(waiting.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(waiting.time, "sleep", lambda s: clock.pauses.append(s))
    monkeypatch.setattr(waiting.os, "sched_yield", lambda: clock.pauses.append("yield"))
    return clock


def test_pauses_depend_on_the_idle_time(clock):
    backoff = Backoff()
    assert clock.pause(backoff) is None
    clock.now += (YIELD_AFTER_S + SLEEP_AFTER_S) / 2
    assert clock.pause(backoff) == "yield"
    clock.now += SLEEP_AFTER_S
    assert clock.pause(backoff) == pytest.approx(SLEEP_FRACTION * clock.now)
    clock.now += 100 * LONGEST_SLEEP_S
    assert clock.pause(backoff) == LONGEST_SLEEP_S
    backoff.reset()
    assert clock.pause(backoff) is None


def test_a_long_test_of_requests_counts_as_work(clock):
    backoff = Backoff()
    for _ in range(300):
        assert backoff.test(clock.test_taking(1e-6), ["request"]) == ["request"]
    assert clock.pause(backoff) == pytest.approx(SLEEP_FRACTION * clock.now)
    # After a sleep the caches are cold: that a test takes longer does not mean work.
    backoff.test(clock.test_taking(WORK_S / 2), [])
    assert clock.pause(backoff) == pytest.approx(SLEEP_FRACTION * clock.now)
    backoff.test(clock.test_taking(2 * WORK_S), [])
    assert clock.pause(backoff) is None
