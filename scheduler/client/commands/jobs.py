"""Commands about the jobs of a service: describe, explain, change and end them.

`info` describes the service, too, and `stop` ends it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import click

from reshape.cli.lazy_group import FAILED
from reshape.cli.options import example
from reshape.errors import ReshapeError
from reshape.times import in_local_time
from reshape.wire.access import read_access
from reshape.wire.connection import is_access_file
from scheduler.client import tables
from scheduler.client.api.client import (
    Client,
    change_jobs,
    explanation,
    list_jobs,
    read_output,
)
from scheduler.client.api.service_option import complete_jobs, service_option
from scheduler.client.background import stop as stop_service
from scheduler.client.columns import STEPS, ListingFormat
from scheduler.client.forecasting import forecast_of_waiting, waiting_lines
from scheduler.client.options import (
    JOB,
    JOBS,
    JOBS_AT_SITES,
    SITE_JOB,
    JobRange,
    echo_json,
    json_option,
    sites_option,
)
from scheduler.client.requests.job_options import change_options
from scheduler.client.sites.actions import service_at
from scheduler.model.arrays import JobName
from scheduler.model.job import JobState
from scheduler.model.requests import signal_name, signal_number
from scheduler.protocol import messages as m
from scheduler.text.formats import format_moment
from scheduler.text.plain import plain

#: Steps that `info` lists at most, those that were requested last.
MOST_STEPS = 100
#: Seconds between two looks at an output that is followed.
FOLLOW_S = 0.5


@click.command()
@service_option
@json_option
@click.argument("job", type=JOB, required=False, shell_complete=complete_jobs)
@example("reshape info", "reshape info last --json")
def info(service: Client, as_json: bool, job: JobName | None) -> None:
    """Show the service with its nodes and scenario, or one JOB in full, with its steps.

    The list of resizes has the length of each phase in milliseconds; the job computes during
    START. MIB is the data that moved, SPARE the memory that the processes kept beside it.
    """
    if job is not None:
        listing = list_jobs(service, service.job(job).number)
        if as_json:
            echo_json(listing.jobs[0])
            return
        click.echo(tables.job_text(listing.jobs[0], listing.now))
        if numbers := [number for _, number in listing.jobs[0].steps]:
            steps = [list_jobs(service, number).jobs[0] for number in numbers[-MOST_STEPS:]]
            click.echo("\n" + ListingFormat.parse(STEPS).render(steps, listing.now))
        return
    answer = service.info()
    if as_json:
        echo_json(
            {name: getattr(answer, name) for name in answer.__struct_fields__ if name != "id"}
        )
    else:
        click.echo(tables.service_text(answer))


@click.command()
@service_option
@sites_option
@json_option
@click.argument("job", type=SITE_JOB, shell_complete=complete_jobs)
@example("reshape explain 3", "reshape explain --sites sites.yaml left:3")
def explain(service: Client, sites: Path | None, as_json: bool, job: JobRange) -> None:
    """Explain why JOB waits, where it started, and why it was resized or not.

    For a job that waits it also shows the expected start and the requests, of fewer processors or a
    shorter walltime, with which it would start earlier.
    """
    service = service_at(service, sites, job)
    answer = explanation(service, service.job(job.first).number)
    listing = list_jobs(service, answer.job)
    [info] = listing.jobs
    if not as_json:  # at once: a forecast takes a while, or fails
        click.echo(tables.answer_text(info, answer.lines, listing.now))
        for line in answer.lines:
            after = f"{line.at - answer.lines[0].at:+9.3f} s"
            text = plain(in_local_time(line.text))
            click.echo(f"{format_moment(line.at)}  {after}  {text}")
    waiting = None
    try:
        if info.state == JobState.PENDING.name:
            waiting = forecast_of_waiting(service, answer.job)
    except ReshapeError as error:
        click.echo(f"reshape: there is no forecast of job {answer.job}: {error}", err=True)
    if as_json:
        data = {"job": answer.job, "lines": answer.lines}
        echo_json(data if waiting is None else {**data, "waiting": waiting})
        return
    for text in [] if waiting is None else waiting_lines(waiting):
        click.echo(in_local_time(text))
    if told := tables.last_lines_text(info):
        click.echo(told)


@click.command()
@service_option
@click.option("-f", "--follow", is_flag=True, help="Print new output until the job has ended.")
@click.option("--error", "-e", "is_error", is_flag=True, help="Print the standard error instead.")
@click.argument("job", type=JOB, shell_complete=complete_jobs)
@example("reshape output 3", "reshape output -f last")
def output(service: Client, follow: bool, is_error: bool, job: JobName) -> None:
    """Print the output of JOB, from a file that this host reaches.

    The standard error is a part of it, unless the job was submitted with --error.
    """
    number = service.job(job).number
    stream, printed = sys.stdout.buffer, 0
    while True:
        info = list_jobs(service, number).jobs[0]  # before the file is read for the last time
        try:
            text = read_output(info, is_error, printed)
        except ReshapeError as error:
            is_missing = isinstance(error.__cause__, FileNotFoundError)
            if not (follow and is_missing and info.ended_at is None):
                raise
            text = b""
        stream.write(text)
        stream.flush()
        printed += len(text)
        if not follow or info.ended_at is not None:
            return
        if not text:
            time.sleep(FOLLOW_S)


@click.command()
@service_option
@click.option("--kill", is_flag=True, help="End queued and running jobs, too.")
@example("reshape stop")
def stop(service: Client, kill: bool) -> None:
    """Stop the scheduler service; without --kill it refuses while jobs are queued or running."""
    stop_service(service.service, kill=kill)
    click.echo(f"service of {service.service} has ended")


@click.command()
@service_option
@click.option("--all", "everything", is_flag=True, help="Cancel all queued and running jobs.")
@click.option("--user", help="Cancel the queued and running jobs of this user.")
@click.option("--name", help="Cancel the queued and running jobs of this name.")
@click.option(
    "--signal",
    "-s",
    metavar="SIGNAL",
    help="Send this signal to the processes of running jobs, and cancel nothing.",
)
@click.option("--batch", "-b", is_flag=True, help="With --signal: send it to the job script alone.")
@sites_option
@click.argument(
    "jobs", nargs=-1, metavar="[JOB...]", type=JOBS_AT_SITES, shell_complete=complete_jobs
)
@example(
    "reshape cancel 3,5 8-12",
    "reshape cancel --user ann --name solve.py",
    "reshape cancel --signal USR1 3",
    "reshape cancel --sites sites.yaml left:3",
)
def cancel(
    service: Client,
    everything: bool,
    user: str | None,
    name: str | None,
    signal: str | None,
    batch: bool,
    sites: Path | None,
    jobs: tuple[list[JobRange], ...],
) -> None:
    """Cancel jobs, queued or running, or send a signal to their processes.

    All jobs are cancelled at one moment, so that none of them starts in place of another.
    A range such as 8-12 means its jobs that have not ended. With an access file of the
    role user, --all means the jobs of this user. The exit code is 1 if a job cannot be cancelled;
    the others are cancelled nevertheless.
    """
    selectors = [option for option, value in (("--all", everything), ("JOB", jobs)) if value]
    selectors += ["--user and --name"] if user is not None or name is not None else []
    if len(selectors) != 1:
        raise click.UsageError(
            f"give one of {' or '.join(selectors)}"
            if selectors
            else "give JOB, --all, --user or --name"
        )
    if sites is not None and not jobs:
        raise click.UsageError(f"{selectors[0]} addresses one service: leave --sites out")
    change = _cancellation(signal, to_script=batch)
    if jobs:
        flat = [job for group in jobs for job in group]
        by_site = {job.site: [other for other in flat if other.site == job.site] for job in flat}
        done = [
            _change_ranges(service_at(service, sites, jobs[0]), site, jobs, change)
            for site, jobs in by_site.items()
        ]
    else:
        own = _user_of(service.service) if everything else user
        done = [_change_at(service, "", [], matching(service, user=own, name=name), change)]
    if not all(done):
        sys.exit(FAILED)


def _user_of(service: Path) -> str | None:
    """User of an access file of the role user; None: the jobs of all users may be cancelled."""
    access = read_access(service) if is_access_file(service) else None
    return access.user if access is not None and access.role == "user" else None


def _cancellation(signal: str | None, *, to_script: bool) -> m.CancelJob | m.SignalJob:
    """Return what is to be done with each job: to cancel it, or to send it a signal."""
    if signal is None:
        if to_script:
            raise click.UsageError("--batch needs --signal")
        return m.CancelJob()
    try:
        return m.SignalJob(signal_number(signal), to_script)
    except ValueError as error:
        raise click.UsageError(f"--signal: {error}") from None


def _change_ranges(
    service: Client, site: str, jobs: Sequence[JobRange], change: m.JobChange
) -> bool:
    """Change jobs of one service; return whether that was done for all."""
    named = [service.job(job.first).named for job in jobs if job.last is None]
    spans = [(job.first.job, job.last) for job in jobs if job.last is not None]
    return _change_at(service, site, named, matching(service, spans) if spans else [], change)


def matching(
    service: Client,
    spans: Sequence[tuple[int, float]] = ((1, inf),),
    *,
    user: str | None = None,
    name: str | None = None,
) -> list[m.JobTasks]:
    """Queued and running jobs with numbers within spans, of a user and a name if given."""
    return [
        m.JobTasks(job.job)
        for job in list_jobs(service).jobs
        if any(first <= job.job <= last for first, last in spans)
        and user in (None, job.user)
        and name in (None, job.name)
    ]


def _change_at(
    service: Client,
    site: str,
    named: Sequence[m.JobTasks],
    unended: Sequence[m.JobTasks],
    change: m.JobChange,
) -> bool:
    """Change jobs of one service; return whether that was done for all.

    Parameters
    ----------
    named : jobs that the command line names one by one: one that has ended is an error.
    unended : jobs that had not ended when they were listed.
    """
    jobs = list(dict.fromkeys([*named, *unended]))
    if not jobs:
        click.echo("reshape: no queued or running job matches", err=True)
        return True
    refused = change_jobs(service, jobs, change)
    if isinstance(change, m.SignalJob):
        done = f"sent {signal_name(change.number)} to"
    else:
        done = change.told
    for job in jobs:
        if job not in refused:
            click.echo(f"{done} job {site}{':' * bool(site)}{job}")
    if refused.keys() - {*named}:
        live = set(matching(service))
        refused = {job: why for job, why in refused.items() if job in named or job in live}
    for message in refused.values():
        click.echo(f"reshape: error: {in_local_time(message)}", err=True)
    return not refused


_jobs = click.argument(
    "jobs",
    nargs=-1,
    required=True,
    metavar="JOB...",
    type=JOBS,
    shell_complete=complete_jobs,
)


@click.command()
@service_option
@_jobs
@example("reshape hold 3", "reshape hold 5-8,12")
def hold(service: Client, jobs: tuple[list[JobRange], ...]) -> None:
    """Hold queued jobs: they do not start until they are released.

    A range such as 5-8 means its jobs that have not ended.
    """
    _change_all(service, jobs, m.HoldJob())


@click.command()
@service_option
@_jobs
@example("reshape release 3")
def release(service: Client, jobs: tuple[list[JobRange], ...]) -> None:
    """Release held jobs. Only an administrator releases what an administrator has held."""
    _change_all(service, jobs, m.ReleaseJob())


@click.command()
@service_option
@_jobs
@example("reshape requeue 3")
def requeue(service: Client, jobs: tuple[list[JobRange], ...]) -> None:
    """End running jobs and queue them again, where they keep their places.

    A program that writes checkpoints restarts from its latest one.
    """
    _change_all(service, jobs, m.RequeueJob())


@click.command()
@service_option
@change_options
@click.argument("job", type=JOB, shell_complete=complete_jobs)
@example("reshape update 3 --walltime 2h", "reshape update 4 --dependency afterok:3")
def update(service: Client, job: JobName, **changes: Any) -> None:
    """Change the request of JOB: all of these options while it is queued.

    Of a running job --max, --name, --priority and --walltime can be changed; only an administrator
    can raise the walltime. A change that is not possible changes nothing.
    """
    number = service.job(job).number
    service.ask(m.ChangeJobs.one(number, m.UpdateJob(**changes)), m.Done)
    click.echo(f"updated job {number}")


def _change_all(service: Client, ranges: tuple[list[JobRange], ...], change: m.JobChange) -> None:
    """Change jobs of one service; the exit code is 1 if one of them cannot be changed."""
    jobs = [job for group in ranges for job in group]
    if not _change_ranges(service, "", jobs, change):
        sys.exit(FAILED)
