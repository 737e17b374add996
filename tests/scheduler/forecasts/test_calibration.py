"""Quantiles of waits, corrected by the outcomes of earlier forecasts."""

from __future__ import annotations

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from scheduler.forecasts.answers import Spread
from scheduler.forecasts.calibration import ADDED_S, LATEST, LEAST, Calibration, ForecastOutcome
from scheduler.forecasts.futures import Spreads

NOW = 1000.0
H = ADDED_S


def spreads(*waits: float | None, run_s: float = 10.0) -> Spreads:
    """Quantiles of a start after these waits, and of the end some seconds later."""
    start = Spread(*(None if wait is None else NOW + wait for wait in waits))
    end = Spread(*(None if wait is None else NOW + wait + run_s for wait in waits))
    return Spreads(start, end)


def outcomes(count: int, factor: float) -> list[ForecastOutcome]:
    """Outcomes of forecasts whose quantiles were too small by a factor."""
    return [ForecastOutcome((0.0, H, 2 * H), factor * (H + H) - H) for _ in range(count)]


@pytest.mark.parametrize("count", [0, 1, LEAST - 1])
def test_too_few_outcomes_correct_nothing(count: int) -> None:
    calibration = Calibration(outcomes(count, 3.0))
    assert calibration.count == 0
    assert calibration.corrected(spreads(0.1, 0.7, None), NOW) == spreads(0.1, 0.7, None)


def test_a_quantile_is_multiplied_by_the_scores_of_the_latest_outcomes() -> None:
    calibration = Calibration([*outcomes(100, 7.0), *outcomes(LATEST, 3.0)])
    assert calibration.count == LATEST
    start, end = calibration.corrected(spreads(0.0, H, 2 * H), NOW)
    # Each wait was 5 hours: 6, 3 and 2 times the quantiles, with an hour added to both.
    assert (start.p10, start.p50, start.p90) == pytest.approx((NOW + 5 * H,) * 3)
    assert end.p50 == pytest.approx(NOW + 5 * H + 10.0)
    start, end = calibration.corrected(spreads(0.0, 3 * H, None), NOW)
    assert (start.p10, start.p50) == pytest.approx((NOW + 5 * H, NOW + 11 * H))
    assert start.p90 is None
    assert end.p90 is None


def test_a_start_without_a_wait_stays() -> None:
    at_once = spreads(0.0, 0.0, 0.0)
    assert Calibration(outcomes(LATEST, 3.0)).corrected(at_once, NOW) == at_once


def test_the_outcome_of_a_forecast_has_waits() -> None:
    found = ForecastOutcome.of(Spread(NOW, NOW + 5.0, None), NOW, NOW + 7.0)
    assert found == ForecastOutcome((0.0, 5.0, float("inf")), 7.0)


waits = st.floats(0, 1e6)


@examples(200)
@given(
    st.lists(st.tuples(st.tuples(waits, waits, waits), waits), max_size=60),
    st.tuples(waits, waits, waits),
)
def test_corrected_quantiles_ascend_and_are_not_in_the_past(
    past: list[tuple[tuple[float, float, float], float]], raw: tuple[float, float, float]
) -> None:
    calibration = Calibration([ForecastOutcome(tuple(sorted(each)), wait) for each, wait in past])
    start, end = calibration.corrected(spreads(*sorted(raw)), NOW)
    assert start.p10 is not None
    assert start.p50 is not None
    assert start.p90 is not None
    assert NOW <= start.p10 <= start.p50 <= start.p90
    assert end.p10 is not None
    assert end.p90 is not None
    assert end.p10 <= end.p90


@examples(25)
@given(st.integers(0, 10**6), st.floats(0.1, 10.0), st.floats(0.3, 2.0), st.integers(LEAST, LATEST))
def test_the_coverage_of_exchangeable_forecasts_is_that_of_the_levels(
    seed: int, bias: float, sigma: float, count: int
) -> None:
    """Waits and quantiles that are wrong by any factor and spread; 400 draws of all outcomes."""
    rng, draws = np.random.default_rng(seed), 400
    covered = np.zeros(3)
    for _ in range(draws):
        scale = rng.uniform(100.0, 1e5, count + 1)
        wait = scale * rng.lognormal(0.0, sigma, count + 1)
        quantiles = bias * scale[:, None] * np.array([0.9, 1.0, 1.1])
        known = [
            ForecastOutcome(tuple(q), w) for q, w in zip(quantiles[:-1], wait[:-1], strict=True)
        ]
        start = Calibration(known).corrected(spreads(*quantiles[-1].tolist()), NOW).start
        for i, at in enumerate((start.p10, start.p50, start.p90)):
            assert at is not None
            covered[i] += NOW + wait[-1] <= at
    # At least the level and at most 1 / (count + 1) more, within 5 standard deviations.
    levels = np.array([0.1, 0.5, 0.9])
    error = 5 * np.sqrt(levels * (1 - levels) / draws)
    assert (covered / draws >= levels - error).all()
    assert (covered / draws <= levels + 1 / (count + 1) + error).all()
