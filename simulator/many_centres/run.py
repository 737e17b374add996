"""Simulate the jobs of a trace at several centres.

SITA policies without cut-offs get some that are fitted to jobs of the past. SITA-E gives each site
a share of the work that corresponds to its processors. SITA-U tries cut-offs by simulations of the
past jobs: quantiles of their estimates, first on a coarse grid, and takes the one with the least
mean bounded slowdown (SITA-U-opt), or with the most similar ones of short and long jobs
(SITA-U-fair).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import inf

import msgspec
import numpy as np

from reshape.collection import no_collection
from reshape.errors import ConfigError
from scheduler.clock.loop import Tick
from scheduler.policies.assignment.dispatcher import Dispatcher
from scheduler.policies.assignment.interface import Assignment
from scheduler.policies.assignment.policies import Sita
from simulator.engine.engine import Engine
from simulator.many_centres.centres import Centres
from simulator.many_centres.grid_backfilling import GridBackfilling
from simulator.many_centres.rules import GRID_BACKFILLING, CentreDescription, CentresRules
from simulator.many_centres.schedule import CentresSchedule
from simulator.results.schedule import Schedule
from simulator.traces.derived import origins as origins_of
from simulator.traces.normalise import CleaningReport, Rules, normalise
from simulator.traces.swf import Trace
from simulator.traces.trace_jobs import TraceJobs
from simulator.workload_models.workload import Resizable, Workload, of_trace


def run_centres(
    workload: Trace,
    centres: Sequence[CentreDescription],
    rules: CentresRules,
    cleaning: Rules | None = None,
    *,
    first: int | None = None,
    resizable: Resizable | None = None,
    seed: int = 0,
    tick: Tick | None = None,
) -> CentresSchedule:
    """Simulate the jobs of a trace at several centres.

    The partition of a job in the trace is its origin, if the header names partitions and a centre
    has that name. The cost limit of a job is the cost that its estimate has at its origin
    (GUIM 8.6.3).

    Parameters
    ----------
    cleaning : rules for irregular jobs; the machine is the largest centre.
    first : number of jobs to simulate, by submission; None: all.
    resizable, seed : how jobs are made resizable, None: all are rigid; and what draws them.
    tick : called with the time now and then.

    Raises
    ------
    ConfigError : Grid-Backfilling of resizable jobs.
    ReshapeError : no job can run by the rules, or one requests further resources.
    """
    largest = max(centre.processors for centre in centres)
    jobs, report = normalise(workload, largest, cleaning, labels=True)
    jobs = jobs if first is None else jobs.first(first)
    jobs.need_no_resources("centres")
    names = origins_of(workload)
    origins = [names[line] for line in jobs.lines]
    return simulate_jobs(jobs, origins, centres, rules, report, resizable, seed, tick)


def simulate_jobs(
    jobs: TraceJobs,
    origins: Sequence[str],
    centres: Sequence[CentreDescription],
    rules: CentresRules,
    report: CleaningReport | None = None,
    resizable: Resizable | None = None,
    seed: int = 0,
    tick: Tick | None = None,
) -> CentresSchedule:
    """Simulate jobs at several centres; see `run_centres`.

    Parameters
    ----------
    origins : name of the home centre of each job; "" if it has none.
    """
    max_costs = cost_limits(jobs, origins, centres)
    assignment = rules.assignment
    site: Centres | GridBackfilling
    if assignment is None:
        if resizable is not None:
            raise ConfigError("runs rigid jobs; leave --resizable out", field=GRID_BACKFILLING)
        site = GridBackfilling(centres, rules.grid)
    else:
        if isinstance(assignment, Sita) and not assignment.cutoffs_s:
            assignment = _fitted(assignment, jobs, origins, centres, rules)
        site = Centres(
            centres,
            Dispatcher(assignment, rules.dispatch, rules.estimates),
            origins=origins,
            max_costs=max_costs,
            redispatch=rules.redispatch,
            scale_estimates=rules.scale_estimates,
            resizable=resizable is not None,
            keep_quotes=rules.keep_quotes,
        )
    workload = None
    if resizable is not None:
        workload = of_trace(jobs, max(centre.processors for centre in centres), resizable, seed)
    schedule = _run(site, jobs, workload, tick)
    ran_at = np.full(len(jobs), -1)
    for number, index in site.ran_at.items():
        ran_at[number - 1] = index
    return CentresSchedule(
        msgspec.structs.replace(schedule, report=report),
        list(centres),
        ran_at,
        origins,
        max_costs,
        site.moved,
        None if not isinstance(site, Centres) else site.quotes,
    )


def _run(
    site: Centres | GridBackfilling,
    jobs: TraceJobs,
    workload: Workload | None,
    tick: Tick | None,
) -> Schedule:
    """Run rigid jobs, as columns, or the same of which a share is resizable."""
    factors = site.cpu_factors
    if workload is None:
        engine = Engine(site, jobs, cpu_factors=factors, tick=tick)
    else:
        engine = Engine(
            site, workload.jobs, columns=jobs, costs=workload.costs, cpu_factors=factors, tick=tick
        )
    with no_collection():
        return engine.run()


def cost_limits(
    jobs: TraceJobs, origins: Sequence[str], centres: Sequence[CentreDescription]
) -> list[float]:
    """Cost of each job at its origin by its estimate; inf without an origin."""
    prices = {centre.name: centre.price for centre in centres}
    work = (jobs.estimate * jobs.processors / 3600.0).tolist()
    pairs = zip(work, origins, strict=True)
    return [hours * prices[name] if name in prices else inf for hours, name in pairs]


def _fitted(
    assignment: Sita,
    jobs: TraceJobs,
    origins: Sequence[str],
    centres: Sequence[CentreDescription],
    rules: CentresRules,
) -> Assignment:
    """Policy with cut-offs fitted to the first jobs."""
    part = jobs.first(max(2, int(len(jobs) * rules.fit_share)))

    def simulated(tried: Assignment) -> CentresSchedule:
        changed = msgspec.structs.replace(rules, assignment=tried)
        return simulate_jobs(part, origins[: len(part)], centres, changed)

    return fitted(assignment, part, [centre.processors for centre in centres], simulated)


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
