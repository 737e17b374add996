"""A run of several live sites, simulated from their journals to compare the choices of site.

The simulated centres have the scenarios and processors of the services. Jobs are submitted when
they were submitted live and run as long as they ran. At the time at which the sites were asked
about a job, the dispatcher is asked, and its choice is compared with the recorded one. The job then
goes where it went live, so that every choice is compared in the state in which it was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from reshape.errors import ReshapeError
from scheduler.client.sites.sites_file import SiteDescription, SitesFile, metric_of
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.events import Event, JobSpec, JobSubmitted, Wakeup
from scheduler.model.job import FINAL, Job
from scheduler.model.orders import Order
from scheduler.policies.assignment.dispatcher import Dispatcher
from scheduler.policies.assignment.interface import AskedSite, Assignment, Choice, SiteRequest
from scheduler.replay.journal_reader import JournalReader, reading
from scheduler.virtual_clock.agenda import Agenda
from scheduler.virtual_clock.loop import EventLoop
from simulator.engine.centre_jobs import CentreJobs
from simulator.many_centres.centres import Centres
from simulator.many_centres.centres_file import CentreDescription


class RecordedSiteJob(NamedTuple):
    """A job of a live run of several sites.

    Parameters
    ----------
    site, job : where it ran, and its number there.
    spec : its request, with the walltime on CPU factor 1.
    submitted_s, asked_s : when it was submitted, and when the sites were asked about it, in seconds
        from the first question.
    run_s : its run time on CPU factor 1.
    """

    site: str
    job: int
    spec: JobSpec
    submitted_s: float
    asked_s: float
    run_s: float


class RecordedSites(NamedTuple):
    """A live run of several sites: the centres that imitate them, and the jobs as submitted."""

    centres: list[CentreDescription]
    jobs: list[RecordedSiteJob]


class ComparedChoice(msgspec.Struct, frozen=True):
    """The choice of a site for a job, live and simulated.

    Parameters
    ----------
    live : the job as the commands name it, SITE:JOB.
    at_s : time of the question, s from the first one.
    processors : of the job.
    simulated : name of the site that the dispatcher chooses in the simulation.
    waits_s : name of each site that can run the job -> quoted wait in the simulation.
    """

    live: str
    at_s: float
    processors: int
    simulated: str
    waits_s: dict[str, float]

    @property
    def is_same(self) -> bool:
        """Whether both choices are the same."""
        return self.live.rpartition(":")[0] == self.simulated


def read_run(
    sites: SitesFile, folder: Path, asked: Mapping[tuple[str, int], float]
) -> RecordedSites:
    """Read the journals of a run.

    Parameters
    ----------
    folder : with a journal NAME.db for each site; where there is none, that of the service is read.
    asked : (site, job) -> time of the question about it, Unix seconds; others were asked about when
        they were submitted.

    Raises
    ------
    ReshapeError : there is no journal, or a job is resizable, was started twice or has not ended.
    """
    centres, recorded = [], []
    for site in sites.sites:
        copied = folder / f"{site.name}.db"
        with reading(copied if copied.exists() else site.service) as journal:
            centres.append(_centre(site, journal))
            recorded += [(site, job) for job in journal.recorded_jobs() if _ran(site, job)]
    if not recorded:
        raise ReshapeError(f"the journals of the sites in {folder} have no job that ran")
    recorded.sort(key=lambda pair: pair[1].submitted_at)
    times = [min(job.submitted_at, asked.get((s.name, job.id), inf)) for s, job in recorded]
    first, jobs = min(times), []
    for (site, job), asked_at in zip(recorded, times, strict=True):
        spec = msgspec.structs.replace(job.spec, walltime_s=job.spec.walltime_s / site.cpu_factor)
        run_s = ((job.ended_at or 0.0) - (job.started_at or 0.0)) / site.cpu_factor
        at_s = job.submitted_at - first
        jobs.append(RecordedSiteJob(site.name, job.id, spec, at_s, asked_at - first, run_s))
    return RecordedSites(centres, jobs)


def compare_choices(run: RecordedSites, metric: str) -> list[ComparedChoice]:
    """Simulate a recorded run, and compare the choices of a metric with the recorded ones.

    Parameters
    ----------
    metric : a name of `scheduler.client.sites.sites_file.METRICS`, or ``module:Class``.

    Raises
    ------
    ConfigError : there is no such policy.
    """
    site = _AskedCentres(run, metric_of(metric))
    agenda = Agenda()
    for job in run.jobs:
        agenda.add(Wakeup(job.asked_s))
    physics = CentreJobs(agenda, [job.run_s for job in run.jobs], site.cpu_factors)
    times = [job.submitted_s for job in run.jobs]
    EventLoop(site, times, [job.spec for job in run.jobs], agenda, physics).run()
    return site.choices


class _RecordedAssignment:
    """Task assignment that sends each job where it went live."""

    def __init__(self, jobs: Sequence[RecordedSiteJob]) -> None:
        self._jobs = jobs

    def assign(self, request: SiteRequest, sites: Sequence[AskedSite]) -> Choice:
        """Choose the recorded site."""
        return next(site for site in sites if site.name == self._jobs[request.job - 1].site)


class _AskedCentres(Centres):
    """Centres about which a second dispatcher is asked at the recorded times.

    Attributes
    ----------
    choices : of that dispatcher, in the order of the questions.
    """

    def __init__(self, run: RecordedSites, assignment: Assignment) -> None:
        super().__init__(run.centres, Dispatcher(_RecordedAssignment(run.jobs)))
        self.choices: list[ComparedChoice] = []
        self._asking = Dispatcher(assignment)
        numbered = enumerate(run.jobs, 1)
        self._open = sorted(numbered, key=lambda pair: (pair[1].asked_s, pair[0]), reverse=True)

    def handle(self, events: Sequence[Event]) -> list[Order]:
        """Handle what happens at an instant; a question comes after ends and before submissions."""
        submitted = [event for event in events if type(event) is JobSubmitted]
        orders = super().handle([event for event in events if type(event) is not JobSubmitted])
        self.now = max(self.now, *(event.at for event in events))
        while self._open and self._open[-1][1].asked_s <= self.now:
            self._ask(*self._open.pop())
        return orders + super().handle(submitted) if submitted else orders

    def _ask(self, number: int, job: RecordedSiteJob) -> None:
        """Ask the dispatcher about a job."""
        request = SiteRequest(number, job.spec, job.spec.walltime_s)
        able = [centre for centre in self.centres if centre.processors >= job.spec.processors]
        chosen = self._asking.choose(request, able, self.now)[0]
        self.choices.append(
            ComparedChoice(
                f"{job.site}:{job.job}",
                job.asked_s,
                job.spec.processors,
                chosen.name,
                {centre.name: centre.wait_s(request) for centre in able},
            )
        )


def _centre(site: SiteDescription, journal: JournalReader) -> CentreDescription:
    """Centre that imitates the service of a journal."""
    state = RecordedState.of_journal(journal, 0.0)
    processors = state.core().machine.installed
    return CentreDescription(
        site.name, processors, state.scenario, site.cpu_factor, 1.0, site.price
    )


def _ran(site: SiteDescription, job: Job) -> bool:
    """Whether a job ran; one that was withdrawn or cancelled before its start did not.

    Raises
    ------
    ReshapeError : it cannot be simulated with its recorded run time.
    """
    name = f"job {site.name}:{job.id}"
    if job.spec.step_of is not None:  # it ran within its job
        return False
    if job.state not in FINAL:
        raise ReshapeError(f"{name} has not ended: wait for it, then compare")
    if job.spec.resizable:
        raise ReshapeError(f"{name} is resizable: only runs of rigid jobs can be compared")
    if job.requeues or job.redirected_at is not None:
        raise ReshapeError(f"{name} was started twice, so that it has no single run time")
    return job.started_at is not None


def asked_times(choices: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], float]:
    """Read the times of questions from the contents of the choices.json of a demonstration."""
    return {(choice["site"], choice["job"]): choice["asked_at"] for choice in choices}
