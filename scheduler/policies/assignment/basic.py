"""Task assignment without a question about the job: random, in turn, by origin (GUIM 8.2.2)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import msgspec

from scheduler.policies.assignment.interface import AskedSite, Choice, SiteRequest


@dataclass
class Random:
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
class LessSubmittedJobs:
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
        chosen = sites[following % len(sites)]
        self._last = chosen.name
        return chosen


class HomeSite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Submit each job to the site where its user would submit it; the sites stay separate.

    A job without an origin, or whose origin cannot run it, goes to the first site that can.
    """

    def assign(self, request: SiteRequest, sites: Sequence[AskedSite]) -> Choice:
        """Choose the origin."""
        return next((site for site in sites if site.name == request.origin), sites[0])


class CentralQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One queue for all sites, from which they pull a job when they can start it (GUIM 8.2.2)."""

    pulls: ClassVar[bool] = True

    def assign(self, request: SiteRequest, sites: Sequence[AskedSite]) -> Choice:
        """Choose the first of the sites that can start the job now."""
        return sites[0]
