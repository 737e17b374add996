"""Quantities that change in steps: what a sum of changes comes to, and when."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def steps(times: ArrayLike, changes: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Add up changes to a quantity that was 0 before the first of them.

    Parameters
    ----------
    times, changes : (n,) when, in any order, and by how much.

    Returns
    -------
    (m,) float64 times, ascending, each once; (m,) float64 the quantity from each of them on.
    """
    moments, which = np.unique(np.asarray(times, dtype=np.float64), return_inverse=True)
    amounts = np.asarray(changes, dtype=np.float64)
    return moments, np.cumsum(np.bincount(which, weights=amounts, minlength=len(moments)))
