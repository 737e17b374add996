"""The centres of a simulation as one site, with what their policies need.

SITA policies without cut-offs get some that are fitted to jobs of the past. SITA-E gives each site
a share of the work that corresponds to its processors. SITA-U tries cut-offs by simulations of the
past jobs: quantiles of their estimates, first on a coarse grid, and takes the one with the least
mean bounded slowdown (SITA-U-opt), or with the most similar ones of short and long jobs
(SITA-U-fair).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import msgspec
import numpy as np

from reshape.collection import no_collection
from reshape.errors import ConfigError
from scheduler.policies.assignment.interface import Assignment
from scheduler.policies.assignment.policies import Sita
from simulator.engine.engine import Engine
from simulator.engine.jobs import SimJob
from simulator.many_centres.centres import Centres
from simulator.many_centres.grid_backfilling import GridBackfilling
from simulator.many_centres.rules import GRID_BACKFILLING, CentreDescription, CentresRules
from simulator.many_centres.schedule import TAU_S
from simulator.results.schedule import Schedule
from simulator.traces.trace_jobs import TraceJobs


def site_of(
    jobs: TraceJobs,
    origins: Sequence[str],
    centres: Sequence[CentreDescription],
    rules: CentresRules,
    *,
    single: Sequence[SimJob] | None = None,
    kill_at_walltime: bool = False,
) -> Centres | GridBackfilling:
    """Centres to which jobs can be submitted, as one site.

    Parameters
    ----------
    jobs : all that will be submitted; cut-offs are fitted to the first ones.
    origins : name of the home centre of each job; "" if it has none.
    single : the same jobs if they have programs of their own; None: all are rigid.
    kill_at_walltime : of the cores.

    Raises
    ------
    ConfigError : Grid-Backfilling of resizable jobs.
    """
    assignment, kill = rules.assignment, kill_at_walltime
    if assignment is None:
        if single is not None and any(job.spec.resizable for job in single):
            raise ConfigError(
                "runs rigid jobs, because its one core knows no borders between the centres at a"
                " resize; leave the sizes of the jobs out (--resizable, max_processors,"
                " min_processors)",
                field=GRID_BACKFILLING,
            )
        keep_ended = single is not None
        return GridBackfilling(centres, rules.grid, keep_ended=keep_ended, kill_at_walltime=kill)
    if isinstance(assignment, Sita) and not assignment.cutoffs_s:
        fitted = _fitted(assignment, jobs, origins, centres, rules)
        rules = msgspec.structs.replace(rules, assignment=fitted)
    return Centres(centres, rules, origins, single=single is not None, kill_at_walltime=kill)


#: Share of the jobs, the first ones, to which cut-offs are fitted.
FIT_SHARE = 0.1
#: Quantiles of the estimates that SITA-U tries as cut-offs.
TRIED = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 0.95)


def _fitted(
    assignment: Sita,
    jobs: TraceJobs,
    origins: Sequence[str],
    centres: Sequence[CentreDescription],
    rules: CentresRules,
) -> Assignment:
    """Policy with cut-offs that are fitted to the first jobs."""
    past = jobs.first(max(2, int(len(jobs) * FIT_SHARE)))
    processors = [centre.processors for centre in centres]
    if assignment.fit == "equal-load":
        return msgspec.structs.replace(assignment, cutoffs_s=equal_load(past, processors))

    def loss(tried: Assignment) -> float:
        changed = msgspec.structs.replace(rules, assignment=tried)
        site = site_of(past, origins, centres, changed)
        with no_collection():
            schedule = Engine(site, past, cpu_factors=site.cpu_factors).run()
        return _loss(schedule, assignment.fit == "fairness")

    quantiles = np.unique(np.quantile(past.estimate, TRIED)).tolist()
    count = min(len(processors) - 1, len(quantiles))
    tried = [
        msgspec.structs.replace(assignment, cutoffs_s=cutoffs)
        for cutoffs in combinations(quantiles, count)
    ]
    return min(tried, key=loss)


def equal_load(jobs: TraceJobs, processors: Sequence[int]) -> tuple[float, ...]:
    """Cut-offs between which the work is divided by the processors, the smallest site first."""
    order = np.argsort(jobs.estimate, kind="stable")
    work = np.cumsum((jobs.run * jobs.processors)[order])
    shares = np.cumsum(sorted(processors))[:-1] / sum(processors)
    indices = np.searchsorted(work, shares * work[-1])
    return tuple(jobs.estimate[order][indices].tolist())


def _loss(schedule: Schedule, fairness: bool) -> float:
    """Mean bounded slowdown, or the ratio by which that of short and of long jobs differs."""
    slowdown = schedule.bounded_slowdown(TAU_S)
    if not fairness:
        return float(np.nanmean(slowdown))
    ascending = np.argsort(schedule.jobs.run, kind="stable")
    middle = len(ascending) // 2
    short, long = slowdown[ascending[:middle]], slowdown[ascending[middle:]]
    means = float(np.nanmean(short)), float(np.nanmean(long))
    return max(means) / min(means)
