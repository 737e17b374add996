"""``reshape history``: list ended jobs, or the resizes of one job."""

from __future__ import annotations

from pathlib import Path

import click

from reshape.cli.options import WholeRange, example
from scheduler.client import tables
from scheduler.client.api.asking import ask, list_jobs, number_of
from scheduler.client.api.completion import complete_jobs
from scheduler.client.columns import JobFormat, history_format
from scheduler.client.commands import echo_json
from scheduler.client.listing.options import format_option, noheader_option
from scheduler.client.options import (
    JOB,
    MOMENT,
    json_option,
    parsable_option,
    service_option,
)
from scheduler.model.arrays import JobName
from scheduler.protocol import messages as m
from scheduler.protocol.client import expect
from scheduler.text.tables import render


@click.command()
@service_option
@click.option("--since", type=MOMENT, help="List jobs that ended at this time or later.")
@click.option("--until", type=MOMENT, help="List jobs that ended at this time or earlier.")
@click.option("--user", help="List jobs of this user.")
@click.option("--state", help="List jobs in this final state, such as FAILED or F.")
@click.option("--name", help="List jobs of this name.")
@click.option(
    "--limit",
    type=WholeRange(1, 1000),
    default=500,
    show_default=True,
    help="Largest number of jobs to list: the ones that ended last.",
)
@click.option("--before", type=JOB, help="List jobs that ended before this one.")
@format_option
@noheader_option
@json_option
@parsable_option
@click.argument("job", type=JOB, required=False, shell_complete=complete_jobs)
@example(
    "reshape history --user ann --since 2026-05-01",
    "reshape history --format jobid,state,elapsed,exitcode",
    "reshape history last",
)
def history(
    directory: Path,
    since: float | None,
    until: float | None,
    user: str | None,
    state: str | None,
    name: str | None,
    limit: int,
    before: JobName | None,
    columns: JobFormat | None,
    noheader: bool,
    as_json: bool,
    parsable: bool,
    job: JobName | None,
) -> None:
    """List ended jobs and their sizes, or all resizes of one JOB with phases in milliseconds.

    Times are local: 2026-05-01, 2026-05-01T12:00 or 2026-05-01T12:00:30. If more jobs match than
    --limit, a message says how to list the earlier ones. EXITCODE is code:signal. The job computes
    during START; it pauses for CLOSE, JOIN, PLAN, MOVE and RESUME.
    """
    for option, is_set in (("--format", columns is not None), ("--noheader", noheader)):
        if is_set and (as_json or job is not None):
            other = "--json" if as_json else "JOB"
            raise click.UsageError(f"{option} has no effect with {other}: leave one of them out")
    if job is not None:
        listing = list_jobs(directory, job=number_of(directory, job))
        if as_json:
            echo_json(listing.jobs[0].resizes)
        else:
            click.echo(render(tables.resize_table(listing.jobs[0]), parsable))
        return
    query = m.ListJobs(
        ended=True,
        live=False,
        since=since,
        until=until,
        user=user,
        state=state,
        name=name,
        limit=limit,
        before=None if before is None else number_of(directory, before),
    )
    page = expect(m.JobListing, ask(directory, query, timeout=30.0))
    if as_json:
        echo_json({"now": page.now, "jobs": page.jobs, "before": page.before})
        return
    form = history_format() if columns is None else columns
    text = form.render(page.jobs, page.now, parsable=parsable, heads=not noheader)
    if text:
        click.echo(text)
    if page.before is not None:
        click.echo(f"reshape: more jobs ended earlier: --before {page.before}", err=True)
