"""Means with their intervals, for comparing runs over seeds, weeks or traces.

All intervals are Student's at 95 %; they assume independent
values and an approximately normal mean. Runs of the same seed (or week) are compared pair by pair,
which removes the spread between seeds from the comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, nan, sqrt

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


def median(values: Sequence[float]) -> float:
    """Median; nan of no values."""
    return float(np.quantile(values, 0.5)) if len(values) else nan


def mean_interval(values: Sequence[float]) -> Interval:
    """Mean of independent values, which are finite, with Student's interval."""
    n, middle = len(values), mean(values)
    if n < 2:
        return Interval(middle, nan, nan, n)
    from scipy.special import stdtrit  # late: it makes commands slow to start

    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * float(np.std(values, ddof=1)) / sqrt(n)
    return Interval(middle, middle - half, middle + half, n)


def geometric_mean(ratios: Sequence[float]) -> Interval:
    """Geometric mean of ratios above 0, in which factors 1/2 and 2 cancel out.

    Its interval comes from the logarithms and is not symmetric.
    """
    logs = mean_interval([log(ratio) for ratio in ratios])
    return Interval(exp(logs.mean), exp(logs.low), exp(logs.high), logs.n)
