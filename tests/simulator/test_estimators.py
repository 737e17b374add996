"""Estimators against the examples of GUIM 4.2.2."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.statistics import OF_ALL, OF_NUMBERS, percentile, sum_by

numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


def of(name: str, values: list[float]) -> object:
    return OF_NUMBERS[name](np.array(values, np.float64))


def test_the_examples_of_the_thesis() -> None:
    assert of("mean", [1, 4, 4]) == 3
    assert of("stdev", [1, 4, 4]) == pytest.approx(1.732, abs=1e-3)
    deciles = of("percentiles", [1, 2, 67, 90, 90])
    assert isinstance(deciles, dict)
    assert [*deciles.values()] == [1, 1, 2, 2, 67, 67, 90, 90, 90]
    assert of("median", [1, 2, 67, 90, 90]) == 67
    assert of("iqr", [1, 1, 2, 2]) == 1
    assert of("sum", [1, 10, 2, 2, 0.2]) == pytest.approx(15.2)
    assert OF_ALL["count"](np.array(["CTC", "SDSC", "CTC"])) == {"CTC": 2, "SDSC": 1}
    names = np.array(["CTC", "SDSC", "CTC"])
    assert sum_by(np.array([2.0, 1, 4]), names) == {"CTC": 6, "SDSC": 1}


def test_all_estimators_of_the_thesis_are_there() -> None:
    assert {*OF_NUMBERS} == {
        "mean", "median", "variance", "stdev", "percentiles", "p95", "iqr", "max", "min", "sum",
    }  # fmt: skip


def test_the_spread_of_a_single_value_does_not_exist() -> None:
    assert of("variance", [3]) is of("stdev", [3]) is None


@given(numbers, st.floats(1, 100))
def test_a_percentile_is_the_smallest_value_not_below_the_share(
    values: list[float], share: float
) -> None:
    found = percentile(np.array(values), share)
    enough = [v for v in values if sum(w <= v for w in values) >= share / 100 * len(values) - 1e-9]
    assert found in values
    assert found >= min(enough)
    assert sum(w < found for w in values) <= share / 100 * len(values) + 1e-9
