"""``reshape rebalance``: move jobs that still wait to sites whose quotes are clearly better."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
import msgspec

from reshape.cli.options import FiniteRange, WholeRange, example
from scheduler.client.forecasting import duration
from scheduler.client.options import Walltime, json_option
from scheduler.client.sites.actions import NOT_KNOWN
from scheduler.client.sites.answers import away_lines
from scheduler.client.sites.rebalancing import Pass
from scheduler.client.sites.rebalancing import rebalance as examine
from scheduler.client.sites.sites_file import read_sites
from scheduler.policies.assignment.moves import MoveRules
from scheduler.text.formats import format_moment
from scheduler.text.tables import Table, render


@click.command()
@click.option(
    "--sites",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="Sites file; see docs/sites.md.",
)
@click.option("--every", type=Walltime(), help="Repeat in this interval, until Ctrl-C.")
@click.option(
    "--gain",
    type=FiniteRange(min=0, max=1),
    default=0.5,
    show_default=True,
    help="Share of the present wait that the quoted wait may have at most.",
)
@click.option(
    "--least",
    type=Walltime(),
    default="1:00",
    show_default=True,
    help="Time by which the wait must be shorter at least.",
)
@click.option(
    "--rest",
    type=Walltime(),
    default="10:00",
    show_default=True,
    help="Least time between two moves of a job.",
)
@click.option(
    "--depth",
    type=WholeRange(min=1),
    default=20,
    show_default=True,
    help="Jobs of each site that are examined, those that start first.",
)
@click.option("--dry-run", is_flag=True, help="Move nothing; show what would be moved.")
@json_option
@example(
    "reshape rebalance --sites sites.yaml --dry-run",
    "reshape rebalance --sites sites.yaml --every 5:00",
)
def rebalance(
    sites: Path,
    every: float | None,
    gain: float,
    least: float,
    rest: float,
    depth: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Move queued jobs to sites where they are expected to start clearly earlier.

    A job is moved if its wait becomes shorter by both margins and its end no later. Only jobs that
    'reshape submit --sites' sent from here are moved, and moves that were interrupted are
    completed. With --json --every, each examination is one line. Exit code 4: it is not known which
    site has a job, or no site takes it; the next 'reshape rebalance' continues.
    """
    rules = MoveRules(gain=gain, least_s=least, rest_s=rest, depth=depth, may_end_later=False)
    known = read_sites(sites)
    while True:
        result = examine(known, rules, dry_run=dry_run)
        if as_json:
            data = msgspec.json.encode(result)
            click.echo(data if every is not None else msgspec.json.format(data, indent=2))
        else:
            _show(result, is_repeated=every is not None)
        if every is None:
            break
        sys.stdout.flush()
        time.sleep(every)
    if any(job.outcome in ("unknown", "unplaced") for job in result.jobs):
        sys.exit(NOT_KNOWN)


def _show(result: Pass, *, is_repeated: bool) -> None:
    """Print the examined jobs; in a loop only those with which something was done."""
    for line in away_lines(result.passed_over):
        click.echo(line, err=True)
    jobs = result.jobs
    if is_repeated:
        jobs = [job for job in jobs if job.outcome not in ("stays", "rests")]
        if not jobs:
            return
        click.echo(format_moment(result.now))
    rows = []
    for job in jobs:
        new = "" if job.new_job is None else f"{job.to}:{job.new_job}"
        rows.append(
            (
                f"{job.site}:{job.job}",
                job.key,
                duration(job.wait_s),
                job.to or "-",
                duration(job.to_wait_s),
                f"{job.outcome} to {new}" if new else job.outcome,
                job.note,
            )
        )
    head = ("JOB", "KEY", "WAIT", "BEST", "WAIT THERE", "OUTCOME", "NOTE")
    click.echo(render(Table(head, rows, left=frozenset({"JOB", "KEY", "BEST", "OUTCOME", "NOTE"}))))
    if not rows:
        click.echo("no job that was submitted from here waits at these sites")
