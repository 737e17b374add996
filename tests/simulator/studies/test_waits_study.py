"""The study of predicted waits on a small trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from paths import SMALL_TRACE

from reshape.errors import ConfigError, ReshapeError
from simulator.studies.waits import accuracy, run
from simulator.study.study import read_study, shipped_studies

pytestmark = pytest.mark.studies


def parameters(**changes: Any) -> dict[str, Any]:
    where = {"traces": str(SMALL_TRACE.parent), "trace": SMALL_TRACE.name, "first": 300}
    return where | {"policy": "fcfs", "run_times": "exact"} | changes


def test_under_fcfs_exact_run_times_give_exact_starts() -> None:
    found = run(parameters())
    assert found["waited_pct"] > 10
    assert found["within_1_min_pct"] == 100
    assert found["median_error_s"] == found["mean_error_s"] == 0


def test_estimates_give_late_starts() -> None:
    assert run(parameters(run_times="estimates"))["mean_error_s"] > 0


@pytest.mark.parametrize("name", ["predictions", "statistical"])
def test_the_site_schedules_by_a_predictor(name: str) -> None:
    assert run(parameters(policy="easy", run_times=name))["jobs"] == 300


def test_an_unknown_predictor_is_refused() -> None:
    with pytest.raises((ConfigError, ReshapeError), match="exakt"):
        run(parameters(run_times="exakt"))


def test_measures_of_errors_and_of_coverage() -> None:
    submitted, started = np.array([0.0, 0.0, 0.0]), np.array([0.0, 100.0, 2000.0])
    found = accuracy(submitted, started, np.array([0.0, 150.0, 1000.0]))
    assert found["waited_pct"] == pytest.approx(200 / 3)
    assert found["waited_within_1_min_pct"] == 50
    assert found["waited_within_15_min_pct"] == 50
    assert found["mean_error_s"] == -475


def test_the_shipped_study_has_its_runs() -> None:
    for full in (False, True):
        runs = read_study(shipped_studies()["waits"], full=full).runs
        assert len(runs) == (12 if not full else 48)
