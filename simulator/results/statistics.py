"""Means and quantiles with their intervals, for comparing runs over seeds, weeks or traces.

All intervals are Student's, at 95 % unless another confidence is given; they assume independent
values and an approximately normal mean. Runs of the same seed (or week) are compared pair by pair,
which removes the spread between seeds from the comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, log, nan, sqrt

import msgspec
import numpy as np

CONFIDENCE = 0.95


class Interval(msgspec.Struct, frozen=True):
    """A mean with its confidence interval; `low` and `high` are nan for fewer than two values.

    Parameters
    ----------
    mean, low, high : in the unit of the values.
    n : number of values.
    """

    mean: float
    low: float
    high: float
    n: int

    @property
    def half(self) -> float:
        """Half of the width: mean ± half."""
        return (self.high - self.low) / 2


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; nan of no values."""
    return float(np.mean(values)) if len(values) else nan


def quantiles(values: Sequence[float], at: Sequence[float]) -> list[float]:
    """Quantiles by linear interpolation; nan of no values.

    Parameters
    ----------
    at : shares from 0 to 1, such as 0.5 for the median.

    Raises
    ------
    ValueError : a share is out of range.
    """
    for share in at:
        if not 0 <= share <= 1:
            raise ValueError(f"a quantile is a share from 0 to 1, got {share}")
    if not len(values):
        return [nan] * len(at)
    return [float(value) for value in np.quantile(values, at)]


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Mean of independent values with Student's interval.

    Parameters
    ----------
    values : (n,) finite numbers.
    confidence : share of such intervals that contain the true mean.

    Raises
    ------
    ValueError : the confidence is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    n, middle = len(values), mean(values)
    if n < 2:
        return Interval(middle, nan, nan, n)
    from scipy.special import stdtrit  # late: it makes commands slow to start

    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * float(np.std(values, ddof=1)) / sqrt(n)
    return Interval(middle, middle - half, middle + half, n)


def paired_ratio(
    values: Sequence[float],
    reference: Sequence[float],
    confidence: float = CONFIDENCE,
    *,
    geometric: bool = False,
) -> Interval:
    """Mean of `values` over `reference`, pair by pair.

    Parameters
    ----------
    geometric : the geometric mean instead, in which factors 1/2 and 2 cancel out; its
        interval comes from the logarithms and is not symmetric.

    Raises
    ------
    ValueError : their numbers differ, a reference is 0, or a geometric ratio is not above 0.
    """
    if len(values) != len(reference):
        raise ValueError(f"{len(values)} values cannot be paired with {len(reference)} references")
    if 0 in reference:
        raise ValueError("a ratio to a reference of 0 does not exist")
    ratios = [a / b for a, b in zip(values, reference, strict=True)]
    if not geometric:
        return mean_interval(ratios, confidence)
    if not all(0 < ratio < inf for ratio in ratios):
        raise ValueError(f"geometric ratios must be above 0, got {min(ratios)}")
    logs = mean_interval([log(ratio) for ratio in ratios], confidence)
    return Interval(exp(logs.mean), exp(logs.low), exp(logs.high), logs.n)
