"""What jobs lose to their neighbours on shared nodes (GUIM 4.2, 6.4)."""

from __future__ import annotations

from math import nan

import numpy as np

from simulator.results.schedule import Floats, Penalties, Schedule


def penalised_s(schedule: Schedule) -> Floats:
    """Penalised run time of each job that was not killed, (n,) float64, seconds; others nan."""
    if schedule.computed is not None:
        return schedule.computed[:, 1]
    added = schedule.run_s - schedule.jobs.run
    return np.where(schedule.killed, nan, np.maximum(added, 0.0))


def penalised_pct(schedule: Schedule) -> Floats:
    """Percentage of the final run time that is penalised (GUIM 3.2, variable 7), (n,) float64.

    The final run time is the nominal plus the penalised one, for a resizable job on the sizes that
    it had and without the pauses of resizes. A killed job has no final run time: its value is nan,
    so that means and percentiles leave it out.
    """
    added, nominal = penalised_s(schedule), schedule.jobs.run
    if schedule.computed is not None:
        nominal = schedule.computed[:, 0]
    return 100 * added / np.maximum(nominal + added, np.finfo(float).tiny)


def penalties(schedule: Schedule) -> Penalties:
    """Means over the jobs that ran to their ends."""
    added, share = penalised_s(schedule), penalised_pct(schedule)
    over = ~np.isnan(added)
    if not over.any():
        return Penalties(nan, nan, nan)
    return Penalties(
        float(added[over].mean()), float(share[over].mean()), float(np.percentile(share[over], 95))
    )
