"""Cut-offs of the SITA policies, fitted to jobs of the past.

SITA-E gives each site a share of the work that corresponds to its processors. SITA-U tries cut-offs
by simulations of the past jobs: quantiles of their estimates, first on a coarse grid, and takes the
one with the least mean bounded slowdown (SITA-U-opt), or with the most similar ones of short and
long jobs (SITA-U-fair).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import msgspec
import numpy as np

from scheduler.policies.assignment.by_length import Sita
from scheduler.policies.assignment.interface import Assignment
from simulator.many_centres.schedule import CentresSchedule
from simulator.traces.trace_jobs import TraceJobs

#: Quantiles of the estimates that SITA-U tries as cut-offs.
TRIED = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 0.95)


def fitted(
    assignment: Sita,
    jobs: TraceJobs,
    processors: Sequence[int],
    simulated: Callable[[Assignment], CentresSchedule],
) -> Assignment:
    """Policy with cut-offs.

    Parameters
    ----------
    assignment : policy without cut-offs.
    jobs : of the past.
    processors : of the sites.
    simulated : simulates the past jobs under a policy.
    """
    if assignment.fit == "equal-load":
        return msgspec.structs.replace(assignment, cutoffs_s=equal_load(jobs, processors))
    quantiles = np.unique(np.quantile(jobs.estimate, TRIED)).tolist()
    count = min(len(processors) - 1, len(quantiles))
    tried = [
        msgspec.structs.replace(assignment, cutoffs_s=cutoffs)
        for cutoffs in combinations(quantiles, count)
    ]
    return min(tried, key=lambda each: _loss(simulated(each), assignment.fit == "fairness"))


def equal_load(jobs: TraceJobs, processors: Sequence[int]) -> tuple[float, ...]:
    """Cut-offs between which the work is divided by the processors, the smallest site first."""
    order = np.argsort(jobs.estimate, kind="stable")
    work = np.cumsum((jobs.run * jobs.processors)[order])
    shares = np.cumsum(sorted(processors))[:-1] / sum(processors)
    indices = np.searchsorted(work, shares * work[-1])
    return tuple(jobs.estimate[order][indices].tolist())


def _loss(schedule: CentresSchedule, fairness: bool) -> float:
    """Mean bounded slowdown, or the ratio by which that of short and of long jobs differs."""
    slowdown = schedule.bounded_slowdown
    if not fairness:
        return float(np.nanmean(slowdown))
    ascending = np.argsort(schedule.schedule.jobs.run, kind="stable")
    middle = len(ascending) // 2
    short, long = slowdown[ascending[:middle]], slowdown[ascending[middle:]]
    means = float(np.nanmean(short)), float(np.nanmean(long))
    return max(means) / min(means)
