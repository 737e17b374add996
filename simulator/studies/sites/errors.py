"""Errors of predicted waits, run times and slowdowns: table 8.5 and figure 8.14 of GUIM."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simulator.many_centres.schedule import TAU_S, CentresSchedule

Floats: TypeAlias = NDArray[np.float64]
#: Number of parts of the jobs, in the order of their submission, for errors over time.
PARTS = 10


def prediction_errors(found: CentresSchedule) -> dict[str, dict[str, Any]] | None:
    """Compute errors in percent of the true value; None if no quote was kept.

    GUIM does not say of what the errors are percentages. Waits and run times below 60 s count as
    60 s in the denominator, as in the bounded slowdown.

    Returns
    -------
    variable -> `median`, `iqr` (interquartile range), `p95` and `medians`, those of `PARTS` equal
    parts of the jobs in the order of their submission
    """
    numbers = [number for number in sorted(found.quotes or ()) if found.ran[number - 1]]
    if not numbers or found.quotes is None:
        return None
    quoted = np.array([found.quotes[number] for number in numbers])
    jobs = np.array(numbers) - 1
    factors = np.array([centre.cpu_factor for centre in found.centres])[found.ran_at[jobs]]
    wait_s, run_s = found.schedule.wait[jobs], found.run_s[jobs]
    quoted_s, expected_s = quoted[:, 0], np.maximum(1.0, quoted[:, 1] * factors)
    errors = {
        "wait_s": _percent(quoted_s, wait_s, TAU_S),
        "run_s": _percent(expected_s, run_s, TAU_S),
        "slowdown": _percent(1.0 + quoted_s / expected_s, found.slowdown[jobs], 1.0),
    }
    return {name: _summary(values) for name, values in errors.items() if len(values)}


def _percent(predicted: Floats, true: Floats, least: float) -> Floats:
    """Errors in percent of the true values, where there is a prediction."""
    values = 100.0 * np.abs(predicted - true) / np.maximum(true, least)
    return values[np.isfinite(values)]


def _summary(errors: Floats) -> dict[str, Any]:
    low, middle, high, p95 = np.percentile(errors, (25, 50, 75, 95))
    return {
        "median": float(middle),
        "iqr": float(high - low),
        "p95": float(p95),
        "medians": [float(np.median(part)) for part in np.array_split(errors, PARTS) if len(part)],
    }
