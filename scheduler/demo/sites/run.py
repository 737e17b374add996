"""Send a workload to several sites by one metric, and wait until all jobs have ended."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console

from reshape.errors import ReshapeError
from reshape.wire.messages import JobInfo, Jobs
from scheduler.client.asking import list_jobs
from scheduler.client.sites import records
from scheduler.client.sites.answers import SiteAnswers, at_once, away_lines, collect
from scheduler.client.sites.submitting import AcceptedJob, ranked, request_of, submit_to_best
from scheduler.client.submission import prepare
from scheduler.config.sites_file import SitesFile
from scheduler.demo.progress import RunProgress
from scheduler.demo.run import LONGEST_S, LOOK_S
from scheduler.demo.sites.services import DemoSite, running_sites
from scheduler.demo.sites.workload import SiteDemoJob
from scheduler.dispatch.metrics import QUOTED
from scheduler.model.procset import ProcSet

#: File with the `AskedJob` of each job, in the order of the workload.
CHOICES = "choices.json"


class AskedJob(msgspec.Struct, frozen=True):
    """A job of a run, the site that got it, and when the sites answered; see CHOICES.

    Parameters
    ----------
    site, job : where it was submitted, and its number there.
    asked_at : time of the latest answer on which the choice rests, Unix seconds.
    """

    site: str
    job: int
    asked_at: float


class SiteRun(NamedTuple):
    """A run of the workload by one metric.

    Parameters
    ----------
    metric : by which the sites were chosen.
    sites : name of the site of each job, in the order of the workload.
    jobs : the ended jobs, numbered from 1 in the order of the workload; their processors are
        numbered within their sites.
    """

    metric: str
    sites: list[str]
    jobs: list[JobInfo]

    def at(self, site: str) -> list[JobInfo]:
        """Jobs of one site."""
        return [job for job, name in zip(self.jobs, self.sites, strict=True) if name == site]


def run_by_metric(
    metric: str,
    workload: Sequence[SiteDemoJob],
    sites: Sequence[DemoSite],
    scenario: str,
    folder: Path,
    console: Console,
) -> SiteRun:
    """Start the sites, send each job to the best one by a metric, and wait for all jobs.

    Parameters
    ----------
    folder : working directory of the jobs, with sites.yaml and the journals of the sites.
    console : for the progress, and for notes on sites that do not answer.

    Raises
    ------
    ReshapeError : the folder cannot be created, a service cannot be started or is lost, no site
        takes a job, or the run exceeds its time limit.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReshapeError(f"directory {folder} cannot be created: {error.strerror}") from None
    total = sum(site.processors for site in sites)
    with (
        _own_records(),
        running_sites(list(sites), scenario, folder) as found,
        RunProgress(console, f"by {metric}", total) as progress,
    ):
        return _Run(metric, workload, sites, found, folder, console).to_the_end(progress)


@contextlib.contextmanager
def _own_records() -> Iterator[None]:
    """Keep the submission records in a temporary folder instead of that of the user."""
    before = os.environ.get(records.VARIABLE)
    with tempfile.TemporaryDirectory(prefix="reshape-demo-") as folder:
        os.environ[records.VARIABLE] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ[records.VARIABLE]
            else:
                os.environ[records.VARIABLE] = before


def _asked_at(metric: str, answers: Sequence[SiteAnswers]) -> float:
    """Time of the latest answer, by the clocks of the services, Unix seconds."""
    quoted = metric in QUOTED
    return max(each.quoted.now if quoted else each.info.now for each in answers)


class _Run:
    """A run in progress; the parameters are those of `run_by_metric`, `found` is the sites file."""

    def __init__(
        self,
        metric: str,
        workload: Sequence[SiteDemoJob],
        sites: Sequence[DemoSite],
        found: SitesFile,
        folder: Path,
        console: Console,
    ) -> None:
        self._metric, self._workload, self._sites = metric, workload, sites
        self._found, self._folder, self._console = found, folder, console
        self._accepted: list[AcceptedJob] = []
        self._asked: list[AskedJob] = []

    def to_the_end(self, progress: RunProgress) -> SiteRun:
        """Submit the jobs at their times, and wait until all have ended."""
        began = time.monotonic()
        while True:
            coming = self._workload[len(self._accepted) :]
            passed = time.monotonic() - began
            if coming and coming[0].at_s <= passed:
                self._accepted.append(self._submit(coming[0]))
                continue
            jobs = self._list()
            progress(passed, Jobs(now=time.time(), jobs=self._side_by_side(jobs)), len(coming))
            if not coming and all(job.ended_at is not None for job in jobs):
                (self._folder / CHOICES).write_bytes(msgspec.json.encode(self._asked))
                return SiteRun(self._metric, [each.site for each in self._accepted], jobs)
            if passed > LONGEST_S:
                late = ", ".join(str(job.job) for job in jobs if job.ended_at is None)
                raise ReshapeError(f"jobs {late} have not ended within {LONGEST_S:.0f} s")
            next_at = coming[0].at_s if coming else passed + LOOK_S
            time.sleep(max(0.0, min(LOOK_S, next_at - (time.monotonic() - began))))

    def _submit(self, job: SiteDemoJob) -> AcceptedJob:
        """Ask all sites, and submit a job to the best one that accepts it."""
        submission = prepare(
            job.argv(1.0),
            job.processors,
            walltime_s=job.walltime_s,
            output=f"job-{len(self._accepted) + 1}.out",
            environment=os.environ,
            cwd=self._folder.absolute(),
        )
        deadline_s = self._found.deadline_s
        answers, failed = collect(self._found.sites, submission, deadline_s)
        order, left_out = ranked(self._metric, request_of(submission), answers)
        failed |= left_out
        too_small = {site.name for site in self._sites if site.processors < job.processors}
        for line in away_lines({name: failed[name] for name in failed if name not in too_small}):
            self._console.print(line, highlight=False, soft_wrap=True)
        for site in order:
            paced = msgspec.structs.replace(submission, argv=job.argv(site.cpu_factor))
            accepted, refused = submit_to_best([site], paced, records.new_key(), deadline_s)
            if accepted is not None:
                self._asked.append(
                    AskedJob(accepted.site, accepted.job, _asked_at(self._metric, answers))
                )
                return accepted
            failed |= refused
        why = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise ReshapeError(f"no site takes job {len(self._accepted) + 1}: {why}")

    def _list(self) -> list[JobInfo]:
        """List the submitted jobs, numbered from 1 in the order of their submission."""
        listings, failed = at_once(
            self._found.sites,
            lambda site: list_jobs(site.place, ended=True),
            self._found.deadline_s,
        )
        for name, why in failed.items():
            raise ReshapeError(f"site {name}: {why}")
        by_name = {
            (name, job.job): job for name, listing in listings.items() for job in listing.jobs
        }
        return [
            msgspec.structs.replace(by_name[each.site, each.job], job=number)
            for number, each in enumerate(self._accepted, 1)
        ]

    def _side_by_side(self, jobs: Sequence[JobInfo]) -> list[JobInfo]:
        """Name the sites of jobs and number their processors as those of one machine."""
        first, offset = {}, 0
        for site in self._sites:
            first[site.name] = offset
            offset += site.processors
        return [
            msgspec.structs.replace(
                job,
                name=f"{each.site}:{each.job}",
                processors=str(
                    ProcSet.of(
                        number + first[each.site] for number in ProcSet.parse(job.processors)
                    )
                ),
            )
            for job, each in zip(jobs, self._accepted, strict=True)
        ]
