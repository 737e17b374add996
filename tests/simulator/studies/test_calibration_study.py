"""The study of the calibration of forecasts on a small trace."""

from __future__ import annotations

import numpy as np
import pytest
from paths import SMALL_TRACE

from simulator.studies.calibration import quality, run
from simulator.study.study import read_study, shipped_studies

pytestmark = pytest.mark.studies


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
    found = run(parameters)
    assert found["forecasts"] > 10
    assert found["p90_pct"] >= found["raw_p90_pct"]
    assert found["width_min"] > 0
    assert run(parameters) == found


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


def test_the_shipped_study_has_four_traces() -> None:
    runs = read_study(shipped_studies()["calibration"]).runs
    assert len({each["trace"] for each in runs}) == len(runs) == 4
