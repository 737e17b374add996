"""What the commands do with ``--sites``: submit to the best site, and list, wait, cancel, explain.

Exit codes besides those of the commands: 3 if no site takes the job, 4 if it is not known whether
the chosen site has accepted it.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path

import click

from reshape.errors import ReshapeError, nearest
from scheduler.client.api.client import Client, list_jobs
from scheduler.client.api.service_option import opened
from scheduler.client.columns import queue_format
from scheduler.client.forecasting import slowdown_text
from scheduler.client.options import JobRange, echo_json
from scheduler.client.sites.answers import SiteAnswers, at_once, away_lines, collect
from scheduler.client.sites.sites_file import read_sites
from scheduler.client.sites.submitting import (
    OutcomeUnknownError,
    SubmissionRecord,
    check_key,
    ranked,
    request_of,
    retry,
    submit_to_best,
)
from scheduler.policies.assignment.interface import SiteRequest, cost
from scheduler.protocol import messages as m
from scheduler.text.formats import format_moment, format_time
from scheduler.text.tables import Table, render

#: Exit codes of `submit --sites`.
NO_SITE, NOT_KNOWN = 3, 4


def service_at(service: Client, sites: Path | None, job: JobRange) -> Client:
    """Return the service that has a job or a range of jobs: of a site, or the one of --dir.

    Raises
    ------
    ReshapeError : a job without a site and --sites, or the reverse; or there is no such site.
    """
    if sites is None:
        if job.site:
            raise ReshapeError(f"{job}: give --sites FILE, which names the site {job.site}")
        return service
    site_list = read_sites(sites)
    if not job.site:
        raise ReshapeError(f"{job}: with --sites write SITE:JOB")
    site = site_list.named(job.site)
    if site is None:
        names = [other.name for other in site_list.sites]
        raise ReshapeError(f"{sites} has no site {job.site!r}{nearest(job.site, names)}")
    return opened(site.service)


def submit_job(
    file: Path,
    submission: m.Submission,
    metric: str,
    max_cost: float | None,
    key: str | None,
    *,
    test_only: bool,
    as_json: bool,
) -> SubmissionRecord | None:
    """Ask all sites, show their answers, and submit to the best one; None with `test_only`.

    The process ends with exit code 3 or 4 if no job was accepted for sure.
    """
    sites = read_sites(file)
    key = secrets.token_hex(8) if key is None else key
    check_key(key)
    request = request_of(submission, inf if max_cost is None else max_cost)
    answers, failed = collect(sites.sites, submission, sites.deadline_s)
    order, left_out = ranked(metric, request, answers)
    failed |= left_out
    if test_only:
        _show(request, answers, order, failed, as_json)
        if not order:
            sys.exit(NO_SITE)
        return None
    for line in away_lines(failed):
        click.echo(line, err=True)
    try:
        accepted, refused = submit_to_best(order, submission, key, sites.deadline_s)
    except OutcomeUnknownError as error:
        click.echo(f"reshape: {error}", err=True)
        sys.exit(NOT_KNOWN)
    for line in away_lines(refused):
        click.echo(line, err=True)
    if accepted is None:
        click.echo("reshape: no site takes the job; nothing was submitted", err=True)
        sys.exit(NO_SITE)
    return accepted


def retry_job(file: Path, key: str) -> SubmissionRecord:
    """Repeat a submission; exit code 4 if the outcome remains unknown."""
    try:
        return retry(key, read_sites(file).deadline_s)
    except OutcomeUnknownError as error:
        click.echo(f"reshape: {error}", err=True)
        sys.exit(NOT_KNOWN)


def _show(
    request: SiteRequest,
    answers: Sequence[SiteAnswers],
    order: Sequence[SiteAnswers],
    failed: dict[str, str],
    as_json: bool,
) -> None:
    """Print the alternatives; the first one is where the job would be submitted."""
    rows = [*order, *(site for site in answers if site not in order)]
    if as_json:
        data = {
            "chosen": order[0].name if order else None,
            "sites": [
                {
                    "site": site.name,
                    "quote": site.quoted,
                    "queued": site.queued(),
                    "work_left": site.work_left(),
                    "cost": cost(request, site),
                }
                for site in rows
            ],
            "passed_over": failed,
        }
        echo_json(data)
        return
    columns: dict[str, Callable[[SiteAnswers], object]] = {
        "SITE": lambda site: site.name,
        "START": lambda site: format_moment(site.quoted.start),
        "WAIT": lambda site: format_time(site.quoted.wait_s),
        "END": lambda site: format_moment(site.quoted.end),
        "SLOWDOWN": lambda site: slowdown_text(site.quoted),
        "COST": lambda site: f"{cost(request, site):.6g}",
        "QUEUED": lambda site: site.queued(),
        "WORK": lambda site: f"{site.work_left():.0f}",
        "NOTE": lambda site: failed.get(site.name, ""),
    }
    heads, lines, left = Table.of(rows, columns, "SITE NOTE")
    names = {site.name for site in rows}
    away = [(name, *("-",) * 7, why) for name, why in failed.items() if name not in names]
    click.echo(render(Table(heads, [*lines, *away], left)))
    if order:
        click.echo(f"the job would be submitted to {order[0].name}")


def list_all(file: Path, *, ended: bool, as_json: bool) -> None:
    """List the jobs of all sites; those that are away get a note."""
    sites = read_sites(file)
    listings, failed = at_once(
        sites.sites, lambda _, client: list_jobs(client, ended=ended), sites.deadline_s
    )
    if as_json:
        data = {
            "sites": {
                name: {"now": jobs.now, "jobs": jobs.jobs} for name, jobs in listings.items()
            },
            "passed_over": failed,
        }
        echo_json(data)
        return
    rows: list[Sequence[str]] = []
    all_jobs = [job for listing in listings.values() for job in listing.jobs]
    columns = queue_format(all_jobs)
    for name, listing in listings.items():
        rows += [(name, *row) for row in columns.table(listing.jobs, listing.now).rows]
    head, _, left = columns.table([], 0.0)
    click.echo(render(Table(("SITE", *head), rows, left=left | {"SITE"})))
    for line in away_lines(failed):
        click.echo(line, err=True)
