"""Search for the arrival rate that gives a mean queue length (KRES 3.1, "System Load")."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log

import msgspec
import numpy as np

from reshape.errors import ReshapeError
from simulator.results.schedule import Schedule
from simulator.workload_models.drawn import Floats

WIDEST = 64.0  # largest factor between the first guess and the result


class ArrivalSearch(msgspec.Struct, frozen=True):
    """Result of a search.

    Parameters
    ----------
    mean_arrival_s : mean time between two submissions.
    queue : mean queue length at that rate.
    runs : number of simulations.
    """

    mean_arrival_s: float
    queue: float
    runs: int


def mean_queue(schedule: Schedule) -> float:
    """Mean number of waiting jobs over the time in which jobs are submitted."""
    submitted = schedule.jobs.submitted
    first, last = float(submitted[0]), float(submitted[-1])
    span = last - first
    started = np.where(np.isnan(schedule.started), last, schedule.started)
    waited: Floats = np.minimum(started, last) - np.maximum(submitted, first)
    return float(waited.sum()) / span if span else 0.0


def arrival_for_queue(
    target: float, queue_at: Callable[[float], float], guess_s: float, tolerance: float = 0.04
) -> ArrivalSearch:
    """Mean time between submissions at which the mean queue has the wanted length.

    The queue is the shorter, the longer the time between two submissions. The search first finds
    two times with the target between their queues, then uses Brent's method on logarithms until the
    queue is within the tolerance.

    Parameters
    ----------
    target : mean queue length to reach, > 0.
    queue_at : returns the mean queue of a simulation with this mean time, seconds.
    tolerance : accepted relative distance from the target.

    Raises
    ------
    ReshapeError : no such time within a factor of `WIDEST` of the guess.
    """
    from scipy.optimize import brentq  # late: it makes commands slow to start

    seen: dict[float, float] = {}

    def distance(log_s: float) -> float:
        if log_s not in seen:
            seen[log_s] = queue_at(exp(log_s))
        apart = log((seen[log_s] + 0.01) / (target + 0.01))
        return 0.0 if abs(apart) <= tolerance else apart

    start = log(guess_s)
    step = 0.15 if distance(start) > 0 else -0.15
    near, far = start, start
    while distance(near) * distance(far) > 0:
        near, far = far, far + step
        step *= 1.5
        if abs(far - start) > log(WIDEST):
            raise ReshapeError(
                f"no rate of arrival gives a mean queue of {target:g}: between"
                f" {exp(min(start, far)):.3g} and {exp(max(start, far)):.3g} s the queue is"
                f" {min(seen.values()):.3g} to {max(seen.values()):.3g}; take more jobs"
            )
    best = near if distance(near) == 0.0 else far
    if distance(best) != 0.0:
        best = float(brentq(distance, near, far, xtol=1e-4, maxiter=30, disp=False))
        distance(best)
    best = min(seen, key=lambda log_s: abs(log((seen[log_s] + 0.01) / (target + 0.01))))
    return ArrivalSearch(exp(best), seen[best], len(seen))
