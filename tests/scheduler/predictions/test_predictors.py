"""The predictors: exact small examples, and what holds for all of them."""

from __future__ import annotations

import json
import sys
from statistics import pstdev
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reshape.errors import ConfigError
from scheduler.core.core import Core
from scheduler.model.events import JobEnded, JobSpec, JobStarted, JobSubmitted, ResizePoint
from scheduler.model.job import Job
from scheduler.model.machine import Machine
from scheduler.policies.registry import find, known
from scheduler.policies.scenarios import changed, scenario
from scheduler.predictions.classification import Classification
from scheduler.predictions.history import Statistical
from scheduler.predictions.iterations import Hybrid, Iterations
from scheduler.predictions.predictor import Predictor

SMALL = {"classification": {"rebuild_every": 5}, "hybrid": {"least_jobs": 3}}
NAMES = [name for name in known("estimates") if name != "user"]


def job_of(number: int, processors: int = 1, walltime_s: float = 1000.0, **labels: Any) -> Job:
    return Job(number, JobSpec(processors, walltime_s, **labels), float(number))


def learn(predictor: Predictor, job: Job, run_s: float) -> None:
    job.started_at = job.submitted_at
    job.ended_at = job.submitted_at + run_s
    predictor.ended(job)


def taught(predictor: Any, runs: list[float], **labels: Any) -> Any:
    for number, run_s in enumerate(runs, start=1):
        learn(predictor, job_of(number, **labels), run_s)
    return predictor


jobs = st.lists(
    st.tuples(
        st.integers(1, 64),  # processors
        st.sampled_from(["", "ann", "bob"]),
        st.sampled_from([1.0, 60.0, 3600.0, 86400.0]),  # walltime
        st.floats(0, 1e6),  # run time
    ),
    max_size=25,
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(history=jobs)
def test_predictions_are_finite_and_above_zero_and_survive_a_restart(
    name: str, history: list[tuple[int, str, float, float]]
) -> None:
    source = find("estimates", name)(**SMALL.get(name, {}))
    predictor, restarted = source.predictor(), source.predictor()
    for number, (processors, user, walltime_s, run_s) in enumerate(history, start=1):
        learn(predictor, job_of(number, processors, walltime_s, user=user), run_s)
    restarted.relearn(json.loads(json.dumps(predictor.learned()) or "null"))
    for user in ("", "ann", "new"):
        job = job_of(99, 4, 100.0, user=user)
        predicted_s = predictor.predict(job)
        assert 0 < predicted_s < float("inf") or (name == "tsafrir" and predicted_s == 0)
        assert restarted.predict(job) == predicted_s
        quantiles = predictor.quantiles(job, (0.05, 0.5, 0.95))
        assert quantiles == restarted.quantiles(job, (0.05, 0.5, 0.95))
        assert quantiles is None or quantiles == sorted(quantiles)


def test_the_mean_and_the_median_of_a_user() -> None:
    runs = [10.0, 20.0, 90.0, 40.0]
    other = job_of(9, user="bob")
    mean = taught(Statistical().predictor(), runs, user="ann")
    job = job_of(5, user="ann")
    assert mean.predict(job) == 40
    assert mean.predict(other) == 1000, "bob has no history: his estimate"
    wider = taught(Statistical(spreads=2.0).predictor(), runs, user="ann")
    assert wider.predict(job) == pytest.approx(40 + 2 * pstdev(runs))
    median = taught(Statistical(estimator="median").predictor(), runs, user="ann")
    assert median.predict(job) == 30
    assert median.quantiles(job, (0.0, 0.5, 1.0)) == [10, 30, 90]
    wider = taught(Statistical(estimator="median", spreads=1.0).predictor(), runs, user="ann")
    assert wider.predict(job) == 30 + (52.5 - 17.5), "quartiles of 10, 20, 40, 90"


def test_clusters_by_group_and_of_all_jobs() -> None:
    for cluster, expected in (("group", 1000), ("none", 15)):
        predictor = taught(Statistical(cluster=cluster).predictor(), [10.0, 20.0], group="g")
        assert predictor.predict(job_of(3, user="ann", group="h")) == expected


def test_only_the_latest_jobs_of_a_window_count() -> None:
    predictor = taught(Statistical(window=2).predictor(), [1000.0, 10.0, 20.0])
    assert predictor.predict(job_of(4)) == 15


@pytest.mark.parametrize("tree", ["id3", "c45"])
def test_the_tree_predicts_the_bound_of_the_interval(tree: Any) -> None:
    """Short runs of ann, long ones of bob; two intervals, bounded by the largest short run."""
    parameters = Classification(
        tree=tree, discretiser="equal-frequency", most_bins=2, rebuild_every=8, features=("user",)
    )
    predictor = parameters.predictor()
    runs = [(10.0, "ann"), (11.0, "ann"), (12.0, "ann"), (13.0, "ann"), (13.0, "ann")]
    runs += [(900.0, "bob"), (950.0, "bob"), (1000.0, "bob")]
    for number, (run_s, user) in enumerate(runs, start=1):
        assert predictor.predict(job_of(99, user=user)) == 1000, "no model before eight jobs"
        learn(predictor, job_of(number, user=user), run_s)
    assert predictor.predict(job_of(99, user="ann")) == 13, "upper bound of the first interval"
    assert predictor.predict(job_of(99, user="bob")) == 13, "lower bound of the last interval"
    learn(predictor, job_of(9, user="ann"), 5000.0)
    assert predictor.predict(job_of(99, user="ann")) == 13, "rebuilt after eight more jobs only"


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.tree", None)
    with pytest.raises(ConfigError, match=r"pip install 'reshape-mpi\[predict\]'"):
        Classification().predictor()


def test_the_hybrid_falls_back_until_there_is_enough_history() -> None:
    predictor = Hybrid("statistical", "user", least_jobs=3).predictor()
    job = job_of(9)
    for number in (1, 2):
        learn(predictor, job_of(number), 100.0)
        assert predictor.predict(job) == 1000, "the estimate of the user"
    learn(predictor, job_of(3), 100.0)
    assert predictor.predict(job) == 100
    assert predictor.predict(job_of(9, user="new")) == 1000, "no forecast for this user"


def test_remaining_iterations_at_the_measured_time_of_the_present_size() -> None:
    core = Core(changed(scenario("easy"), {"estimates": "iterations"}), Machine([("n", 4)]))
    core.handle([JobSubmitted(0, 1, JobSpec(2, 1000.0, 4))])
    core.handle([JobStarted(0, 1)])
    job = core.jobs[1]
    assert job.estimate_s == 1000
    core.handle([ResizePoint(30, 1, 1, 30.0, iterations=10)])
    assert job.estimate_s == 30 + 9 * 30
    core.handle([ResizePoint(40, 1, 2, 10.0, iterations=10)])
    assert job.estimate_s == 40 + 8 * 10, "the first iteration, with cold caches, does not count"
    core.handle([ResizePoint(50, 1, 3, 10.0)])
    assert job.estimate_s == 120, "without a number of iterations the prediction stays"
    core.handle([JobEnded(120, 1)])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda: Statistical(spreads=-1.0), "spreads must be >= 0"),
        (lambda: Statistical(least_jobs=0), "least_jobs must be >= 1"),
        (lambda: Classification(features=("usr",)), "unknown feature 'usr'.*user"),
        (lambda: Classification(most_bins=1), "most_bins must be >= 2, got 1"),
        (lambda: Hybrid(least_jobs=-1), "least_jobs must be >= 0"),
    ],
)
def test_parameters_out_of_range_of_predictors_are_refused(source: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        source()


def test_fields_are_set_by_name() -> None:
    fields = {
        "estimates": "statistical",
        "estimates.spreads": "1.5",
        "estimates.deadlines.after.kind": "exponential",
        "estimates.deadlines.after.power": "3",
    }
    chosen = changed(scenario("easy"), fields).estimates
    assert isinstance(chosen, Statistical)
    assert (chosen.spreads, chosen.deadlines.before.kind) == (1.5, "gradual")
    assert (chosen.deadlines.after.kind, chosen.deadlines.after.power) == ("exponential", 3)
    again = changed(changed(scenario("easy"), fields), {"estimates.deadlines.after.power": 4})
    assert isinstance(again.estimates, Statistical)
    assert again.estimates.deadlines.after.kind == "exponential"
    assert again.estimates.deadlines.after.power == 4
    with pytest.raises(ConfigError, match="befor"):
        changed(scenario("easy"), {"estimates": "hybrid", "estimates.deadlines.befor.kind": "x"})


def test_iterations_is_a_source_that_needs_no_history() -> None:
    assert Iterations(fallback="user").predictor().predict(job_of(1)) == 1000
