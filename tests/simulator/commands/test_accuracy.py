"""Predictors played over a trace, and the summary of their errors."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.model.job import Job
from scheduler.predictions.estimates import Tsafrir, UserEstimates
from scheduler.predictions.history import Statistical
from scheduler.predictions.predictor import Predictor
from simulator.commands.predict import PlayedTrace, play
from simulator.traces.trace_jobs import TraceJobs
from simulator.workload_models.fake_predictions import GivenEstimates


def jobs_of(submitted: list[float], run: list[float]) -> TraceJobs:
    n = len(run)
    return TraceJobs(
        lines=np.arange(n),
        numbers=np.arange(1, n + 1),
        submitted=np.array(submitted, float),
        run=np.array(run, float),
        estimate=np.full(n, 100.0),
        processors=np.ones(n, np.int64),
        users=np.zeros(n, np.int64),
        priorities=np.zeros(n),
        cut=np.zeros(n, bool),
    )


class Recorder(Predictor):
    """Predictor that notes what it is called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, float | None]] = []

    def submitted(self, job: Job) -> None:
        self.calls.append(("submitted", job.id, job.submitted_at))

    def started(self, job: Job) -> None:
        self.calls.append(("started", job.id, job.started_at))

    def ended(self, job: Job) -> None:
        self.calls.append(("ended", job.id, job.ended_at))

    def predict(self, job: Job) -> float:
        return job.spec.walltime_s


def test_events_come_in_the_order_of_time_and_ends_before_submissions() -> None:
    recorder = Recorder()
    play(recorder, jobs_of([0, 5, 20], [10, 3, 1]), np.array([0.0, 7, 0]))
    assert recorder.calls == [
        ("submitted", 1, 0), ("started", 1, 0), ("submitted", 2, 5), ("ended", 1, 10),
        ("started", 2, 12), ("ended", 2, 15), ("submitted", 3, 20),
    ]  # fmt: skip


def test_a_prediction_uses_only_jobs_that_have_ended() -> None:
    jobs = jobs_of([0, 1, 10, 31, 31], [10, 30, 20, 1, 1])
    played = play(Tsafrir().predictor(), jobs, np.zeros(5))
    assert played.predicted_s.tolist() == [100, 100, 100, 25, 25], "(20 + 30) / 2 from 31 s on"


def test_the_summary_of_errors_by_hand() -> None:
    run_s = np.array([10.0, 20, 30, 40, 50])
    predicted_s = np.array([10.0, 10, 50, 80, 50])  # errors 0, -10, 20, 40, 0
    quantiles = np.array([[np.nan] * 2, [0, 15], [25, 35], [40, 40], [0, 49]])
    found = PlayedTrace(run_s, predicted_s, quantiles).accuracy()
    assert found == {
        "jobs": 5,
        "median_error_s": 10,
        "iqr_error_s": 20,
        "p95_error_s": pytest.approx(20 + 0.8 * 20),
        "under_pct": 20,
        "over_pct": 40,
        "coverage_pct": 50,
    }


@pytest.mark.parametrize("predictor", [Tsafrir().predictor(), UserEstimates()])
def test_there_is_no_coverage_without_quantiles(predictor: Predictor) -> None:
    assert play(predictor, jobs_of([0], [10]), np.zeros(1)).accuracy()["coverage_pct"] is None


def test_exact_predictions_have_no_error_and_quantiles_are_kept() -> None:
    jobs = jobs_of([0, 100, 200], [10, 20, 30])
    exact = play(GivenEstimates(jobs.run_times()).predictor(), jobs, np.zeros(3)).accuracy()
    assert (exact["p95_error_s"], exact["under_pct"], exact["over_pct"]) == (0, 0, 0)
    played = play(Statistical().predictor(), jobs, np.zeros(3))
    assert np.isnan(played.quantiles_s[:2]).all()
    assert played.quantiles_s[2].tolist() == pytest.approx([10.5, 19.5])
