"""Division of values into intervals whose number the leave-one-out entropy chooses."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Division: TypeAlias = Literal["equal-width", "equal-frequency"]


def cut_points(values: Floats, division: Division, most_bins: int) -> Floats:
    """Choose the bounds between intervals of the values.

    Of 1, 2, ... `most_bins` intervals those of the least leave-one-out estimate of the entropy are
    taken (`entropy`), as in Weka's discretiser. An interval contains its upper bound.

    Parameters
    ----------
    values : (n,) float64, finite.
    division : "equal-width" or "equal-frequency"; equal bounds count once.

    Returns
    -------
    (k,) float64, ascending; the first interval begins at minus infinity, the last ends at infinity.
    """
    none: Floats = np.empty(0)
    if not len(values):
        return none
    low, high = float(values.min()), float(values.max())
    if not low < high:
        return none
    best, least = none, entropy(values, none)
    for bins in range(2, most_bins + 1):
        if division == "equal-width":
            cuts = low + (high - low) / bins * np.arange(1.0, bins)
        else:
            cuts = np.quantile(values, np.arange(1, bins) / bins).astype(np.float64)
        cuts = np.unique(cuts[(cuts >= low) & (cuts < high)]).astype(np.float64)
        here = entropy(values, cuts)
        if here < least:
            best, least = cuts, here
    return best


def entropy(values: Floats, cuts: Floats) -> float:
    """Leave-one-out estimate of the entropy of a histogram.

    The density at a value is estimated from all other values: (n_k - 1) / width_k in an interval
    of n_k values. The result is the sum of its negative logarithms, up to a constant; infinity if
    an interval has fewer than two values.
    """
    counts = np.bincount(interval(values, cuts), minlength=len(cuts) + 1)
    if counts.min() < 2:
        return float("inf")
    widths = np.diff(np.concatenate([[values.min()], cuts, [values.max()]]))
    if widths.min() <= 0:
        return float("inf")
    return float(-(counts * (np.log(counts - 1) - np.log(widths))).sum())


def interval(values: Floats, cuts: Floats) -> Ints:
    """Number of the interval of each value, (n,) int64 from 0."""
    return np.searchsorted(cuts, values, side="left").astype(np.int64)
