"""``reshape hold``, ``release``, ``requeue`` and ``update``: change jobs after their submission."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from reshape.cli.lazy_group import FAILED
from reshape.cli.options import ANY_TEXT, WholeRange, example
from reshape.times import in_local_time
from scheduler.client.api.asking import ask, change_jobs, number_of, tasks_of
from scheduler.client.api.completion import complete_jobs
from scheduler.client.bulk.cancel_command import JobRange, JobRanges, matching
from scheduler.client.options import JobText, LaterMoment, Priority, TimeLimit, service_option
from scheduler.model.requests.job_name import JobName
from scheduler.protocol import messages as m

_jobs = click.argument(
    "jobs",
    nargs=-1,
    required=True,
    metavar="JOB...",
    type=JobRanges(with_sites=False),
    shell_complete=complete_jobs,
)


@click.command()
@service_option
@_jobs
@example("reshape hold 3", "reshape hold 5-8,12")
def hold(directory: Path, jobs: tuple[list[JobRange], ...]) -> None:
    """Hold queued jobs: they do not start until they are released.

    A range such as 5-8 means those of its jobs that have not ended.
    """
    _change_all(directory, jobs, m.HoldJob())


@click.command()
@service_option
@_jobs
@example("reshape release 3")
def release(directory: Path, jobs: tuple[list[JobRange], ...]) -> None:
    """Release held jobs. Only an administrator releases what an administrator has held."""
    _change_all(directory, jobs, m.ReleaseJob())


@click.command()
@service_option
@_jobs
@example("reshape requeue 3")
def requeue(directory: Path, jobs: tuple[list[JobRange], ...]) -> None:
    """End running jobs and queue them again, where they keep their places.

    A program that writes checkpoints restarts from its latest one.
    """
    _change_all(directory, jobs, m.RequeueJob())


@click.command()
@service_option
@click.option(
    "-n",
    "processors",
    type=WholeRange(min=1),
    help="Processors to start with; with --min the preferred number.",
)
@click.option(
    "--min", "min_processors", type=WholeRange(min=1), help="Smallest number; as -n: none."
)
@click.option("--max", "max_processors", type=WholeRange(min=1), help="Largest number.")
@click.option("--walltime", "walltime_s", type=TimeLimit(), help="Limit of the run time.")
@click.option("--priority", type=Priority(), help="Priority: a name or a number.")
@click.option("--name", help="Name of the job.")
@click.option("--queue", metavar="NAME", help="Queue.")
@click.option("--partition", "-p", metavar="NAME", help="Partition.")
@click.option("--begin", type=LaterMoment(), help="Time before which the job does not start.")
@click.option("--dependency", type=ANY_TEXT, metavar="LIST", help="Dependency; '' removes it.")
@click.argument("job", type=JobText(), shell_complete=complete_jobs)
@example("reshape update 3 --walltime 2h", "reshape update 4 --dependency afterok:3")
def update(directory: Path, job: JobName, **changes: Any) -> None:
    """Change the request of JOB: all of these options while it is queued.

    Of a running job --max, --name, --priority and --walltime can be changed; only an administrator
    can raise the walltime. A change that is not possible changes nothing.
    """
    number = number_of(directory, job)
    ask(directory, m.ChangeJobs.one(number, m.UpdateJob(**changes)))
    click.echo(f"updated job {number}")


def _change_all(directory: Path, ranges: tuple[list[JobRange], ...], change: m.JobChange) -> None:
    """Change jobs; the exit code is 1 if one of them cannot be changed."""
    flat = [job for group in ranges for job in group]
    named = [tasks_of(directory, job.first) for job in flat if job.last is None]
    spans = [(job.first.job, job.last) for job in flat if job.last is not None]
    named += matching(directory, spans) if spans else []
    if not named:
        click.echo("reshape: no queued or running job matches", err=True)
        return
    named = list(dict.fromkeys(named))
    refused = change_jobs(directory, named, change)
    for job in named:
        if job in refused:
            click.echo(f"reshape: error: {in_local_time(refused[job])}", err=True)
        else:
            click.echo(f"{change.participle} job {job}")
    if refused:
        sys.exit(FAILED)
