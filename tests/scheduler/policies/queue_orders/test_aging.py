"""Priorities of PRIO 3.1: their values, the ranges of the weights, and no starvation."""

from __future__ import annotations

from itertools import pairwise
from math import inf, isfinite, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.core import Core
from scheduler.model.events import JobSpec, JobSubmitted
from scheduler.model.job import Job
from scheduler.model.machine import Machine
from scheduler.policies.queue_orders.aging import Aging
from scheduler.policies.scenario import Scenario
from scheduler.state.view import running_priority


def job(
    processors: int = 4, walltime_s: float = 100.0, priority: float = 0.0, at: float = 0.0
) -> Job:
    return Job(1, JobSpec(processors, walltime_s, priority=priority), at)


def started(walltime_s: float, at: float, priority: float = 0.0) -> Job:
    running = job(walltime_s=walltime_s, priority=priority)
    running.started_at = at
    return running


def test_the_aging_priority_is_the_papers_sum() -> None:
    aging = Aging(qfactor_weight=7, wait_weight=3, nodes_weight=0.5, qfactor_limit_s=1)
    waited = job(processors=8, walltime_s=200, priority=11, at=100)
    # Qw (1 + wait / max(limit, walltime)) + Tw minutes + Nw processors + user
    assert aging.priority(waited, 220) == pytest.approx(7 * (1 + 120 / 200) + 3 * 2 + 0.5 * 8 + 11)
    limited = Aging(qfactor_weight=7, wait_weight=0, qfactor_limit_s=400)
    assert limited.priority(waited, 220) == pytest.approx(7 * (1 + 120 / 400) + 11)


def test_the_priority_of_short_jobs_grows_fastest() -> None:
    aging, short, long = Aging(), job(walltime_s=60), job(walltime_s=6000)
    assert aging.priority(short, 0) == aging.priority(long, 0)
    assert aging.priority(short, 60) == 10 * 2 + 1
    assert aging.priority(long, 60) == pytest.approx(10 * 1.01 + 1)


def test_the_running_priority_is_the_elapsed_share_of_the_walltime() -> None:
    assert running_priority(started(200, at=50), 50) == 0
    assert running_priority(started(200, at=50), 100) == 25
    assert running_priority(started(200, at=50, priority=1000), 100) == 1025
    assert running_priority(started(200, at=50), 900) == 100, "a walltime that has passed"
    assert running_priority(started(inf, at=50, priority=3), 900) == 3, "a walltime without end"


def test_an_infinite_walltime_has_a_qfactor_of_one() -> None:
    assert Aging(wait_weight=0).priority(job(walltime_s=inf), 1e6) == 10


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"qfactor_weight": -1}, "qfactor_weight must be >= 0, or jobs that wait long would fall"),
        ({"wait_weight": -0.5}, "wait_weight must be >= 0, or jobs that wait long"),
        ({"nodes_weight": nan}, "nodes_weight must be finite, got nan"),
        ({"qfactor_weight": inf}, "qfactor_weight must be finite, got inf"),
        ({"qfactor_limit_s": 0}, "qfactor_limit_s must be > 0, got 0"),
        ({"refresh_s": -1}, "refresh_s must be >= 0, got -1"),
    ],
)
def test_weights_out_of_range_are_refused(fields: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Aging(**fields)


waits, nodes = st.sampled_from([0.0, 1.0, 60.0]), st.sampled_from([-2.0, 0.0, 1.0])
weights = st.builds(Aging, st.just(0.0), waits, nodes) | st.builds(
    Aging,
    st.sampled_from([0.1, 1.0, 50.0]),
    waits,
    nodes,
    st.sampled_from([1.0, 100.0]),
    st.just(0.0),
)
specs = st.builds(
    JobSpec,
    st.integers(2, 9),
    st.sampled_from([1.0, 30.0, 500.0, inf]),
    priority=st.sampled_from([0.0, 100.0, 1000.0]),
)


@given(weights, st.lists(st.tuples(st.integers(0, 50), specs), max_size=12), st.integers(0, 500))
def test_the_queue_is_sorted_by_priority(
    aging: Aging, submissions: list[tuple[int, JobSpec]], later: int
) -> None:
    """Whether the order is sorted again or kept, it is that of the priorities of the moment."""
    core = Core(Scenario("test", order=aging), Machine([("n", 1)]))
    for number, (at, spec) in enumerate(sorted(submissions, key=lambda entry: entry[0])):
        core.handle([JobSubmitted(at, number, spec)])
    now = 50 + later
    core.partitions[0].queue.sort(now)
    queued = list(core.partitions[0].queue)
    assert len(queued) == len(submissions)
    numbers = [aging.priority(job, now) for job in queued]
    for before, after in pairwise(numbers):
        assert before >= after or before == pytest.approx(after)


@given(weights, specs, st.floats(0, 1e6), st.floats(0, 1e6))
def test_priorities_are_finite_and_never_decrease_with_the_wait(
    aging: Aging, spec: JobSpec, wait: float, more: float
) -> None:
    waiting = Job(1, spec, 0.0)
    now, then = aging.priority(waiting, wait), aging.priority(waiting, wait + more)
    assert isfinite(now)
    assert then >= now
    waiting.started_at = wait
    assert 0 <= running_priority(waiting, wait + more) - spec.priority <= 100
