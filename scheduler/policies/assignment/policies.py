"""Task assignment policies: by a metric, by the run time of the job, or without a question.

GUIM: F. Guim, "Job-guided scheduling strategies for multi-site HPC infrastructures".

By a metric: the site with the least answer is chosen. Sites with equal values, such as several that
would start the job at once, are chosen in their order, or by the parameter `ties`.

SITA: jobs are assigned by their expected run times, short ones to the smallest site. Size interval
task assignment with equal load (SITA-E, Crovella, Harchol-Balter and Murta), and with purposely
unequal load (SITA-U, Schroeder and Harchol-Balter): 8.2.2. All need cut-offs between the intervals,
which are fitted to jobs of the past (`simulator.many_centres.run`).
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal, TypeAlias

import msgspec

from reshape.errors import ConfigError, check_ranges
from scheduler.policies.assignment.interface import (
    AskedSite,
    Assignment,
    Choice,
    SiteRequest,
    cost,
    slowdown,
)

Fit: TypeAlias = Literal["equal-load", "slowdown", "fairness"]
Ties: TypeAlias = Literal["order", "load", "largest"]
Metric: TypeAlias = Callable[[AskedSite], float]


@dataclass
class Random(Assignment):
    """Choose each site with the same probability.

    Parameters
    ----------
    seed : of the draws.
    """

    seed: int = 1

    def __post_init__(self) -> None:
        """Create the generator."""
        self._generator = random.Random(self.seed)

    def assign(self, request: SiteRequest, sites: Sequence[AskedSite]) -> Choice:
        """Draw a site."""
        return sites[self._generator.randrange(len(sites))]


@dataclass
class LessSubmittedJobs(Assignment):
    """Choose the site with the fewest submitted jobs.

    Parameters
    ----------
    rule : "turn" takes the sites in turn and skips those that cannot run a job (round robin, GUIM
        8.2.2), "count" takes the site with the least count (GUIM 8.5). They differ if some jobs
        fit only some of the sites.
    """

    rule: Literal["turn", "count"] = "count"

    def __post_init__(self) -> None:
        """Begin with the first site."""
        self._last = ""

    def assign(self, request: SiteRequest, sites: Sequence[AskedSite]) -> Choice:
        """Choose the next site, or the one with the least count."""
        if self.rule == "count":
            return min(sites, key=lambda site: site.submitted())
        names = [site.name for site in sites]
        following = names.index(self._last) + 1 if self._last in names else 0
        next_site = sites[following % len(sites)]
        self._last = next_site.name
        return next_site


class HomeSite(Assignment, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Submit each job to the site where its user would submit it; the sites stay separate.

    A job without an origin, or whose origin cannot run it, goes to the first site that can.
    """

    def assign(self, request: SiteRequest, sites: Sequence[AskedSite]) -> Choice:
        """Choose the origin."""
        return next((site for site in sites if site.name == request.origin), sites[0])


class CentralQueue(Assignment, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One queue for all sites, from which they pull a job when they can start it (GUIM 8.2.2)."""

    pulls: ClassVar[bool] = True

    def assign(self, request: SiteRequest, sites: Sequence[AskedSite]) -> Choice:
        """Choose the first of the sites that can start the job now."""
        return sites[0]


def least(sites: Sequence[AskedSite], metric: Metric, ties: Ties) -> AskedSite:
    """Site with the least value of a metric, which is never negative.

    Parameters
    ----------
    metric : by "order" it is not computed for the sites behind one with a value of 0.
    ties : of sites with equal values take the first ("order"), the one with the least load or the
        one with the most processors.
    """
    values = []
    for site in sites:
        values.append(metric(site))
        if values[-1] == 0.0 and ties == "order":
            return site
    best = min(values)
    equal = [site for site, value in zip(sites, values, strict=True) if value == best]
    if len(equal) == 1 or ties == "order":
        return equal[0]
    if ties == "load":
        return min(equal, key=lambda site: site.load())
    return max(equal, key=lambda site: site.processors)


class ByMetric(Assignment, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the policies that compare one metric.

    Parameters
    ----------
    ties : see `least`.
    """

    ties: Ties = "order"

    def assign(self, request: SiteRequest, sites: Sequence[AskedSite]) -> Choice:
        """Choose the site with the least value."""
        return least(sites, lambda site: self.metric(request, site), self.ties)

    def metric(self, request: SiteRequest, site: AskedSite) -> float:
        """Value of a site for a job."""
        raise NotImplementedError(f"{type(self).__name__} has no method metric")


class LessJobsInQueue(ByMetric, frozen=True, forbid_unknown_fields=True):
    """Least number of queued jobs."""

    def metric(self, request: SiteRequest, site: AskedSite) -> float:
        """Count the queued jobs."""
        return site.queued()


class LessWorkLeft(ByMetric, frozen=True, forbid_unknown_fields=True):
    """Least work of the queued jobs, not divided by the size of the site (GUIM 8.5.2)."""

    def metric(self, request: SiteRequest, site: AskedSite) -> float:
        """Ask for the work of the queued jobs."""
        return site.work_left()


class LeastLoad(ByMetric, frozen=True, forbid_unknown_fields=True):
    """Least instantaneous load, the first algorithm of Sabin et al. (GUIM 8.2)."""

    def metric(self, request: SiteRequest, site: AskedSite) -> float:
        """Ask for the load."""
        return site.load()


class LessWaitTime(ByMetric, frozen=True, forbid_unknown_fields=True):
    """Least quoted wait, by the users' estimates (GUIM 8.5).

    With ties by order, sites with short queues are asked first, and the others only whether they
    would start the job as early; this does not change the choice.
    """

    def assign(self, request: SiteRequest, sites: Sequence[AskedSite]) -> Choice:
        """Choose the site with the least wait."""
        if self.ties != "order":
            return ByMetric.assign(self, request, sites)
        best_s, best = inf, len(sites)
        for place in sorted(range(len(sites)), key=lambda i: (sites[i].queued(), i)):
            wait_s = sites[place].wait_s(request, best_s)
            if (wait_s, place) < (best_s, best):
                best_s, best = wait_s, place
        return sites[best]

    def metric(self, request: SiteRequest, site: AskedSite) -> float:
        """Ask for a quote."""
        return site.wait_s(request)


class LessWaitTimePred(LessWaitTime, frozen=True, forbid_unknown_fields=True):
    """Least quoted wait, by predicted run times (GUIM 8.6.4)."""

    predicts: ClassVar[bool] = True


class LessSlowdown(ByMetric, frozen=True, forbid_unknown_fields=True):
    """Least expected slowdown, by predicted run times and quoted waits (GUIM 8.6.5)."""

    predicts: ClassVar[bool] = True

    def metric(self, request: SiteRequest, site: AskedSite) -> float:
        """Ask for a quote, and divide by the run time."""
        return slowdown(request, site)


class LessTurnaround(ByMetric, frozen=True, forbid_unknown_fields=True):
    """Least quoted turnaround, which counts the CPU factor and how a resizable job may grow."""

    def metric(self, request: SiteRequest, site: AskedSite) -> float:
        """Ask for a quote of the end."""
        return site.turnaround_s(request)


class LessCostSld(ByMetric, frozen=True, forbid_unknown_fields=True):
    """Least product of expected slowdown and cost, among the sites within the cost limit.

    If no site is within the limit of the request, the cheapest is chosen. GUIM 8.6.6 prints the
    order as slowdown ratio over cost ratio above 1, which would prefer the larger product; its text
    describes the smaller one. Its printed filter omits the processors of the job.
    """

    predicts: ClassVar[bool] = True

    def assign(self, request: SiteRequest, sites: Sequence[AskedSite]) -> Choice:
        """Choose within the limit, or the cheapest site."""
        within = [site for site in sites if cost(request, site) <= request.max_cost]
        if not within:
            return least(sites, lambda site: cost(request, site), self.ties)
        return least(within, lambda site: self.metric(request, site), self.ties)

    def metric(self, request: SiteRequest, site: AskedSite) -> float:
        """Ask for a quote, and multiply slowdown and cost."""
        return slowdown(request, site) * cost(request, site)


class MultipleRequests(Assignment, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Submit to the k sites with the least load; the first that starts the job keeps it.

    The second algorithm of Sabin et al. (GUIM 8.2). The other submissions are revoked.

    Parameters
    ----------
    k : number of sites.

    Raises
    ------
    ValueError : k is below 1.
    """

    k: int = 3

    def __post_init__(self) -> None:
        """Check the number."""
        check_ranges(self, k=">= 1")

    def assign(self, request: SiteRequest, sites: Sequence[AskedSite]) -> Choice:
        """Choose the sites, the least loaded first."""
        return sorted(sites, key=lambda site: site.load())[: self.k]


class PerUser(ByMetric, frozen=True, forbid_unknown_fields=True):
    """Users with different metrics: each user always has the same one of the three (GUIM 9.1)."""

    def metric(self, request: SiteRequest, site: AskedSite) -> float:
        """Ask by the metric of the user: quoted wait, queued jobs, or cost."""
        kind = sum(request.spec.user.encode()) % 3
        if kind == 0:
            return site.wait_s(request)
        return site.queued() if kind == 1 else cost(request, site)


class Sita(Assignment, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the three policies.

    Parameters
    ----------
    cutoffs_s : ascending upper bounds of the intervals, s; one less than there are sites.
    """

    fit: ClassVar[Fit]
    cutoffs_s: tuple[float, ...] = ()

    def assign(self, request: SiteRequest, sites: Sequence[AskedSite]) -> Choice:
        """Choose the site of the interval, or the next larger one that can run the job.

        `sites` are those that can run the job: the largest ones.

        Raises
        ------
        ConfigError : there are no cut-offs.
        """
        if not self.cutoffs_s:
            raise ConfigError(
                "has no values; fit them to past jobs, or give one less than there are sites",
                field="cutoffs_s",
            )
        ascending = sorted(sites, key=lambda site: site.processors)
        interval = bisect_left(self.cutoffs_s, request.run_s)
        smaller = len(self.cutoffs_s) + 1 - len(ascending)  # sites that cannot run the job
        return ascending[min(max(0, interval - smaller), len(ascending) - 1)]


class SitaE(Sita, frozen=True, forbid_unknown_fields=True):
    """Cut-offs that give each site the same load."""

    fit: ClassVar[Fit] = "equal-load"


class SitaUOpt(Sita, frozen=True, forbid_unknown_fields=True):
    """Cut-offs with the least mean slowdown."""

    fit: ClassVar[Fit] = "slowdown"


class SitaUFair(Sita, frozen=True, forbid_unknown_fields=True):
    """Cut-offs with which short and long jobs have the most similar mean slowdown."""

    fit: ClassVar[Fit] = "fairness"
