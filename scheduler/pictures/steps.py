"""Step functions: cumulative sums of changes over time."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def steps(times: ArrayLike, changes: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum the changes of a quantity that is 0 before the first change.

    Parameters
    ----------
    times : (n,) float64, times of the changes, in any order.
    changes : (n,) float64, amount of each change.

    Returns
    -------
    times : (m,) float64, distinct, in ascending order.
    values : (m,) float64, the quantity from each of these times on.
    """
    moments, which = np.unique(np.asarray(times, dtype=np.float64), return_inverse=True)
    amounts = np.asarray(changes, dtype=np.float64)
    return moments, np.cumsum(np.bincount(which, weights=amounts, minlength=len(moments)))
