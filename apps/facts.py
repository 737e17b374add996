"""Facts of the results of applications."""

from __future__ import annotations

from math import isfinite


def finite_or_text(number: float) -> float | str:
    """Return a fact that `Application.report` accepts: text if the number is not finite."""
    return number if isfinite(number) else str(number)
