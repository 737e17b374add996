"""``reshape submit``, ``batch`` and ``wait``: submit a program or a script; await jobs.

``submit --sites`` submits a program to the best of several services.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from reshape.cli.options import FiniteRange, example
from reshape.times import in_local_time
from scheduler.client import tables
from scheduler.client.api.client import Client, JobHandle, await_job, submitted
from scheduler.client.api.service_option import complete_jobs, opened, service_option
from scheduler.client.options import (
    SITE_JOB,
    WALLTIME,
    JobRange,
    echo_json,
    is_given,
    json_option,
    refuse_given,
    sites_option,
)
from scheduler.client.requests.job_options import job_options, script_options
from scheduler.client.requests.script_file import (
    JobScript,
    read_script,
    script_submission,
    wrapped,
)
from scheduler.client.requests.submission import OUTPUT, earlier_outputs, prepare
from scheduler.client.sites import actions
from scheduler.client.sites.submitting import SubmissionRecord
from scheduler.model.arrays import JobName
from scheduler.protocol import messages as m
from scheduler.protocol.job_requests import DEFAULT_WALLTIME_S, LONGEST_WALLTIME_S
from scheduler.text.plain import plain

wait_option = click.option(
    "--wait",
    "waits",
    is_flag=True,
    help="Wait for the end of the job, and exit with its exit code.",
)


@click.command(context_settings={"allow_interspersed_args": False})
@service_option
@job_options
@click.argument("argv", nargs=-1, metavar="PROGRAM [ARGS]...", type=click.UNPROCESSED)
@wait_option
@sites_option
@click.option(
    "--metric",
    default="wait",
    show_default=True,
    metavar="METRIC",
    help="With --sites: metric of the choice: wait, turnaround, slowdown, cost, work,"
    " queue or module:Class.",
)
@click.option(
    "--test-only",
    is_flag=True,
    help="With --sites: submit nothing; show when the job would start and end at each site.",
)
@click.option("--max-cost", type=FiniteRange(min=0), help="With --sites: largest cost of the job.")
@click.option("--key", help="With --sites: submission key.  [default: a new one]")
@click.option(
    "--retry",
    metavar="KEY",
    help="With --sites: repeat the submission with this key; without PROGRAM.",
)
@json_option
@example(
    "reshape submit -n 2 --max 6 --topology nearly-square --walltime 10:00 \\",
    "    -- python -m apps.lu --n 1024 --block 64 --repeat 20",
    "reshape submit --sites sites.yaml --metric cost --max-cost 20 -n 4 -- python solve.py",
)
def submit(
    service: Client,
    waits: bool,
    test_only: bool,
    sites: Path | None,
    metric: str,
    max_cost: float | None,
    key: str | None,
    retry: str | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Submit a job that runs PROGRAM under mpiexec on -n processors.

    The job runs in the current directory with the current environment. The directory of the Python
    that runs reshape is put first on PATH, so that 'python' and 'mpiexec' match.

    With --sites, all services that FILE names are asked, and the best one by --metric gets the job;
    see docs/sites.md. Exit code 3: no site takes it; 4: it is not known whether the site accepted
    it, and --retry KEY finds out.
    """
    if test_only and sites is None:
        raise click.UsageError("--test-only needs --sites FILE; for one service: reshape quote")
    if sites is None:
        refuse_given(("metric", "max_cost", "key", "retry"), "needs --sites FILE")
    if retry is not None and sites is not None:
        if fields["argv"] or fields["processors"] is not None:
            raise click.UsageError("--retry repeats a submission: leave out -n and PROGRAM")
        _accepted(actions.retry_job(sites, retry), waits, as_json)
        return
    if sites is not None and fields["walltime_s"] is None:
        fields["walltime_s"] = DEFAULT_WALLTIME_S  # sites are compared with one walltime
    if fields["processors"] is None:
        raise click.UsageError("Missing option '-n'.")
    if not fields["argv"]:
        raise click.UsageError("Missing argument 'PROGRAM [ARGS]...'.")
    submission = prepare(**fields)
    if sites is not None and (submission.dependency or submission.array):
        raise click.UsageError("--dependency and --array need one service: leave --sites out")
    if sites is not None and submission.walltime_s == LONGEST_WALLTIME_S:
        raise click.UsageError("sites are compared with one walltime: give --walltime a time")
    if sites is not None:
        accepted = actions.submit_job(
            sites, submission, metric, max_cost, key, test_only=test_only, as_json=as_json
        )
        if accepted is not None:
            _accepted(accepted, waits, as_json)
        return
    submit_here(service, submission, waits, as_json)


def submit_here(service: Client, submission: m.Submission, waits: bool, as_json: bool) -> None:
    """Submit a job to a service, and wait for its end if asked."""
    earlier = earlier_outputs(submission)
    job = submitted(service, submission).id
    if as_json and not waits:
        echo_json({"job": job})
    elif not as_json:
        click.echo(f"submitted job {job}")
        printed = Path(submission.cwd) / OUTPUT.replace("%{JOB_ID}", str(job))
        if printed in earlier:
            click.echo(f"its output is appended to {printed}, which exists")
    if waits:
        end_with([service.job(job).wait()], as_json)


def _accepted(accepted: SubmissionRecord, waits: bool, as_json: bool) -> None:
    """Print a job that a site accepted, and wait for its end if asked to."""
    if as_json and not waits:
        echo_json({"site": accepted.site, "job": accepted.job, "key": accepted.key})
    elif not as_json:
        click.echo(f"submitted job {accepted.site}:{accepted.job}, key {accepted.key}")
    if waits:
        site = opened(Path(accepted.service))
        end_with([site.job(accepted.job).wait()], as_json, [accepted.site])


@click.command(context_settings={"allow_interspersed_args": False})
@service_option
@script_options
@click.option("--wrap", metavar="COMMAND", help="Run this command of the shell, without a script.")
@wait_option
@json_option
@click.argument("words", nargs=-1, metavar="SCRIPT [ARGS]...", type=click.UNPROCESSED)
@example(
    "reshape batch -n 4 --walltime 10:00 job.sh case.yaml",
    "reshape batch -n 2 --wrap 'python prepare.py && mpiexec -n 2 python solve.py'",
)
def batch(
    service: Client,
    wrap: str | None,
    waits: bool,
    as_json: bool,
    words: Sequence[str],
    **fields: Any,
) -> None:
    """Submit SCRIPT, which runs once, on the first of -n processors.

    Lines #RESHAPE OPTIONS and #SBATCH OPTIONS before the first command of the script have more
    options; the ones of the command line take precedence. A warning names options of Slurm without
    a meaning here. The job ends with the exit code of the script. The script may start programs on
    the processors of the job by mpiexec.
    """
    if (wrap is None) == (not words):
        raise click.UsageError("give either SCRIPT or --wrap COMMAND")
    if words and not words[0]:
        raise click.UsageError("SCRIPT is empty: name a file")
    script = wrapped(wrap) if wrap is not None else read_script(Path(words[0]))
    _warn(script)
    context = click.get_current_context()
    options = {name: value for name, value in fields.items() if is_given(context, name)}
    submission = script_submission(script, words[1:], options)
    submit_here(service, submission, waits, as_json)


def _warn(script: JobScript) -> None:
    """Name the options of a script that have no effect."""
    if script.options.ignored:
        text = ", ".join(script.options.texts)
        click.echo(f"reshape: warning: without effect here: {text}", err=True)
    if script.late:
        lines = ", ".join(map(str, script.late))
        click.echo(
            f"reshape: warning: {script.path}:{lines}: options after the first command have no"
            " effect: move them up",
            err=True,
        )


#: Exit code of `wait` when its time limit has passed; that of timeout(1).
TIME_OVER = 124


@click.command()
@service_option
@click.option("--timeout", type=WALLTIME, help="Time limit, such as 10:00.")
@sites_option
@json_option
@click.argument(
    "jobs",
    nargs=-1,
    required=True,
    metavar="JOB...",
    type=SITE_JOB,
    shell_complete=complete_jobs,
)
@example("reshape wait last && echo well done", "reshape wait --sites sites.yaml left:3 right:1")
def wait(
    service: Client,
    timeout: float | None,
    sites: Path | None,
    as_json: bool,
    jobs: tuple[JobRange, ...],
) -> None:
    """Wait for jobs to end.

    The exit code is the first one of a job that is not 0 (128 + N if signal N ended the job), or
    124 if the time limit has passed. It waits on while the service restarts. If no service has
    run for a minute, the exit code is 1.
    """
    until = None if timeout is None else time.monotonic() + timeout
    services = [actions.service_at(service, sites, job) for job in jobs]
    pairs = zip(services, jobs, strict=True)
    try:
        handles = [await_job(site, job.first, until) for site, job in pairs]
        ended = [_wait_until(handle, until) for handle in handles]
    except TimeoutError as error:
        click.echo(f"reshape: the time limit has passed and {error}", err=True)
        sys.exit(TIME_OVER)
    end_with(ended, as_json, [job.site for job in jobs])


def _wait_until(job: JobHandle, until: float | None) -> m.JobInfo:
    try:
        return job.wait(None if until is None else max(0.0, until - time.monotonic()))
    except TimeoutError:
        raise TimeoutError(f"job {job.id} has not ended") from None


def end_with(jobs: Sequence[m.JobInfo], as_json: bool, sites: Sequence[str] = ()) -> None:
    """Print how jobs ended, and exit with the exit code of the first one that failed.

    Parameters
    ----------
    sites : names of the sites of the jobs; empty: there is one service.
    """
    if as_json:
        echo_json(jobs)
    for job, site in zip(jobs, sites or [""] * len(jobs), strict=True):
        if not as_json:
            why = f" ({plain(in_local_time(job.reason))})" if job.reason else ""
            name = JobRange(site, JobName(job.job))
            click.echo(f"job {name}: {job.state} {job.exit_code}:{job.signal}{why}")
            if told := tables.last_lines_text(job):
                click.echo(told)
    sys.exit(next(filter(None, map(tables.exit_status, jobs)), 0))
