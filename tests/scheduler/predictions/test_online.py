"""The online regression: its features, its loss, and what it learns."""

from __future__ import annotations

import json
from math import log
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler.model.events import JobSpec
from scheduler.model.job import Job
from scheduler.predictions.gradients import NormalisedGradients
from scheduler.predictions.hybrid import Hybrid
from scheduler.predictions.online import LONGEST_S, Online, weight_of
from scheduler.predictions.user_history import FEATURES, UserHistories


def job_of(number: int, at: float, size: int = 1, walltime_s: float = 1000.0) -> Job:
    return Job(number, JobSpec(size, walltime_s, user="ann"), at)


def named(values: list[float]) -> dict[str, float]:
    return dict(zip(FEATURES, values, strict=True))


def test_features_without_a_history_are_those_of_the_request() -> None:
    found = named(UserHistories().features(job_of(1, 6 * 3600.0, 4, 1e12), LONGEST_S))
    assert found["walltime"] == found["last_run"] == found["mean_run"] == LONGEST_S
    assert found["processors"] == found["mean_processors"] == 4
    assert found["processors_to_mean"] == 1
    assert found["running_jobs"] == found["since_last_end"] == 0
    assert (found["cos_day"], found["sin_day"]) == pytest.approx((0, 1)), "at 6 hours"


def test_features_with_a_history() -> None:
    users = UserHistories()
    for number, run_s in enumerate([10.0, 20.0, 60.0, 100.0]):
        ended = job_of(number, 0, 2)
        users.started(ended, 0)
        users.ended(ended, 100.0 + number, run_s)
    for number, start, size in ((11, 150.0, 3), (12, 190.0, 5)):
        users.started(job_of(number, 0, size), start)
    users.ended(job_of(13, 0), 180.0, None)  # cancelled before its start
    found = named(users.features(job_of(20, 203.0, 6), LONGEST_S))
    assert [found[n] for n in ("last_run", "second_last_run", "third_last_run")] == [100, 60, 20]
    assert (found["mean_of_two"], found["mean_of_three"], found["mean_run"]) == (80, 60, 47.5)
    assert (found["mean_processors"], found["processors_to_mean"]) == (2, 3)
    assert (found["running_jobs"], found["running_processors"]) == (2, 8)
    assert (found["running_mean_processors"], found["longest_running"]) == (4, 53)
    assert (found["sum_running"], found["since_last_end"]) == (66, 100)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_a_line_is_learned_whatever_the_scale_of_the_feature(scale: float) -> None:
    rng = np.random.default_rng(1)
    model = NormalisedGradients(1, 1, rate=50.0, ridge=0.0)
    for x in rng.random(3000):
        target = 100 + 300 * x
        model.learn([x * scale], lambda predicted, target=target: 2 * (predicted - target))  # type: ignore[misc]
    for x in (0.1, 0.5, 0.9):
        assert model.predict([x * scale]) == pytest.approx(100 + 300 * x, rel=0.05)


def test_steps_follow_the_printed_algorithm() -> None:
    """The vectors against the loop of algorithm NAG."""
    rng = np.random.default_rng(2)
    model, rate = NormalisedGradients(3, 1, rate=2.0, ridge=0.0), 2.0
    w, s, g, size = [0.0] * 4, [0.0] * 4, [0.0] * 4, 0.0
    for count in range(1, 60):
        x = [1.0, *(rng.normal(size=3) * [1, 100, 0.01]).tolist()]
        target = x[1] - x[2] / 50
        for i in range(4):
            if abs(x[i]) > s[i]:
                w[i] *= s[i] / abs(x[i])
                s[i] = abs(x[i])
        size += sum((x[i] / s[i]) ** 2 for i in range(4))
        slope = 2 * (sum(a * b for a, b in zip(w, x, strict=True)) - target)
        for i in range(4):
            g[i] += (slope * x[i]) ** 2
            w[i] -= rate * (count / size) ** 0.5 * slope * x[i] / (s[i] * g[i] ** 0.5)
        model.learn(x[1:], lambda predicted, target=target: 2 * (predicted - target))  # type: ignore[misc]
        assert model.learned()["weights"] == pytest.approx(w)


def taught(source: Online | Hybrid, runs: list[float]) -> Any:
    predictor = source.predictor()
    for number, run_s in enumerate(runs):
        job = job_of(number, 1000.0 * number)
        predictor.submitted(job)
        job.started_at = job.submitted_at
        predictor.started(job)
        job.ended_at = job.submitted_at + run_s
        predictor.ended(job)
    return predictor


def test_the_loss_decides_whether_predictions_are_long_or_short() -> None:
    runs = np.random.default_rng(3).uniform(100, 900, 1500).tolist()
    plain = {"degree": 1, "weight": "constant", "unit_s": 100.0, "rate": 100.0}
    job = job_of(9999, 1.5e6)
    shorter = taught(Online(over="squared", under="linear", **plain), runs).predict(job)
    middle = taught(Online(over="linear", under="linear", **plain), runs).predict(job)
    longer = taught(Online(over="linear", under="squared", **plain), runs).predict(job)
    assert shorter < middle - 50 < middle + 50 < longer
    assert middle == pytest.approx(500, abs=100)


def test_predictions_stay_below_the_walltime_and_quantiles_cover_the_runs() -> None:
    runs = np.random.default_rng(4).uniform(400, 600, 300).tolist()
    predictor = taught(Online(), runs)
    assert predictor.predict(job_of(9999, 3e5, walltime_s=50.0)) <= 50
    low, high = predictor.quantiles(job_of(9999, 3e5), (0.05, 0.95))
    assert low < 500 < high
    late = job_of(9998, 3e5)
    late.misses, late.estimate_s = 1, 990.0
    assert predictor.missed(late) == 1000, "the gradual extension, at most the walltime"


def test_the_first_jobs_are_predicted_by_their_walltimes() -> None:
    predictor = taught(Online(least_jobs=20), [100.0] * 19)
    assert predictor.predict(job_of(99, 2e4)) == 1000
    assert predictor.quantiles(job_of(99, 2e4), (0.5,)) is None


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=60), st.sampled_from([1, 2]))
@example([1e-161, 264501.0], 2)  # a product of its features underflows
def test_a_restart_changes_no_prediction(runs: list[float], degree: Any) -> None:
    source = Online(least_jobs=1, degree=degree)
    predictor = taught(source, runs)
    pending = job_of(500, 1e6, 3)
    predictor.submitted(pending)
    restarted: Any = source.predictor()
    restarted.relearn(json.loads(json.dumps(predictor.learned())))
    for each in (predictor, restarted):
        job = job_of(500, 1e6, 3)
        job.started_at, job.ended_at = 1e6, 1e6 + 70
        each.ended(job)
    last = job_of(501, 2e6, 2)
    assert predictor.predict(last) == restarted.predict(last)
    assert 0 < predictor.predict(last) <= 1000


def test_as_a_part_of_a_hybrid_it_learns_the_same() -> None:
    runs = np.random.default_rng(5).uniform(100, 900, 200).tolist()
    alone, hybrid = taught(Online(), runs), taught(Hybrid("online", least_jobs=100), runs)
    job = job_of(9999, 3e5)
    assert hybrid.predict(job) == alone.predict(job)


def test_weights_of_jobs_in_the_loss() -> None:
    assert weight_of("constant", 4, 100) == 1
    assert weight_of("large-area", 4, 100) == pytest.approx(log(400))
    assert weight_of("small-area", 4, 100) == pytest.approx(11 - log(400))
    assert weight_of("short-wide", 4, 100) == pytest.approx(5 + log(0.04))
    assert weight_of("long-narrow", 4, 100) == pytest.approx(5 + log(25))
    assert weight_of("large-area", 1, 0) == 0.01, "a loss never vanishes"


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("rate", 0.0, "rate must be > 0"),
        ("unit_s", -1.0, "unit_s must be > 0"),
        ("ridge", -1.0, "ridge must be >= 0"),
        ("least_jobs", 0, "least_jobs must be >= 1"),
        ("window", 3, "window must be >= 20"),
    ],
)
def test_parameters_are_checked(field: str, value: float, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Online(**{field: value})  # type: ignore[arg-type]
