"""Questions to several services at once, and their answers as a task assignment policy sees them.

Each site is asked in a thread of its own; one that does not answer by the deadline is passed over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TypeVar

import msgspec

from reshape.errors import ReshapeError
from scheduler.client.api.client import Client, forecast
from scheduler.client.sites.sites_file import Site
from scheduler.forecasts.answers import Quote
from scheduler.model.job import JobState
from scheduler.policies.assignment.interface import SiteRequest
from scheduler.protocol import messages as m

T = TypeVar("T")


class SiteAnswers:
    """What a site answered, as an `AskedSite`.

    Parameters
    ----------
    description : of the site.
    info : state of its service, with the processors of the nodes that are up.
    quoted : quote for the job.
    queued_jobs : its queued jobs.
    """

    def __init__(
        self, description: Site, info: m.Info, quoted: Quote, queued_jobs: Sequence[m.JobInfo] = ()
    ) -> None:
        self.description, self.info, self.quoted = description, info, quoted
        self.name, self.processors = description.name, info.processors
        self.cpu_factor, self.price = description.cpu_factor, description.price
        self._queued_jobs = queued_jobs

    def submitted(self) -> int:
        """Number of jobs that were submitted to the site so far."""
        return self.info.queued + self.info.running + self.info.ended

    def queued(self) -> int:
        """Number of queued jobs."""
        return self.info.queued

    def free(self) -> int:
        """Number of free processors."""
        return self.info.free

    def work_left(self) -> float:
        """Work of the queued jobs, processor-seconds."""
        return sum(job.requested * job.walltime_s for job in self._queued_jobs)

    def load(self) -> float:
        """Processors that live and queued jobs hold or request, divided by those of the site."""
        held = self.processors - self.info.free
        requested = sum(job.requested for job in self._queued_jobs)
        return (held + requested) / max(1, self.processors)

    def wait_s(self, request: SiteRequest, at_most_s: float = inf) -> float:
        """Quoted wait, s; inf if the job does not start within the horizon of the service."""
        return inf if self.quoted.wait_s is None else self.quoted.wait_s

    def turnaround_s(self, request: SiteRequest) -> float:
        """Quoted time to the end, s; inf if the job does not end within the horizon."""
        return inf if self.quoted.end is None else self.quoted.end - self.quoted.now


def at_site(submission: m.Submission, site: Site) -> m.Submission:
    """Submission as a site gets it: the walltime is multiplied by the CPU factor."""
    walltime_s = submission.walltime_s * site.cpu_factor
    return msgspec.structs.replace(submission, walltime_s=walltime_s)


def collect(
    sites: Sequence[Site], submission: m.Submission, deadline_s: float
) -> tuple[list[SiteAnswers], dict[str, str]]:
    """Ask all sites about a job.

    Returns
    -------
    answers of the sites that can run the job, in their order; name of each other site -> why it is
    passed over
    """

    def ask(site: Site, client: Client) -> SiteAnswers:
        sent = at_site(submission, site)
        info = client.info(deadline_s)
        queued = [job for job in client.queue() if job.state == JobState.PENDING.name]
        quoted = forecast(client, m.RequestForecast(of=sent), Quote, deadline_s)
        return SiteAnswers(site, info, quoted, queued)

    answers, failed = at_once(sites, ask, deadline_s)
    return list(answers.values()), failed


def at_once(
    sites: Sequence[Site], question: Callable[[Site, Client], T], deadline_s: float
) -> tuple[dict[str, T], dict[str, str]]:
    """Call a function for all sites at once, each in a thread of its own.

    Returns
    -------
    results by name of the site, in the order of the sites; and the errors by name
    """
    results: dict[str, T] = {}
    errors: dict[str, str] = {}

    def run(site: Site) -> None:
        try:
            with Client(site.service) as client:
                results[site.name] = question(site, client)
        except ReshapeError as error:
            errors[site.name] = str(error)

    threads = [threading.Thread(target=run, args=(site,), daemon=True) for site in sites]
    until = time.monotonic() + deadline_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    done, failed = dict(results), dict(errors)
    for site in sites:
        if site.name not in done and site.name not in failed:
            failed[site.name] = f"did not answer within {deadline_s:g} s"
    return {site.name: done[site.name] for site in sites if site.name in done}, failed


def away_lines(failed: Mapping[str, str]) -> list[str]:
    """Write a note on each site that is passed over."""
    return [f"reshape: site {name} is passed over: {why}" for name, why in failed.items()]
