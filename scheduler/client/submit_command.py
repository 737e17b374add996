"""``reshape submit``: submit a job to a service, or to the best of several."""

from __future__ import annotations

from pathlib import Path

import click

from reshape.cli.helptext import example
from reshape.cli.options import FiniteRange
from reshape.speedup import FORMS
from reshape.topology import Topology
from reshape.wire import messages as m
from reshape.wire.client import is_access_file
from scheduler.client.asking import ask
from scheduler.client.commands import echo_json, end_with, wait_until
from scheduler.client.forecasting import quote_of, quote_text
from scheduler.client.options import (
    ResourceAmounts,
    is_given,
    json_option,
    request_options,
    service_option,
    sites_option,
)
from scheduler.client.sites import actions
from scheduler.client.sites.submitting import AcceptedJob
from scheduler.client.submission import OUTPUT, check_places, earlier_outputs, prepare
from scheduler.model.job import JobState


@click.command(context_settings={"allow_interspersed_args": False})
@service_option
@click.option("-n", "processors", type=click.IntRange(min=1), help="Processors to start with.")
@request_options
@click.option("--name", default="", help="Name of the job.  [default: name of the program]")
@click.option(
    "--output",
    default=OUTPUT,
    show_default=True,
    help="File for the output of the job; %j stands for its number, %x for its name, %u for its"
    " user, %N for the host, as in Slurm.",
)
@click.option(
    "--open-mode",
    type=click.Choice(["truncate", "append"]),
    help="Whether the start of the job empties an existing output file, or appends to it."
    "  [default: append with the default of --output, else truncate]",
)
@click.option(
    "--reservation",
    default="",
    metavar="NAME",
    help="Run in this advance reservation; see reshape reserve.",
)
@click.option(
    "--placement",
    type=click.Choice(["block", "cyclic"]),
    default="block",
    show_default=True,
    help="Placement of ranks on several hosts: consecutive on each host, or dealt out in turn.",
)
@click.option(
    "--bind/--no-bind",
    "bind",
    default=True,
    show_default=True,
    help="Bind ranks to the CPUs of their processors where the service does that.",
)
@click.option(
    "--requeue",
    is_flag=True,
    help="Queue the job again if its processes die or a node is lost; see docs/checkpoints.md.",
)
@click.option(
    "--restart-from",
    "restart_from",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Restart the program from the checkpoints of another run in DIR.",
)
@click.option(
    "--performance",
    default="",
    metavar="MODEL",
    help=f"Performance model, which predicts the speed on sizes that were not measured: {FORMS},"
    " or module:Class,KEY=VALUE if the service allows it.  [default: a fit to the measurements]",
)
@click.option(
    "--demand",
    type=ResourceAmounts("memory_bandwidth=2000"),
    help="Demand of each process for the shared resources of its node; see docs/sharing.md.",
)
@click.option(
    "--wait",
    "waits",
    is_flag=True,
    help="Wait for the end of the job, and exit with its exit code.",
)
@click.option(
    "--test-only", is_flag=True, help="Submit nothing; show when the job would start and end."
)
@sites_option
@click.option(
    "--metric",
    default="wait",
    show_default=True,
    metavar="METRIC",
    help="With --sites: metric of the choice, which is wait, turnaround, slowdown, cost, work,"
    " queue or module:Class.",
)
@click.option("--max-cost", type=FiniteRange(min=0), help="With --sites: largest cost of the job.")
@click.option("--key", help="With --sites: submission key.  [default: a new one]")
@click.option(
    "--retry",
    metavar="KEY",
    help="With --sites: repeat the submission with this key; without PROGRAM.",
)
@json_option
@click.argument("argv", nargs=-1, metavar="PROGRAM [ARGS]...", type=click.UNPROCESSED)
@example(
    "reshape submit -n 2 --max 6 --topology nearly-square --walltime 10:00 \\",
    "    -- python -m apps.lu --n 1024 --block 64 --repeat 20",
    "reshape submit --sites sites.yaml --metric cost --max-cost 20 -n 4 -- python solve.py",
)
def submit(
    directory: Path,
    processors: int | None,
    maximum: int | None,
    topology: Topology | None,
    walltime: float,
    name: str,
    output: str,
    open_mode: m.OpenMode | None,
    priority: float | str | None,
    queue_name: str,
    reservation: str,
    resources: dict[str, int] | None,
    placement: m.Placement,
    bind: bool,
    requeue: bool,
    restart_from: Path | None,
    performance: str,
    demand: dict[str, int] | None,
    waits: bool,
    test_only: bool,
    sites: Path | None,
    metric: str,
    max_cost: float | None,
    key: str | None,
    retry: str | None,
    as_json: bool,
    argv: tuple[str, ...],
) -> None:
    """Submit a job that runs PROGRAM under mpiexec on -n processors.

    The job runs in the current directory with the current environment. The directory of the Python
    that runs reshape is put first on PATH, so that 'python' and 'mpiexec' match.

    With --sites, all services that FILE names are asked, and the best one by --metric gets the job;
    see docs/sites.md. Exit code 3: no site takes it; 4: it is not known whether the site accepted
    it, and --retry KEY finds out.
    """
    _check_sites_options(sites)
    if retry is not None and sites is not None:
        if argv or processors is not None:
            raise click.UsageError("--retry repeats a submission: leave out -n and PROGRAM")
        _accepted(actions.retry_job(sites, retry), waits, as_json)
        return
    if processors is None:
        raise click.UsageError("Missing option '-n'.")
    if not argv:
        raise click.UsageError("Missing argument 'PROGRAM [ARGS]...'.")
    submission = prepare(
        argv,
        processors,
        walltime_s=walltime,
        max_processors=maximum,
        topology=topology,
        name=name,
        output=output,
        open_mode=open_mode,
        priority=priority,
        queue=queue_name,
        reservation=reservation,
        resources=resources,
        placement=placement,
        bind=bind,
        requeue=requeue,
        restart_from=restart_from,
        performance=performance,
        shared=demand,
    )
    if sites is not None:
        accepted = actions.submit_job(
            sites, submission, metric, max_cost, key, test_only=test_only, as_json=as_json
        )
        if accepted is not None:
            _accepted(accepted, waits, as_json)
        return
    if test_only:
        quoted = quote_of(directory, submission)
        if as_json:
            echo_json(quoted)
        else:
            click.echo(quote_text(quoted))
        return
    if not is_access_file(directory):
        check_places(submission, directory)
    earlier = earlier_outputs(submission)
    answer = ask(directory, m.Submit(submission=submission))
    assert isinstance(answer, m.Submitted)
    if as_json and not waits:
        echo_json({"job": answer.job})
    elif not as_json:
        click.echo(f"submitted job {answer.job}")
        printed = Path(submission.cwd) / OUTPUT.replace("%{JOB_ID}", str(answer.job))
        if printed in earlier:
            click.echo(f"its output is appended to {printed}, which exists")
    if waits:
        end_with([wait_until(directory, answer.job, None)], as_json)


def _check_sites_options(sites: Path | None) -> None:
    """Refuse options that need --sites."""
    for name in ("metric", "max_cost", "key", "retry"):
        if sites is None and is_given(click.get_current_context(), name):
            raise click.UsageError(f"--{name.replace('_', '-')} needs --sites FILE")


def _accepted(accepted: AcceptedJob, waits: bool, as_json: bool) -> None:
    """Print a job that a site accepted, and wait for its end if asked to."""
    if as_json and not waits:
        echo_json({"site": accepted.site, "job": accepted.job, "key": accepted.key})
    elif not as_json:
        click.echo(f"submitted job {accepted.site}:{accepted.job}, key {accepted.key}")
    if waits:
        place: AcceptedJob | None = accepted
        while place is not None:  # until it has ended at the site to which it was moved last
            accepted, ended = place, wait_until(place.place, place.job, None)
            place = actions.moved_to(accepted) if ended.state == JobState.CANCELLED.name else None
        end_with([ended], as_json, [accepted.site])
