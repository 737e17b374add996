"""Commands that send requests to a service about its jobs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from reshape.cli.options import example
from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.times import in_local_time
from scheduler.client import tables
from scheduler.client.api.asking import (
    ask,
    ask_all,
    complete_jobs,
    list_jobs,
    number_of,
    service_info,
)
from scheduler.client.api.client import read_output
from scheduler.client.background import stop as stop_service
from scheduler.client.columns import steps_format
from scheduler.client.forecasting import (
    forecast_of_waiting,
    waiting_lines,
)
from scheduler.client.options import (
    JOB,
    echo_json,
    json_option,
    service_option,
    sites_option,
)
from scheduler.client.sites import actions
from scheduler.model.arrays import JobName
from scheduler.protocol import messages as m
from scheduler.protocol.client import expect
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
def info(directory: Path, as_json: bool, job: JobName | None) -> None:
    """Show the service with its nodes and scenario, or one JOB in full, with its steps.

    The list of resizes has the length of each phase in milliseconds; the job computes during
    START. MIB is the data that moved, SPARE the memory that the processes kept beside it.
    """
    if job is not None:
        listing = list_jobs(directory, job=number_of(directory, job))
        if as_json:
            echo_json(listing.jobs[0])
            return
        click.echo(tables.job_text(listing.jobs[0], listing.now))
        if numbers := [number for _, number in listing.jobs[0].steps]:
            shown = ask_all(directory, (m.ListJobs(job=n) for n in numbers[-MOST_STEPS:]))
            steps = [each.jobs[0] for each in shown if isinstance(each, m.JobListing)]
            click.echo("\n" + steps_format().render(steps, listing.now))
        return
    answer = service_info(directory)
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
@click.argument("job", type=actions.SITE_JOB, shell_complete=complete_jobs)
@example("reshape explain 3", "reshape explain --sites sites.yaml left:3")
def explain(directory: Path, sites: Path | None, as_json: bool, job: actions.SiteJob) -> None:
    """Explain why JOB waits, where it started, and why it was resized or not.

    For a job that waits it also shows the expected start and the requests, of fewer processors or a
    shorter walltime, with which it would start earlier.
    """
    directory = actions.service_of(directory, sites, job)
    answer = expect(m.Explanation, ask(directory, m.Explain(job=number_of(directory, job.job))))
    try:
        waiting = forecast_of_waiting(directory, answer.job)
    except ServiceUnavailable:
        raise
    except ReshapeError as error:
        click.echo(f"reshape: there is no forecast of job {answer.job}: {error}", err=True)
        waiting = None
    if as_json:
        data = {"job": answer.job, "lines": answer.lines}
        echo_json(data if waiting is None else {**data, "waiting": waiting})
        return
    listing = list_jobs(directory, job=answer.job)
    [info] = listing.jobs
    click.echo(tables.answer_text(info, answer.lines, listing.now))
    for line in answer.lines:
        after = f"{line.at - answer.lines[0].at:+9.3f} s"
        click.echo(f"{format_moment(line.at)}  {after}  {plain(in_local_time(line.text))}")
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
def output(directory: Path, follow: bool, is_error: bool, job: JobName) -> None:
    """Print the output of JOB, from a file that this host reaches.

    The standard error is a part of it, unless the job was submitted with --error.
    """
    number = number_of(directory, job)
    stream, printed = sys.stdout.buffer, 0
    while True:
        info = list_jobs(directory, job=number).jobs[0]  # before the file is read for the last time
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
def stop(directory: Path, kill: bool) -> None:
    """Stop the scheduler service; without --kill it refuses while jobs are queued or running."""
    stop_service(directory, kill=kill)
    click.echo(f"service of {directory} has ended")
