"""Results of the demonstration of sites: metrics of each run, and their table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from statistics import fmean
from typing import NamedTuple

import msgspec
from sites_workload import DemoSite

from scheduler.client.columns import waited_s
from scheduler.client.commands.stats import stats_of
from scheduler.client.demo.command import is_verified
from scheduler.protocol.messages import JobInfo
from scheduler.text.tables import Table


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


class SitesRunMetrics(msgspec.Struct, frozen=True):
    """Metrics of the run by one metric.

    Parameters
    ----------
    jobs, jobs_verified : number of jobs, and of those that verified their own result.
    jobs_by_site : name of each site -> number of its jobs.
    sites_of_jobs : name of the site of each job, in the order of the workload.
    mean_wait_s : mean time from submission to start.
    mean_slowdown : mean of turnaround divided by run time, of the jobs that started; None if no job
        did.
    makespan_s : time from the first submission to the last end.
    cost : processors times seconds times the cost of a processor for a second, of all jobs.
    page : path of the page that shows all sites.
    """

    jobs: int
    jobs_verified: int
    jobs_by_site: dict[str, int]
    sites_of_jobs: list[str]
    mean_wait_s: float
    mean_slowdown: float | None
    makespan_s: float
    cost: float
    page: str = ""


class SitesResults(msgspec.Struct, frozen=True):
    """Results of the demonstration, as written to results.json; `metrics` by name of the metric."""

    seed: int
    scenario: str
    sites: list[DemoSite]
    metrics: dict[str, SitesRunMetrics]


def measure_sites(run: SiteRun, sites: Sequence[DemoSite]) -> SitesRunMetrics:
    """Compute the metrics of a run whose jobs have all ended."""
    begin = min(job.submitted_at for job in run.jobs)
    end = max(job.ended_at or inf for job in run.jobs)
    slowdowns = [found for job in run.jobs if (found := _slowdown(job)) is not None]
    return SitesRunMetrics(
        jobs=len(run.jobs),
        jobs_verified=sum(map(is_verified, run.jobs)),
        jobs_by_site={site.name: run.sites.count(site.name) for site in sites},
        sites_of_jobs=run.sites,
        mean_wait_s=fmean(waited_s(job, end) for job in run.jobs),
        mean_slowdown=fmean(slowdowns) if slowdowns else None,
        makespan_s=end - begin,
        cost=sum(
            site.cost_per_unit
            * (end - begin)
            * site.processors
            * stats_of(run.at(site.name), begin, end, site.processors).utilization
            for site in sites
        ),
    )


def _slowdown(job: JobInfo) -> float | None:
    """Turnaround divided by run time; None for a job that did not start."""
    if job.started_at is None or job.ended_at is None or job.ended_at <= job.started_at:
        return None
    return (job.ended_at - job.submitted_at) / (job.ended_at - job.started_at)


def sites_table(sites: Sequence[DemoSite]) -> Table:
    """Table of the sites."""
    columns: dict[str, Callable[[DemoSite], object]] = {
        "SITE": lambda site: site.name,
        "PROCESSORS": lambda site: site.processors,
        "CPU FACTOR": lambda site: f"{site.cpu_factor:g}",
        "COST PER PROCESSOR-SECOND": lambda site: f"{site.cost_per_unit:g}",
    }
    return Table.of(sites, columns, "SITE")


def metrics_table(metrics: Mapping[str, SitesRunMetrics], names: Sequence[str]) -> Table:
    """Table of the runs, a row for each metric; times in seconds.

    Parameters
    ----------
    names : of the sites.
    """
    heads = ("METRIC", *(f"JOBS {name}" for name in names))
    heads += ("MEAN WAIT s", "MEAN SLOWDOWN", "MAKESPAN s", "COST", "VERIFIED")
    rows = [
        (
            metric,
            *(str(its.jobs_by_site[name]) for name in names),
            f"{its.mean_wait_s:.1f}",
            "-" if its.mean_slowdown is None else f"{its.mean_slowdown:.2f}",
            f"{its.makespan_s:.1f}",
            f"{its.cost:.0f}",
            f"{its.jobs_verified} of {its.jobs}",
        )
        for metric, its in metrics.items()
    ]
    return Table(heads, rows, frozenset({"METRIC"}))
