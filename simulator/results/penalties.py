"""What jobs lose to their neighbours on shared nodes (GUIM 4.2, 6.4)."""

from __future__ import annotations

from math import nan

import numpy as np

from simulator.results.schedule import Floats, Penalties, Schedule


def penalised_s(schedule: Schedule) -> Floats:
    """Penalised run time of each job that was not killed, (n,) float64, seconds; others nan."""
    if schedule.computed is not None:
        return schedule.computed[:, 1]
    added = schedule.ended - schedule.started - schedule.jobs.run
    return np.where(schedule.killed, nan, np.maximum(added, 0.0))


def penalties(schedule: Schedule) -> Penalties:
    """Means over the jobs that ran to their ends.

    The percentage is of the run time without neighbours, for a resizable job on the sizes that it
    had.
    """
    added, run = penalised_s(schedule), schedule.jobs.run
    if schedule.computed is not None:
        run = schedule.computed[:, 0]
    over = ~np.isnan(added)
    if not over.any():
        return Penalties(nan, nan, nan)
    share = 100 * added[over] / np.maximum(run[over], np.finfo(float).tiny)
    share[run[over] <= 0] = 0.0
    return Penalties(
        float(added[over].mean()), float(share.mean()), float(np.percentile(share, 95))
    )
