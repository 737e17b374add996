"""Deadline managers: predictions after missed ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.events import JobSpec
from scheduler.model.job import Job
from scheduler.predictions.predictor import DeadlineManager, DeadlineManagers

managers = st.builds(
    DeadlineManager,
    kind=st.sampled_from(["gradual", "exponential"]),
    steps_s=st.lists(st.floats(1, 1e7), min_size=1, max_size=5).map(sorted).map(tuple),
    power=st.floats(1.001, 50),
)


@given(managers, st.floats(0, 1e12), st.integers(1, 40))
def test_a_missed_prediction_is_extended_by_at_least_a_second(
    manager: DeadlineManager, predicted_s: float, misses: int
) -> None:
    longer_s = manager.extended(predicted_s, misses)
    assert predicted_s + 1 <= longer_s < float("inf")


def test_the_gradual_manager_adds_the_step_of_the_miss() -> None:
    """GUIM 4.4.3: after five misses the next one adds two hours."""
    manager = DeadlineManager()
    assert manager.extended(100, 1) == 160
    assert manager.extended(100, 2) == 400
    assert manager.extended(100, 6) == 7300
    assert manager.extended(100, 12) == manager.extended(100, 99) == 100 + 1000 * 3600


@pytest.mark.parametrize(("predicted_s", "next_s"), [(0, 1), (0.5, 1.5), (1, 2), (10, 100)])
def test_the_exponential_manager_squares_the_prediction(predicted_s: float, next_s: float) -> None:
    assert DeadlineManager("exponential").extended(predicted_s, 1) == next_s


def test_the_manager_depends_on_whether_the_users_estimate_is_reached() -> None:
    deadlines = DeadlineManagers(after=DeadlineManager("exponential"))
    job = Job(1, JobSpec(1, 100.0), 0.0)
    job.estimate_s, job.misses = 99.0, 1
    assert deadlines.next_s(job) == 159
    job.estimate_s = 100.0
    assert deadlines.next_s(job) == 10000


@pytest.mark.parametrize("steps_s", [(), (0.5,), (5.0, 1.0), (float("nan"),)])
def test_steps_that_do_not_ascend_from_a_second_are_refused(steps_s: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="steps_s must be >= 1"):
        DeadlineManager(steps_s=steps_s)


@pytest.mark.parametrize("power", [1.0, 0.5, float("inf"), float("nan")])
def test_a_power_that_does_not_grow_is_refused(power: float) -> None:
    with pytest.raises(ValueError, match="power must be > 1"):
        DeadlineManager(power=power)
