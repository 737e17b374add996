"""Statistical estimators (GUIM 3.3 and 4.2.2).

F. Guim, "Job-guided scheduling strategies for multi-site HPC infrastructures". Percentiles are
values of the sample: the p-th is the smallest value that at least p % of the values do not exceed,
as in the thesis' examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Values: TypeAlias = NDArray[Any]
DECILES: Final = tuple(range(10, 100, 10))


def percentile(values: Values, share: float) -> float:
    """Percentile of numbers, (n,) with n >= 1; `share` in %."""
    return float(np.percentile(values, share, method="inverted_cdf"))


def any_percentile(name: str) -> Callable[[Values], float] | None:
    """Estimator of a name such as "p99" or "p2.5"; None if the name is another one."""
    try:
        share = float(name.removeprefix("p"))
    except ValueError:
        return None
    if not (name.startswith("p") and 0 < share <= 100):
        return None
    return lambda values: percentile(values, share)


def percentiles(values: Values) -> dict[str, float]:
    """Percentiles 10, 20, ..., 90, by name ("p10")."""
    return {f"p{share}": percentile(values, share) for share in DECILES}


def variance(values: Values) -> float | None:
    """Sample variance (divided by n - 1); None for fewer than two numbers."""
    return float(np.var(values, ddof=1)) if len(values) > 1 else None


def standard_deviation(values: Values) -> float | None:
    """Square root of the sample variance; None for fewer than two numbers."""
    squared = variance(values)
    return None if squared is None else float(np.sqrt(squared))


def count(values: Values) -> dict[str, int]:
    """Number of occurrences of each value (count literals)."""
    names, counts = np.unique(values, return_counts=True)
    return {str(name): int(number) for name, number in zip(names, counts, strict=True)}


def sum_by(values: Values, names: Values) -> dict[str, float]:
    """Sum of the numbers of each name (accumulate literals).

    Parameters
    ----------
    values, names : (n,) numbers, and texts.
    """
    known, which = np.unique(names, return_inverse=True)
    sums = np.bincount(which, weights=values.astype(np.float64), minlength=len(known))
    return {str(name): float(total) for name, total in zip(known, sums, strict=True)}


#: Estimators of numbers, for at least one number.
OF_NUMBERS: Final[Mapping[str, Callable[[Values], Any]]] = {
    "mean": lambda values: float(np.mean(values)),
    "median": lambda values: percentile(values, 50),
    "variance": variance,
    "stdev": standard_deviation,
    "percentiles": percentiles,
    "p95": lambda values: percentile(values, 95),
    "iqr": lambda values: percentile(values, 75) - percentile(values, 25),
    "max": lambda values: float(np.max(values)),
    "min": lambda values: float(np.min(values)),
    "sum": lambda values: float(np.sum(values)),
}
#: Estimators of numbers and of names.
OF_ALL: Final[Mapping[str, Callable[[Values], Any]]] = {"count": count}
