"""The options that describe a job: of submit, batch, lines of scripts and files, and `Client`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from reshape.cli.options import WholeRange
from reshape.speedup import FORMS
from scheduler.client.options import (
    LaterMoment,
    ResourceAmounts,
    per_process_option,
    request_options,
)
from scheduler.client.submission import OUTPUT
from scheduler.model.requests.conditions import FORM
from scheduler.model.requests.nodes import FORM as FEATURES
from scheduler.model.requests.signals import FORM as SIGNALS
from scheduler.model.requests.task_array import FORM as ARRAYS

_Command = TypeVar("_Command", bound=Callable[..., Any])


_OPTIONS = (
    click.option(
        "-n",
        "processors",
        type=WholeRange(min=1),
        help="Processors to start with; with --min the preferred number.",
    ),
    per_process_option,
    request_options,
    click.option("--name", default="", help="Name of the job.  [default: name of the program]"),
    click.option(
        "--output",
        default=OUTPUT,
        show_default=True,
        help="File for the output of the job; %j stands for its number, %x for its name, %u for"
        " its user, %N for the host, as in Slurm.",
    ),
    click.option(
        "--error",
        "-e",
        default="",
        metavar="FILE",
        help="File for the standard error, with the same placeholders.  [default: that of the"
        " output]",
    ),
    click.option(
        "--open-mode",
        type=click.Choice(["truncate", "append"]),
        help="Whether the start of the job empties existing output files, or appends to them."
        "  [default: append with the default of --output, else truncate]",
    ),
    click.option(
        "--chdir",
        "cwd",
        metavar="FOLDER",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Working directory of the job.  [default: the current one]",
    ),
    click.option(
        "--reservation",
        default="",
        metavar="NAME",
        help="Run in this advance reservation; see reshape reserve.",
    ),
    click.option(
        "--placement",
        type=click.Choice(["block", "cyclic"]),
        default="block",
        show_default=True,
        help="Placement of ranks on several hosts: consecutive on each host, or dealt out in turn.",
    ),
    click.option(
        "--bind/--no-bind",
        "bind",
        default=True,
        show_default=True,
        help="Bind ranks to the CPUs of their processors where the service does that.",
    ),
    click.option(
        "--requeue/--no-requeue",
        help="Queue the job again if its processes die or a node is lost; see docs/checkpoints.md.",
    ),
    click.option(
        "--restart-from",
        "restart_from",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="Restart the program from the checkpoints of another run in DIR.",
    ),
    click.option(
        "--array",
        default="",
        metavar="INDICES",
        help=f"Tasks of an array: {ARRAYS}; see docs/jobs.md.",
    ),
    click.option(
        "--constraint",
        "-C",
        default="",
        metavar="FEATURES",
        help=f"Run on nodes with these features alone: {FEATURES}; see reshape node list.",
    ),
    click.option(
        "--exclusive",
        is_flag=True,
        help="Run on whole nodes: no other job gets processors of them meanwhile.",
    ),
    click.option(
        "--hook-end",
        "hook_end",
        default="",
        metavar="COMMAND",
        help="Command of the shell that the first node runs when the job has ended, within a"
        " minute; see docs/jobs.md.",
    ),
    click.option(
        "--signal",
        default="",
        metavar="SIGNAL",
        help=f"Signal that the processes get before the end of the walltime: {SIGNALS}; after B:"
        " only the script gets it.  [default seconds: 60]",
    ),
    click.option("--hold", is_flag=True, help="Hold the job until reshape release."),
    click.option(
        "--begin",
        type=LaterMoment(),
        help="Time before which the job does not start: 2026-05-01T12:00, or now+2h.",
    ),
    click.option(
        "--dependency",
        "-d",
        default="",
        metavar="LIST",
        help=f"Other jobs that have to start or to end first: {FORM}; see docs/jobs.md.",
    ),
    click.option(
        "--kill-on-invalid-dep",
        "kill_on_invalid",
        is_flag=True,
        help="End the job when its dependency can never be met.",
    ),
    click.option(
        "--performance",
        default="",
        metavar="MODEL",
        help="Performance model, which predicts the speed on sizes that were not measured:"
        f" {FORMS}, or module:Class,KEY=VALUE if the service allows it.  [default: a fit to the"
        " measurements]",
    ),
    click.option(
        "--demand",
        "shared",
        type=ResourceAmounts("memory_bandwidth=2000"),
        help="Demand of each process for the shared resources of its node; see docs/sharing.md.",
    ),
)
_program = click.argument("argv", nargs=-1, metavar="PROGRAM [ARGS]...", type=click.UNPROCESSED)


def job_options(command: _Command) -> _Command:
    """Add the options that describe a job."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def submission_options(command: _Command) -> _Command:
    """Add the options that describe a job, and its program."""
    return job_options(_program(command))
