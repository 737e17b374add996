"""SITA: jobs are assigned by their expected run times, short ones to the smallest site.

Size interval task assignment with equal load (SITA-E, Crovella, Harchol-Balter and Murta), and with
purposely unequal load (SITA-U, Schroeder and Harchol-Balter): GUIM 8.2.2. All need cut-offs between
the intervals, which are fitted to jobs of the past (`simulator.many_centres.run`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

import msgspec

from reshape.errors import ConfigError
from scheduler.policies.assignment.interface import AskedSite, Choice, SiteRequest

Fit: TypeAlias = Literal["equal-load", "slowdown", "fairness"]


class Sita(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
