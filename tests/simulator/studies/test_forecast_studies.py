"""The studies of forecasts on a small trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from paths import SMALL_TRACE

from reshape.errors import ConfigError, ReshapeError
from simulator.studies.forecasts import accuracy, calibration, predicted_starts, quality
from simulator.study.study import read_study, shipped_studies

pytestmark = pytest.mark.studies


def parameters(**changes: Any) -> dict[str, Any]:
    where = {"traces": str(SMALL_TRACE.parent), "trace": SMALL_TRACE.name, "first": 300}
    return where | {"policy": "fcfs", "run_times": "exact"} | changes


def test_under_fcfs_exact_run_times_give_exact_starts() -> None:
    found = predicted_starts(parameters())
    assert found["waited_pct"] > 10
    assert found["within_1_min_pct"] == 100
    assert found["median_error_s"] == found["mean_error_s"] == 0


def test_estimates_give_late_starts() -> None:
    assert predicted_starts(parameters(run_times="estimates"))["mean_error_s"] > 0


@pytest.mark.parametrize("name", ["predictions", "statistical"])
def test_the_site_schedules_by_a_predictor(name: str) -> None:
    assert predicted_starts(parameters(policy="easy", run_times=name))["jobs"] == 300


def test_an_unknown_predictor_is_refused() -> None:
    with pytest.raises((ConfigError, ReshapeError), match="exakt"):
        predicted_starts(parameters(run_times="exakt"))


def test_measures_of_errors_and_of_coverage() -> None:
    submitted, started = np.array([0.0, 0.0, 0.0]), np.array([0.0, 100.0, 2000.0])
    found = accuracy(submitted, started, np.array([0.0, 150.0, 1000.0]))
    assert found["waited_pct"] == pytest.approx(200 / 3)
    assert found["waited_within_1_min_pct"] == 50
    assert found["waited_within_15_min_pct"] == 50
    assert found["mean_error_s"] == -475


def test_the_shipped_study_of_waits_has_its_runs() -> None:
    for full in (False, True):
        runs = read_study(shipped_studies()["waits"], full=full).runs
        assert len(runs) == (12 if not full else 40)


def test_a_calibrated_p90_covers_more_and_runs_repeat_themselves() -> None:
    parameters = {
        "traces": str(SMALL_TRACE.parent),
        "trace": SMALL_TRACE.name,
        "policy": "fcfs",
        "first": 300,
        "futures": 3,
        "every": 3,
        "seed": 1,
    }
    found = calibration(parameters)
    assert found["forecasts"] > 10
    assert found["p90_pct"] >= found["raw_p90_pct"]
    assert found["width_min"] > 0
    assert calibration(parameters) == found


def test_measures_of_quantiles() -> None:
    waits = np.array([0.0, 600.0])
    quantiles = np.array([[0.0, 60.0, 120.0], [0.0, 480.0, 540.0]])
    assert quality(waits, quantiles) == pytest.approx(
        {
            "p50_pct": 50.0,
            "p50_loss_min": (0.5 * 1 + 0.5 * 2) / 2,
            "p90_pct": 50.0,
            "p90_loss_min": (0.1 * 2 + 0.9 * 1) / 2,
            "width_min": (2 + 9) / 2,
        }
    )
    assert quality(np.zeros(0), np.zeros((0, 3))) == {}


def test_the_shipped_calibration_has_four_traces() -> None:
    runs = read_study(shipped_studies()["calibration"]).runs
    assert len({each["trace"] for each in runs}) == len(runs) == 4
