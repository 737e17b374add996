"""Intervals of values and the choice of their number."""

from __future__ import annotations

from math import inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.predictions.trees import Discretiser, cut_points, entropy, interval

values = st.lists(st.integers(0, 10**6) | st.floats(0, 1e6), max_size=60)


@given(values, st.sampled_from(["equal-width", "equal-frequency"]), st.integers(2, 12))
def test_the_intervals_partition_the_values(
    numbers: list[float], discretiser: Discretiser, most: int
) -> None:
    array = np.array(numbers, float)
    cuts = cut_points(array, discretiser, most)
    assert len(cuts) < most
    assert (np.diff(cuts) > 0).all()
    bounds = [-inf, *cuts.tolist(), inf]
    for value, number in zip(array, interval(array, cuts), strict=True):
        assert bounds[number] < value <= bounds[number + 1]
    if len(cuts):
        assert np.bincount(interval(array, cuts), minlength=len(cuts) + 1).min() >= 2


@given(st.lists(st.integers(0, 100), min_size=4, max_size=30), st.integers(2, 8))
def test_no_other_number_of_intervals_has_a_smaller_entropy(numbers: list[int], most: int) -> None:
    array = np.array(numbers, float)
    chosen = entropy(array, cut_points(array, "equal-width", most))
    low, high = array.min(), array.max()
    for bins in range(2, most + 1) if low < high else ():
        cuts = low + (high - low) / bins * np.arange(1, bins)
        assert chosen <= entropy(array, cuts)


def test_the_entropy_of_two_intervals_by_hand() -> None:
    """Three values in (-inf, 5], two in (5, inf): widths 5, densities 2 / 5 and 1 / 5."""
    array = np.array([0.0, 1, 2, 9, 10])
    expected = -(3 * log(2 / 5) + 2 * log(1 / 5))
    assert entropy(array, np.array([5.0])) == pytest.approx(expected)
    assert entropy(array, np.array([0.5])) == inf, "one value alone says nothing without itself"


def test_two_clusters_are_separated() -> None:
    array = np.array([10.0, 11, 12, 13, 990, 995, 1000])
    cuts = cut_points(array, "equal-frequency", 2)
    assert cuts.tolist() == [13.0]
    assert interval(array, cuts).tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert len(cut_points(np.array([7.0, 7, 7]), "equal-width", 10)) == 0
