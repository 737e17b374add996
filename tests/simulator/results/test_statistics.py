"""Means, intervals and quantiles against scipy."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.results.statistics import (
    Interval,
    mean,
    mean_interval,
    paired_ratio,
    quantiles,
)

NUMBERS = st.floats(-1e6, 1e6)
POSITIVE = st.floats(0.01, 1e4)
PAIRS = st.lists(st.tuples(POSITIVE, POSITIVE), min_size=2, max_size=20).filter(
    lambda pairs: len({a / b for a, b in pairs}) > 1
)


def same(found: Interval, values: list[float], confidence: float = 0.95) -> None:
    low, high = scipy.stats.ttest_1samp(values, 0.0).confidence_interval(confidence)
    assert (found.mean, found.n) == (pytest.approx(np.mean(values)), len(values))
    scale = max(map(abs, values))
    assert found.low == pytest.approx(low, abs=1e-9 * scale)
    assert found.high == pytest.approx(high, abs=1e-9 * scale)
    assert found.half == pytest.approx((high - low) / 2, abs=1e-9 * scale)


@settings(max_examples=40)
@given(st.lists(NUMBERS, min_size=2, max_size=30), st.floats(0.5, 0.999))
@pytest.mark.filterwarnings("ignore:Precision loss occurred")  # of scipy, for equal values
def test_mean_interval(values: list[float], confidence: float) -> None:
    same(mean_interval(values, confidence), values, confidence)


@settings(max_examples=40)
@given(PAIRS)
@pytest.mark.filterwarnings("ignore:Precision loss occurred")  # likewise
def test_pairs(pairs: list[tuple[float, float]]) -> None:
    values, reference = zip(*pairs, strict=True)
    same(paired_ratio(values, reference), [a / b for a, b in pairs])
    found = paired_ratio(values, reference, geometric=True)
    ratios = [a / b for a, b in pairs]
    low, high = scipy.stats.ttest_1samp(np.log(ratios), 0.0).confidence_interval()
    assert found.mean == pytest.approx(scipy.stats.gmean(ratios))
    assert (found.low, found.high) == pytest.approx((np.exp(low), np.exp(high)), rel=1e-6)


@settings(max_examples=40)
@given(st.lists(NUMBERS, min_size=1, max_size=30), st.lists(st.floats(0, 1), max_size=4))
def test_quantiles(values: list[float], at: list[float]) -> None:
    expected = [scipy.stats.scoreatpercentile(values, 100 * share) for share in at]
    assert quantiles(values, at) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_few_values() -> None:
    assert isnan(mean([]))
    assert isnan(quantiles([], [0.5])[0])
    alone = mean_interval([3.0])
    assert (alone.mean, alone.n) == (3.0, 1)
    assert isnan(alone.low)
    assert isnan(alone.half)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: quantiles([1.0], [1.5]), "a share from 0 to 1, got 1.5"),
        (lambda: mean_interval([1.0, 2.0], 95), "between 0 and 1, got 95"),
        (lambda: paired_ratio([1.0], [1.0, 2.0]), "1 values cannot be paired with 2"),
        (lambda: paired_ratio([1.0], [0.0]), "a reference of 0"),
        (lambda: paired_ratio([-1.0, 1.0], [1.0, 1.0], geometric=True), "above 0, got -1"),
    ],
)
def test_wrong_input(call, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=says):
        call()
