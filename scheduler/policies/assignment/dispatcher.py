"""The dispatcher of a job: the sites that it asks, the age of their answers, and the policy.

One `Dispatcher` serves all jobs of a simulation, but it keeps nothing of one job for the next,
except predictions of run times and, if answers may be old, the answers (GUIM 8.4 and 9.1).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Literal, TypeVar

import msgspec

from reshape.errors import ConfigError
from scheduler.model.job import COMPLETED, Job
from scheduler.model.job_view import is_ours, shown
from scheduler.policies.assignment.interface import (
    AskedSite,
    Assignment,
    Choice,
    SiteRequest,
    run_s,
)
from scheduler.predictions.estimates import Estimates
from scheduler.predictions.predictor import Predictor

S = TypeVar("S", bound=AskedSite)


class DispatchRules(msgspec.Struct, frozen=True):
    """What a dispatcher does besides choosing.

    Parameters
    ----------
    ask : number of sites that are asked, drawn among those that can run the job; None: all.
    affinity : draw sites with the job's origin always among them.
    stale_s : answers of a site may be this old, s; 0: each is asked again.
    waits : ask the sites for a "quote", or take the mean wait of the latest jobs of a site of
        about the same size from "history", for sites that give no quotes.
    seed : of the draws.

    Raises
    ------
    ValueError : a number is out of range.
    """

    ask: int | None = None
    affinity: bool = False
    stale_s: float = 0.0
    waits: Literal["quote", "history"] = "quote"
    seed: int = 1

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.ask is not None and self.ask < 1:
            raise ValueError(f"ask must be >= 1, got {self.ask}")
        if not self.stale_s >= 0:
            raise ValueError(f"stale_s must be >= 0, got {self.stale_s}")


class Dispatcher:
    """Assigns jobs to sites.

    Parameters
    ----------
    assignment : task assignment policy.
    rules : see `DispatchRules`.
    estimates : source of predictions, for policies that use them.

    Raises
    ------
    ConfigError : the policy redefines an attribute of `Assignment` and does not derive from it.
    """

    def __init__(
        self,
        assignment: Assignment,
        rules: DispatchRules | None = None,
        estimates: Estimates | None = None,
    ) -> None:
        _check_base(assignment)
        self._assignment = assignment
        self._rules = DispatchRules() if rules is None else rules
        self._generator = random.Random(self._rules.seed)
        self._predictor: Predictor | None = None
        predicts = isinstance(assignment, Assignment) and assignment.predicts
        if predicts and estimates is not None:
            self._predictor = estimates.predictor()
        self._running: dict[int, tuple[Job, float]] = {}  # predicted jobs, CPU factors
        self._old: dict[str, OldAnswers] = {}
        self._history: dict[str, PastWaits] = {}

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

    def choose(self, request: SiteRequest, sites: Sequence[S], now: float) -> list[S]:
        """Sites to which a job is submitted, of those that can run it; there is at least one.

        Parameters
        ----------
        now : present time, s.
        """
        asked: list[S] = list(sites)
        rules = self._rules
        if rules.ask is not None and rules.ask < len(asked):
            asked = self._drawn(request, asked, rules.ask)
        answering: Sequence[AskedSite] = asked
        if rules.stale_s:
            answering = [self._old_answers(site, now) for site in asked]
        elif rules.waits == "history":
            answering = [self._past_waits(site) for site in asked]
        if not is_ours(self._assignment):
            answering = [ShownSite(site) for site in answering]
        choice: Choice = self._assignment.assign(request, answering)
        choices = list(choice) if isinstance(choice, Sequence) else [choice]
        by_name = {site.name: site for site in asked}
        return [by_name[site.name] for site in choices]

    def started(self, job: int, at: float, wait_s: float, processors: int, site: AskedSite) -> None:
        """Note that a job started at a site, at a time (s) and after a wait (s)."""
        if self._rules.waits == "history":
            self._past_waits(site).add(processors, wait_s)
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

    def _old_answers(self, site: AskedSite, now: float) -> OldAnswers:
        """Answers of a site that are not older than allowed."""
        answers = self._old.get(site.name)
        if answers is None or now - answers.at > self._rules.stale_s:
            answers = self._old[site.name] = OldAnswers(site, now)
        return answers

    def _past_waits(self, site: AskedSite) -> PastWaits:
        past_waits = self._history.get(site.name)
        if past_waits is None:
            past_waits = self._history[site.name] = PastWaits(site)
        return past_waits


class ShownSite:
    """A site as a user-defined task assignment policy sees it: it asks, and changes nothing."""

    __slots__ = ("_site",)

    def __init__(self, site: AskedSite) -> None:
        self._site = site

    @property
    def name(self) -> str:
        """Name of the site."""
        return self._site.name

    @property
    def processors(self) -> int:
        """Number of processors."""
        return self._site.processors

    @property
    def cpu_factor(self) -> float:
        """Factor of all run times on the site."""
        return self._site.cpu_factor

    @property
    def price(self) -> float:
        """Cost of a processor for an hour."""
        return self._site.price

    def submitted(self) -> int:
        """Number of jobs that were submitted to the site so far."""
        return self._site.submitted()

    def queued(self) -> int:
        """Number of queued jobs."""
        return self._site.queued()

    def free(self) -> int:
        """Number of free processors."""
        return self._site.free()

    def work_left(self) -> float:
        """Work of the queued jobs, processor-seconds."""
        return self._site.work_left()

    def load(self) -> float:
        """Load of the site."""
        return self._site.load()

    def wait_s(self, request: SiteRequest, at_most_s: float = inf) -> float:
        """Wait that the site quotes for a job, s."""
        return self._site.wait_s(request, at_most_s)

    def turnaround_s(self, request: SiteRequest) -> float:
        """Time to the end that the site quotes for a job, s."""
        return self._site.turnaround_s(request)


class PastWaits(ShownSite):
    """A site whose waits are predicted from those of its latest jobs.

    Sizes between two powers of 2 form a class; a class without jobs has a wait of 0.
    """

    __slots__ = ("_waits",)

    LATEST = 20

    def __init__(self, site: AskedSite) -> None:
        super().__init__(site)
        self._waits: dict[int, deque[float]] = {}

    def add(self, processors: int, wait_s: float) -> None:
        """Add the wait of a job that started, s."""
        kind = processors.bit_length()
        self._waits.setdefault(kind, deque(maxlen=self.LATEST)).append(wait_s)

    def wait_s(self, request: SiteRequest, at_most_s: float = inf) -> float:
        """Mean wait of the latest jobs of this size class, s."""
        waits = self._waits.get(request.spec.processors.bit_length())
        return sum(waits) / len(waits) if waits else 0.0

    def turnaround_s(self, request: SiteRequest) -> float:
        """Mean wait and expected run time, s."""
        return self.wait_s(request) + run_s(request, self)


class OldAnswers(ShownSite):
    """A site whose answers are those of an earlier time.

    Its quote for a request is that of the last request of the same number of processors.

    Parameters
    ----------
    at : time of the answers, s.
    """

    __slots__ = ("_measures", "_numbers", "_waits", "at")

    def __init__(self, site: AskedSite, at: float) -> None:
        super().__init__(site)
        self.at = at
        self._numbers = site.submitted(), site.queued(), site.free()
        self._measures = site.work_left(), site.load()
        self._waits: dict[int, float] = {}

    def submitted(self) -> int:
        """Number of submitted jobs at that time."""
        return self._numbers[0]

    def queued(self) -> int:
        """Number of queued jobs at that time."""
        return self._numbers[1]

    def free(self) -> int:
        """Number of free processors at that time."""
        return self._numbers[2]

    def work_left(self) -> float:
        """Work of the queued jobs at that time, processor-seconds."""
        return self._measures[0]

    def load(self) -> float:
        """Load at that time."""
        return self._measures[1]

    def wait_s(self, request: SiteRequest, at_most_s: float = inf) -> float:
        """Wait of the first request of this size since that time, s."""
        size = request.spec.processors
        if size not in self._waits:
            self._waits[size] = self._site.wait_s(request)
        return self._waits[size]

    def turnaround_s(self, request: SiteRequest) -> float:
        """Wait as of that time, and expected run time, s."""
        return self.wait_s(request) + run_s(request, self)


def _check_base(policy: object) -> None:
    """Refuse attributes that would have no effect."""
    for name in ("predicts", "pulls"):
        if not isinstance(policy, Assignment) and hasattr(policy, name):
            kind = type(policy).__name__
            raise ConfigError(
                f"{kind}.{name} has no effect: derive {kind} from"
                " scheduler.policies.assignment.interface.Assignment"
            )
