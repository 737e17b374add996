"""Backoff while waiting: a rank yields its core and then sleeps, unless MPI has work to do."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from redistribution.messages import waiting
from redistribution.messages.waiting import (
    AWAKE_S,
    LONGEST_SLEEP_S,
    SLEEP_AFTER_S,
    YIELD_AFTER_S,
    Backoff,
    crowding,
    wait_idle,
)
from reshape.mpi import clean_environment, mpiexec_path


class Clock:
    """Time that only the test advances, and what pauses did."""

    def __init__(self):
        self.now = 0.0
        self.pauses = []

    def pause(self, backoff):
        """What ``backoff.pause()`` does: None, "yield" or "sleep"."""
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
    monkeypatch.setattr(waiting.time, "sleep", lambda _: clock.pauses.append("sleep"))
    monkeypatch.setattr(waiting.os, "sched_yield", lambda: clock.pauses.append("yield"))
    return clock


@pytest.mark.parametrize(
    ("ranks", "cores", "expected"),
    [("32", 2, 14.0), ("6", 2, 1.0), ("7", 2, 1.5), ("2", 4, 1.0), ("", 2, 1.0), ("9", 1, 7.0)],
)
def test_ranks_that_crowd_a_core_are_counted_from_the_third(monkeypatch, ranks, cores, expected):
    monkeypatch.setenv("MPI_LOCALNRANKS", ranks)
    monkeypatch.setattr(waiting, "cpus", lambda: cores)
    assert crowding() == expected


@pytest.mark.parametrize("bound", ["", "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); "])
def test_the_cpus_of_all_ranks_are_counted_even_if_each_is_bound_to_one(bound):
    """A job that may use a part of the host is crowded by that part, not by the host."""
    program = (
        f"import os; {bound}from redistribution.messages.waiting import cpus;"
        " os.write(1, b'%d\\n' % cpus())"  # a line at once, beside that of the other rank
    )
    for allowed in (os.sched_getaffinity(0), {min(os.sched_getaffinity(0))}):
        ended = subprocess.run(
            [str(mpiexec_path()), "-n", "2", sys.executable, "-c", program],
            env=clean_environment(os.environ),
            preexec_fn=lambda allowed=allowed: os.sched_setaffinity(0, allowed),
            capture_output=True,
            text=True,
            check=True,
        )
        assert ended.stdout.split() == 2 * [str(len(allowed))]


def test_pauses_depend_on_the_idle_time(clock):
    backoff = Backoff()
    assert clock.pause(backoff) is None
    clock.now += (YIELD_AFTER_S + SLEEP_AFTER_S) / 2
    assert clock.pause(backoff) == "yield"
    clock.now += SLEEP_AFTER_S
    assert clock.pause(backoff) == "sleep"
    # After a sleep the rank stays awake for a while.
    assert clock.pause(backoff) == "yield"
    clock.now += 2 * AWAKE_S
    assert clock.pause(backoff) == "sleep"
    backoff.reset()
    assert clock.pause(backoff) is None


def test_a_long_test_of_requests_counts_as_work(clock):
    backoff = Backoff()
    for _ in range(300):
        assert backoff.test(clock.test_taking(1e-6), ["request"]) == ["request"]
    assert clock.pause(backoff) == "sleep"
    backoff.test(clock.test_taking(1e-5), [])
    assert clock.pause(backoff) is None


def test_a_rank_that_waits_for_a_small_message_sleeps_longer_and_longer(clock, monkeypatch):
    slept = []
    monkeypatch.setattr(waiting.time, "sleep", slept.append)

    def test_all(requests):
        clock.now += 1e-5 + sum(slept[-1:])
        return clock.now > 0.05

    monkeypatch.setattr(waiting.MPI, "Request", SimpleNamespace(Testall=test_all))
    wait_idle(["request"])
    assert "yield" in clock.pauses
    assert slept == sorted(slept)
    assert (slept[0] < 2e-5 * 2, slept[-1]) == (True, LONGEST_SLEEP_S)
    assert len(slept) < 200
