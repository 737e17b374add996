"""The interface of task assignment: what a dispatcher asks sites, and how it chooses.

A dispatcher belongs to one job. It asks the sites that can run the job for what its task assignment
policy needs, and the policy chooses (GUIM 8.4). There is no central server: a policy sees one job
and the answers of the sites. The same classes choose between simulated centres and between live
services.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import get_annotations
from math import inf
from typing import ClassVar, Protocol, TypeAlias

import msgspec

from scheduler.model.events import JobSpec


class SiteRequest(msgspec.Struct, frozen=True):
    """A job that is to be assigned.

    Parameters
    ----------
    job : its number, 0 if it has none yet.
    spec : what the user requests, with the walltime on a site of CPU factor 1.
    run_s : expected run time on a site of CPU factor 1, s: the walltime, or a prediction.
    origin : name of the site at which the user would submit it; "" if there is none.
    max_cost : limit of the cost of the job; inf if there is none.
    """

    job: int
    spec: JobSpec
    run_s: float
    origin: str = ""
    max_cost: float = inf


class AskedSite(Protocol):
    """A site as a task assignment policy sees it; methods are questions to the site."""

    @property
    def name(self) -> str:
        """Name of the site."""

    @property
    def processors(self) -> int:
        """Number of processors."""

    @property
    def cpu_factor(self) -> float:
        """Factor of all run times on the site: 2 is half as fast as 1."""

    @property
    def price(self) -> float:
        """Cost of a processor for an hour."""

    def submitted(self) -> int:
        """Number of jobs that were submitted to the site so far."""

    def queued(self) -> int:
        """Number of queued jobs."""

    def free(self) -> int:
        """Number of free processors."""

    def work_left(self) -> float:
        """Processors times estimate, summed over the queued jobs, processor-seconds."""

    def load(self) -> float:
        """Processors that live and queued jobs hold or request, divided by those of the site."""

    def wait_s(self, request: SiteRequest, at_most_s: float = inf) -> float:
        """Wait that the site quotes for a job, s; inf if it gives no quote.

        A site may answer inf, too, if the wait is longer than `at_most_s`.
        """

    def turnaround_s(self, request: SiteRequest) -> float:
        """Time to the end that the site quotes for a job, s; inf if it gives no quote.

        For a resizable job it counts how the job would grow and shrink at the site.
        """


#: One site, or several: the job is submitted to each of them, and the first to start it keeps it.
Choice: TypeAlias = AskedSite | Sequence[AskedSite]


class Assignment:
    """Task assignment policy: the base of a class with typed parameters and `assign`.

    A policy that draws has a parameter `seed`. A user-defined policy that redefines no attribute
    needs no base.

    Attributes
    ----------
    predicts : whether a prediction replaces the user's estimate in `SiteRequest.run_s`, so in all
        questions to the sites (GUIM 8.3); the job that is then submitted has the user's estimate.
    pulls : whether the model is centralised: jobs wait in one queue of the dispatcher, and in its
        order a job is assigned when it would start at once, to one of the sites where no earlier
        job waits.
    """

    __slots__ = ()

    predicts: ClassVar[bool] = False
    pulls: ClassVar[bool] = False

    def assign(self, request: SiteRequest, sites: Sequence[AskedSite]) -> Choice:
        """Choose between the sites that can run a job, of which there is at least one."""
        raise NotImplementedError(f"{type(self).__name__} has no method assign")


def takes_seed(policy: type) -> bool:
    """Whether the policies of a class draw, because they have a parameter `seed`."""
    return any("seed" in get_annotations(each) for each in policy.__mro__)


def run_s(request: SiteRequest, site: AskedSite) -> float:
    """Expected run time of a job on a site, s."""
    return request.run_s * site.cpu_factor


def cost(request: SiteRequest, site: AskedSite) -> float:
    """Expected cost of a job on a site (GUIM 8.6.3): price times processors times hours."""
    return site.price * request.spec.processors * run_s(request, site) / 3600.0


def slowdown(request: SiteRequest, site: AskedSite) -> float:
    """Expected slowdown of a job on a site (GUIM 8.6.5): (run time + wait) / run time."""
    expected_s = run_s(request, site)
    return (expected_s + site.wait_s(request)) / expected_s
