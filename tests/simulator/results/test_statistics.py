"""Means, intervals and medians against scipy."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.results.statistics import (
    Interval,
    geometric_mean,
    mean,
    mean_interval,
    median,
)

NUMBERS = st.floats(-1e6, 1e6)
RATIOS = st.lists(st.floats(1e-4, 1e4), min_size=2, max_size=20, unique=True)


def same(found: Interval, values: list[float]) -> None:
    low, high = scipy.stats.ttest_1samp(values, 0.0).confidence_interval()
    assert (found.mean, found.n) == (pytest.approx(np.mean(values)), len(values))
    scale = max(map(abs, values))
    assert found.low == pytest.approx(low, abs=1e-9 * scale)
    assert found.high == pytest.approx(high, abs=1e-9 * scale)
    assert found.half == pytest.approx((high - low) / 2, abs=1e-9 * scale)


@settings(max_examples=40)
@given(st.lists(NUMBERS, min_size=2, max_size=30))
@pytest.mark.filterwarnings("ignore:Precision loss occurred")  # of scipy, for equal values
def test_mean_interval(values: list[float]) -> None:
    same(mean_interval(values), values)


@settings(max_examples=40)
@given(RATIOS)
@pytest.mark.filterwarnings("ignore:Precision loss occurred")  # likewise
def test_geometric_mean(ratios: list[float]) -> None:
    found = geometric_mean(ratios)
    low, high = scipy.stats.ttest_1samp(np.log(ratios), 0.0).confidence_interval()
    assert found.mean == pytest.approx(scipy.stats.gmean(ratios))
    assert (found.low, found.high) == pytest.approx((np.exp(low), np.exp(high)), rel=1e-6)


@settings(max_examples=40)
@given(st.lists(NUMBERS, min_size=1, max_size=30))
def test_median(values: list[float]) -> None:
    assert median(values) == pytest.approx(np.median(values), rel=1e-6, abs=1e-6)


def test_few_values() -> None:
    assert isnan(mean([]))
    assert isnan(median([]))
    alone = mean_interval([3.0])
    assert (alone.mean, alone.n) == (3.0, 1)
    assert isnan(alone.low)
    assert isnan(alone.half)
