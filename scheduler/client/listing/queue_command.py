"""``reshape queue``: list queued and running jobs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from reshape.cli.options import example
from scheduler.client.administration.pools import paused_sentences
from scheduler.client.api import operations
from scheduler.client.api.client import Client
from scheduler.client.columns import JobFormat, queue_format, sorted_jobs
from scheduler.client.commands import echo_json
from scheduler.client.forecasting import expected_starts, looked_ahead, starts_table
from scheduler.client.listing.options import (
    choice_options,
    chosen,
    format_option,
    noheader_option,
    sort_option,
)
from scheduler.client.options import (
    WALLTIME,
    is_given,
    json_option,
    parsable_option,
    service_option,
    sites_option,
)
from scheduler.client.sites import actions
from scheduler.text.tables import render

WATCH_S = 2.0


@click.command()
@service_option
@click.option("--all", "ended", is_flag=True, help="Include ended jobs, at most the last 1000.")
@click.option("--steps", is_flag=True, help="Include the steps of jobs, such as 17.0.")
@click.option("--watch", is_flag=True, help=f"Refresh every {WATCH_S:g} s until Ctrl-C.")
@click.option("--start", "starts", is_flag=True, help="Show the expected start of each queued job.")
@click.option("--horizon", type=WALLTIME, help="With --start: longest time to look ahead.")
@choice_options
@format_option
@sort_option
@noheader_option
@sites_option
@json_option
@parsable_option
@example(
    "reshape queue --watch",
    "reshape queue --me --sort -start",
    "reshape queue --format jobid,name:20,size,time_left",
)
def queue(
    directory: Path,
    ended: bool,
    steps: bool,
    watch: bool,
    starts: bool,
    horizon: float | None,
    columns: JobFormat | None,
    order: str | None,
    noheader: bool,
    sites: Path | None,
    as_json: bool,
    parsable: bool,
    **choice: Any,
) -> None:
    """List queued and running jobs.

    States: PD pending, CF starting, R running, RX expanding, RC contracting, CG completing; with
    --all also CD completed, F failed, CA cancelled, TO timeout, NF node failure.
    """
    _check(sites, starts, as_json, horizon)

    def show() -> None:
        if sites is not None:
            actions.list_all(sites, ended=ended, as_json=as_json, parsable=parsable)
            return
        with Client(directory) as service:
            listing = service.run(operations.list_jobs(ended=ended, steps=steps))
            jobs = chosen(directory, listing.jobs, **choice)
            if not (starts or as_json) and (columns is None or columns.has_starts):
                jobs = service.run(operations.with_expected_starts(jobs))
        if order is not None:
            jobs = sorted_jobs(jobs, order, listing.now)
        if starts:
            listed = {job.job for job in jobs}
            known = expected_starts(directory, horizon)
            forecasts, ahead_s = [f for f in known.jobs if f.job in listed], known.looked_ahead_s
            if as_json:
                echo_json({"now": listing.now, "jobs": forecasts, "looked_ahead_s": ahead_s})
            else:
                click.echo(render(starts_table(forecasts, jobs, listing.now), parsable))
                if ahead_s is not None and any(job.start is None for job in forecasts):
                    click.echo(f"reshape: {looked_ahead(ahead_s)}", err=True)
        elif as_json:
            echo_json({"now": listing.now, "jobs": jobs})
        else:
            form = queue_format(jobs) if columns is None else columns
            text = form.render(jobs, listing.now, parsable=parsable, heads=not noheader)
            if text:
                click.echo(text)
        if not as_json:
            for sentence in paused_sentences(directory):
                click.echo(sentence, err=True)

    show()
    while watch:
        time.sleep(WATCH_S)
        click.clear()
        show()


def _check(sites: Path | None, starts: bool, as_json: bool, horizon: float | None) -> None:
    """Refuse options that would have no effect."""
    context = click.get_current_context()
    form = [f"--{name}" for name in ("format", "sort", "noheader")]
    given = dict(zip(form, ("columns", "order", "noheader"), strict=True))
    choice = ("user", "me", "name", "partition")
    given |= {f"--{name}": name for name in choice} | {"--state": "states", "--jobs": "numbers"}
    given = {option: name for option, name in given.items() if is_given(context, name)}
    if sites is not None and (starts or given):
        first = "--start" if starts else next(iter(given))
        raise click.UsageError(f"{first} is for one service; leave --sites out, and give --dir")
    if horizon is not None and not starts:
        raise click.UsageError("--horizon needs --start")
    for option in form:
        if option in given and starts:
            raise click.UsageError(f"{option} has no effect with --start: leave one of them out")
        if option in given and as_json and option != "--sort":
            raise click.UsageError(f"{option} has no effect with --json: leave one of them out")
