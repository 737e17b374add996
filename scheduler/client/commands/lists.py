"""``reshape queue`` and ``reshape history``: list jobs that wait or run, or have ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from reshape.cli.options import ParsedText, WholeRange, example
from reshape.errors import ReshapeError, nearest
from scheduler.client.administration.nodes import paused_sentences
from scheduler.client.api.client import (
    MOST_ENDED,
    PAGE,
    Client,
    forecast,
    list_jobs,
    numbers_of,
)
from scheduler.client.api.client import history as history_page
from scheduler.client.api.service_option import (
    complete_jobs,
    complete_partitions,
    service_option,
)
from scheduler.client.columns import (
    HISTORY,
    ListingFormat,
    choose,
    has_task,
    queue_format,
    sorted_jobs,
    states_in,
)
from scheduler.client.forecasting import looked_ahead, starts_table, with_expected_starts
from scheduler.client.options import (
    JOB,
    JOBS,
    MOMENT,
    WALLTIME,
    JobRange,
    echo_json,
    json_option,
    refuse_given,
    sites_option,
)
from scheduler.client.sites import actions
from scheduler.forecasts.answers import Starts
from scheduler.model.arrays import JobName
from scheduler.model.job import JobState
from scheduler.model.procset import ProcSet
from scheduler.protocol import messages as m
from scheduler.protocol.messages import JobInfo
from scheduler.text.formats import format_moment
from scheduler.text.tables import render

WATCH_S = 2.0
#: Short name of a state -> long name.
STATES = {state.value: state.name for state in JobState}
#: Parameters of options that concern columns, and of those that only one service has.
_OF_COLUMNS = ("columns", "noheader")
_OF_ONE_SERVICE = (
    *("starts", "steps", "user", "me", "name", "partition", "state", "numbers", "order"),
    *_OF_COLUMNS,
)

format_option = click.option(
    "--format",
    "-o",
    "columns",
    type=ParsedText("FORMAT", ListingFormat.parse, ListingFormat),
    help="Columns: by names as in jobid,state:20 (docs/listings.md lists them), or by letters of"
    " squeue, as in '%i %.10T'.",
)
noheader_option = click.option("--noheader", is_flag=True, help="Leave out the headings.")


def _matching(
    service: Client,
    jobs: Sequence[JobInfo],
    *,
    user: str | None,
    me: bool,
    numbers: list[JobRange] | None,
    partition: str | None,
    **choices: Any,
) -> list[JobInfo]:
    """Choose jobs by the options of `queue`.

    Raises
    ------
    ReshapeError : a task or step that `numbers` names does not exist, or a partition that neither
        the service nor one of the jobs has.
    """
    users = [name for name in (user, service.user if me else None) if name is not None]
    choices["partition"] = partition
    matching = choose(jobs, user=",".join(users) if users else None, **choices)
    if partition is not None:
        names = {part.name for part in service.info().partitions}
        names |= {job.partition for job in jobs if job.partition}
        for name in partition.split(","):
            if name not in names:
                raise ReshapeError(f"there is no partition {name!r}{nearest(name, names)}")
    if numbers is None:
        return matching
    wanted = ProcSet.union(_numbers(service, named) for named in numbers)
    spans = wanted.intervals
    return [
        job
        for job in matching
        if job.job in wanted or any(has_task(job, first, last) for first, last in spans)
    ]


def _numbers(service: Client, named: JobRange) -> ProcSet:
    """Numbers of the jobs that a range stands for, or a name."""
    if named.last is None:
        return numbers_of(service, service.job(named.first))
    first = named.first.job
    return ProcSet.span(first, named.last + 1 - first)


@click.command()
@service_option
@click.option("--all", "ended", is_flag=True, help="Include ended jobs, at most the last 1000.")
@click.option("--steps", is_flag=True, help="Include the steps of jobs, such as 17.0.")
@click.option("--watch", is_flag=True, help=f"Refresh every {WATCH_S:g} s until Ctrl-C.")
@click.option("--start", "starts", is_flag=True, help="Show the expected start of each queued job.")
@click.option("--horizon", type=WALLTIME, help="With --start: longest time to look ahead.")
@click.option("--user", "-u", metavar="USERS", help="List jobs of these users.")
@click.option("--me", is_flag=True, help="List your own jobs.")
@click.option(
    "--state",
    "-t",
    type=ParsedText("STATES", lambda text: states_in(text, STATES), set),
    help="List jobs in these states.",
)
@click.option("--name", "-n", metavar="NAMES", help="List jobs of these names.")
@click.option(
    "--partition",
    "-p",
    metavar="NAMES",
    help="List jobs of these partitions.",
    shell_complete=complete_partitions,
)
@click.option(
    "--jobs",
    "-j",
    "numbers",
    type=JOBS,
    shell_complete=complete_jobs,
    help="List these jobs, as in 3,5-8,17_4.",
)
@format_option
@click.option(
    "--sort",
    "-S",
    "order",
    metavar="FIELDS",
    help="Order of the jobs: names of columns; a '-' before a name: from high to low.",
)
@noheader_option
@sites_option
@json_option
@example(
    "reshape queue --watch",
    "reshape queue --me --sort -start",
    "reshape queue --format jobid,name:20,size,time_left",
)
def queue(
    service: Client,
    ended: bool,
    steps: bool,
    watch: bool,
    starts: bool,
    horizon: float | None,
    columns: ListingFormat | None,
    order: str | None,
    noheader: bool,
    sites: Path | None,
    as_json: bool,
    **choice: Any,
) -> None:
    """List queued and running jobs.

    States: PD pending, CF starting, R running, RX expanding, RC contracting, CG completing; with
    --all also CD completed, F failed, CA cancelled, TO timeout, NF node failure.
    """
    _refuse_without_effect(sites, starts, as_json)

    def show() -> None:
        if sites is not None:
            actions.list_all(sites, ended=ended, as_json=as_json)
            return
        listing = list_jobs(service, ended=ended, steps=steps)
        jobs = _matching(service, listing.jobs, **choice)
        if not (starts or as_json) and (columns is None or columns.has_starts):
            jobs = with_expected_starts(service, jobs)
        if order is not None:
            jobs = sorted_jobs(jobs, order, listing.now)
        if starts:
            listed = {job.job for job in jobs}
            expected = forecast(service, m.RequestForecast(horizon_s=horizon), Starts)
            forecasts, ahead_s = (
                [f for f in expected.jobs if f.job in listed],
                expected.looked_ahead_s,
            )
            if as_json:
                echo_json({"now": listing.now, "jobs": forecasts, "looked_ahead_s": ahead_s})
            else:
                click.echo(render(starts_table(forecasts, jobs, listing.now)))
                if ahead_s is not None and any(job.start is None for job in forecasts):
                    click.echo(f"reshape: {looked_ahead(ahead_s)}", err=True)
        elif as_json:
            echo_json({"now": listing.now, "jobs": jobs})
        else:
            form = queue_format(jobs) if columns is None else columns
            text = form.render(jobs, listing.now, heads=not noheader)
            if text:
                click.echo(text)
        if not as_json:
            for sentence in paused_sentences(service):
                click.echo(sentence, err=True)

    show()
    while watch:
        time.sleep(WATCH_S)
        click.clear()
        show()


def _refuse_without_effect(sites: Path | None, starts: bool, as_json: bool) -> None:
    """Refuse options of `queue` that would have no effect."""
    if sites is not None:
        refuse_given(_OF_ONE_SERVICE, "is for one service; leave --sites out, and give --dir")
    if starts:
        refuse_given((*_OF_COLUMNS, "order"), "has no effect with --start: leave one of them out")
    else:
        refuse_given(("horizon",), "needs --start")
    if as_json:
        refuse_given(_OF_COLUMNS, "has no effect with --json: leave one of them out")


@click.command()
@service_option
@click.option("--since", type=MOMENT, help="List jobs that ended at this time or later.")
@click.option("--until", type=MOMENT, help="List jobs that ended at this time or earlier.")
@click.option("--user", help="List jobs of this user.")
@click.option("--state", help="List jobs in this final state, such as FAILED or F.")
@click.option("--name", help="List jobs of this name.")
@click.option(
    "--limit",
    type=WholeRange(1, PAGE),
    default=MOST_ENDED,
    show_default=True,
    help="Largest number of jobs to list: the ones that ended last.",
)
@click.option("--before", type=JOB, help="List jobs that ended before this one.")
@format_option
@noheader_option
@json_option
@example(
    "reshape history --user ann --since 2026-05-01",
    "reshape history --format jobid,state,elapsed,exitcode",
)
def history(
    service: Client,
    before: JobName | None,
    columns: ListingFormat | None,
    noheader: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """List ended jobs and their sizes.

    Times are local: 2026-05-01, 2026-05-01T12:00, 12:00 of today, or now-2days. If more jobs match
    than --limit, a message says how to list the earlier ones. EXITCODE is code:signal. 'reshape
    info' lists the resizes of a job.
    """
    if as_json:
        refuse_given(_OF_COLUMNS, "has no effect with --json: leave one of them out")
    since, until = options["since"], options["until"]
    if since is not None and until is not None and until < since:
        raise click.UsageError(
            f"the time from {format_moment(since)} to {format_moment(until)} is empty"
        )
    options["before"] = None if before is None else service.job(before).number
    page = history_page(service, options)
    if as_json:
        echo_json({"now": page.now, "jobs": page.jobs, "before": page.before})
        return
    form = ListingFormat.parse(HISTORY) if columns is None else columns
    text = form.render(page.jobs, page.now, heads=not noheader)
    if text:
        click.echo(text)
    if page.before is not None:
        click.echo(f"reshape: more jobs ended earlier: --before {page.before}", err=True)
