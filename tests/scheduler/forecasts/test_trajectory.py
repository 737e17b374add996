"""Answers from a known trajectory equal those from forecasts that begin with the present state."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.core import Core
from scheduler.forecasts.forecast import STATES, Trajectory, forecast, last_job_changes_nothing
from scheduler.forecasts.quotes import Outlook, quote
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.events import JobSpec, JobSubmitted
from scheduler.model.job import PENDING
from scheduler.model.machine import Machine
from scheduler.policies.scenarios import scenario

PROCESSORS = 16
SCENARIOS = {
    "fcfs": {"backfill.reservations": 0},
    "easy": {},
    "contiguous": {"selection": "contiguous"},
    "contiguous fcfs": {"selection": "contiguous", "backfill.reservations": 0},
}
requests = st.tuples(st.integers(1, PROCESSORS), st.integers(1, 40))


def state_of(jobs: list[tuple[int, int]], changes: dict[str, object], last: int) -> RecordedState:
    """State after jobs were submitted at 0, 1, 2 s and so on; they run until `last` s."""
    site = Core(scenario("easy", changes), Machine([("n", PROCESSORS)]))
    for number, (size, walltime) in enumerate(jobs, 1):
        site.handle([JobSubmitted(float(number - 1), number, JobSpec(size, float(walltime)))])
    return replace(RecordedState.of_core(site), now=float(max(last, len(jobs))))


@pytest.mark.parametrize("name", SCENARIOS)
@examples(150)
@given(
    jobs=st.lists(requests, min_size=1, max_size=40),
    asked=st.lists(requests, min_size=1, max_size=5),
    last=st.integers(0, 60),
    later_s=st.sampled_from((0.0, 0.5, 3.0)),
    horizon_s=st.sampled_from((20.0, inf)),
)
def test_a_quote_on_a_trajectory_equals_the_one_without(
    name: str,
    jobs: list[tuple[int, int]],
    asked: list[tuple[int, int]],
    last: int,
    later_s: float,
    horizon_s: float,
) -> None:
    state = state_of(jobs, SCENARIOS[name], last)
    assert last_job_changes_nothing(state)
    trajectory = Trajectory(state)
    later = replace(state, now=state.now + later_s)
    if not trajectory.holds_at(later.now):
        return
    outlook = Outlook(horizon_s)
    for processors, walltime in asked:
        spec = JobSpec(processors, float(walltime))
        found = quote(later, spec, outlook, trajectory=trajectory)
        assert found == quote(later, spec, outlook)
    fresh = forecast(later)
    for job in state.jobs:
        if job.state is PENDING:
            assert trajectory.forecast.of(job.id) == fresh.of(job.id)


def test_a_forecast_begins_shortly_before_the_start_of_its_job() -> None:
    state = state_of([(PROCESSORS, 10)] * 32, {}, 0)
    trajectory = Trajectory(state)
    for walltime in (1.0, 100.0):
        before = trajectory.state_before_start(JobSpec(1, walltime), inf)
        assert before is not None
        assert before.now == 332.0  # the last of the jobs starts
    early = trajectory.state_before_start(JobSpec(1, 1.0), 200.0)
    assert early is not None
    assert 200.0 - 320 / STATES <= early.now <= 200.0
    assert trajectory.state_before_start(JobSpec(1, 1.0, max_processors=2), inf) is None


def test_a_trajectory_holds_until_a_job_is_expected_to_end() -> None:
    trajectory = Trajectory(state_of([(PROCESSORS, 10), (1, 5)], {}, 0))
    assert [trajectory.holds_at(now) for now in (1.0, 2.0, 9.5, 10.0, 11.0)] == [
        False, True, True, False, False,
    ]  # fmt: skip
    overdue = Trajectory(state_of([(PROCESSORS, 10), (1, 5)], {}, 20))
    assert [overdue.holds_at(now) for now in (20.0, 20.5)] == [True, False]


@pytest.mark.parametrize(
    "changes",
    [
        {"order": "sjf"},
        {"backfill_order": "sjf"},
        {"estimates": "tsafrir"},
        {"backfill.reservations": None},
        {"backfill.reservations": 2},
        {"backfill.max_jobs": 5},
        {"backfill.moments": "contacts"},
        {"backfill.kill_at_reservation": True},
        {"redirection.theta": 1},
    ],
)
def test_scenarios_in_which_a_waiting_job_may_have_an_effect(changes: dict[str, object]) -> None:
    assert not last_job_changes_nothing(state_of([(1, 1)], changes, 0))


def test_resizable_jobs_may_have_an_effect() -> None:
    site = Core(scenario("easy"), Machine([("n", PROCESSORS)]))
    site.handle([JobSubmitted(0.0, 1, JobSpec(1, 10.0, max_processors=4))])
    assert not last_job_changes_nothing(RecordedState.of_core(site))
