"""The dispatcher of a job: the sites that it asks, and the policy.

One `Dispatcher` serves all jobs of a simulation, but it keeps nothing of one job for the next,
except predictions of run times (GUIM 8.4).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar, cast

import msgspec

from reshape.errors import ConfigError, ReshapeError, check_ranges
from scheduler.model.job import COMPLETED, Job
from scheduler.model.job_view import ReadOnly, is_ours, reads, shown
from scheduler.policies.assignment.interface import AskedSite, Assignment, Choice, SiteRequest
from scheduler.policies.containment import failure
from scheduler.predictions.estimates import Estimates
from scheduler.predictions.predictor import Predictor

S = TypeVar("S", bound=AskedSite)


class DispatchRules(msgspec.Struct, frozen=True):
    """What a dispatcher does besides choosing.

    Parameters
    ----------
    ask : number of sites that are asked, drawn among those that can run the job; None: all.
    affinity : draw sites with the job's origin always among them.

    Raises
    ------
    ValueError : `ask` is below 1.
    """

    ask: int | None = None
    affinity: bool = False

    def __post_init__(self) -> None:
        """Check the number."""
        check_ranges(self, ask=">= 1")


class Dispatcher:
    """Assigns jobs to sites.

    Parameters
    ----------
    assignment : task assignment policy.
    rules : see `DispatchRules`.
    estimates : source of predictions, for policies that use them.
    seed : of the draws of the sites that are asked.

    Raises
    ------
    ConfigError : the policy redefines an attribute of `Assignment` and does not derive from it.
    """

    def __init__(
        self,
        assignment: Assignment,
        rules: DispatchRules | None = None,
        estimates: Estimates | None = None,
        seed: int = 1,
    ) -> None:
        _check_base(assignment)
        self._assignment = assignment
        self._rules = DispatchRules() if rules is None else rules
        self._generator = random.Random(seed)
        self._predictor: Predictor | None = None
        predicts = isinstance(assignment, Assignment) and assignment.predicts
        if predicts and estimates is not None:
            self._predictor = estimates.predictor()
        self._running: dict[int, tuple[Job, float]] = {}  # predicted jobs, CPU factors

    @property
    def pulls(self) -> bool:
        """Whether jobs wait in a queue of the dispatcher; see `Assignment`."""
        return isinstance(self._assignment, Assignment) and self._assignment.pulls

    def expected_s(self, job: Job) -> float:
        """Run time to expect of a job that is being submitted, on CPU factor 1, s."""
        if self._predictor is None:
            return job.spec.walltime_s
        self._running[job.id] = job, 1.0
        return max(1.0, self._predictor.predict(shown(job)))

    def choose(self, request: SiteRequest, sites: Sequence[S]) -> list[S]:
        """Sites to which a job is submitted, of those that can run it; there is at least one."""
        asked, count = list(sites), self._rules.ask
        if count is not None and count < len(asked):
            asked = self._drawn(request, asked, count)
        answering: Sequence[AskedSite] = asked
        if not is_ours(self._assignment):
            answering = [cast("AskedSite", ShownSite(site)) for site in asked]
        by_name = {site.name: site for site in asked}
        return [by_name[site.name] for site in self._chosen(request, answering)]

    def _chosen(self, request: SiteRequest, sites: Sequence[AskedSite]) -> list[AskedSite]:
        """Sites that the policy chooses.

        Raises
        ------
        ReshapeError : a user-defined policy fails, or returns something else; it names its line.
        """
        try:
            choice: Choice = self._assignment.assign(request, sites)
            choices = list(choice) if isinstance(choice, Sequence) else [choice]
            if not choices or not all(site in sites for site in choices):
                raise TypeError(f"it returned {choice!r}, and not one or several of the sites")
            return choices
        except (Exception, SystemExit) as error:
            if is_ours(self._assignment) or isinstance(error, ReshapeError):
                raise
            raise failure("assignment", self._assignment, "assign", error) from error

    def started(self, job: int, at: float, site: AskedSite) -> None:
        """Note that a job started at a site, at a time (s)."""
        if job in self._running:
            running_job = self._running[job][0]
            running_job.started_at = at
            self._running[job] = running_job, site.cpu_factor

    def ended(self, job: int, at: float) -> None:
        """Learn the run time of a job, as on CPU factor 1."""
        if self._predictor is None or job not in self._running:
            return
        ended_job, cpu_factor = self._running.pop(job)
        assert ended_job.started_at is not None
        ended_job.ended_at = ended_job.started_at + (at - ended_job.started_at) / cpu_factor
        ended_job.state = COMPLETED
        self._predictor.ended(shown(ended_job))

    def _drawn(self, request: SiteRequest, sites: list[S], count: int) -> list[S]:
        """Draw this many of the sites; they keep their order."""
        always = [site for site in sites if self._rules.affinity and site.name == request.origin]
        others = [site for site in sites if site not in always]
        drawn = always + self._generator.sample(others, count - len(always))
        return [site for site in sites if site in drawn]


class ShownSite(ReadOnly):
    """A site as a user-defined task assignment policy sees it: it asks, and changes nothing."""

    __slots__ = ()
    _own: AskedSite

    def __repr__(self) -> str:
        """Name it."""
        return f"site {self._own.name}"


reads(ShownSite, [name for name in vars(AskedSite) if not name.startswith("_")])


def _check_base(policy: object) -> None:
    """Refuse attributes that would have no effect."""
    for name in ("predicts", "pulls"):
        if not isinstance(policy, Assignment) and hasattr(policy, name):
            kind = type(policy).__name__
            raise ConfigError(
                f"{kind}.{name} has no effect: derive {kind} from"
                " scheduler.policies.assignment.interface.Assignment"
            )
