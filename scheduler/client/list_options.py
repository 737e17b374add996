"""Options of the commands that list jobs: format, order, and which jobs.

The tasks of an array that are to come are jobs in a list, although the service has none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from reshape.cli.options import ParsedText
from reshape.errors import ReshapeError, nearest
from scheduler.client.api import operations
from scheduler.client.api.asking import complete_jobs, complete_partitions, run
from scheduler.client.api.client import user_of
from scheduler.client.columns import JobFormat
from scheduler.client.options import JOBS, JobRange
from scheduler.model.arrays import TaskArray, positions_of
from scheduler.model.job import JobState
from scheduler.model.procset import ProcSet
from scheduler.protocol.messages import JobInfo


def one_by_one(jobs: Iterable[JobInfo]) -> Iterator[JobInfo]:
    """Yield jobs, and in place of the line of an array one of each of its tasks that are to come.

    A million tasks make as many lines: take them one after the other.
    """
    for job in jobs:
        if not job.pending_tasks:
            yield job
            continue
        held, by_administrator = _positions(job, job.held_tasks), _positions(job, job.held_by_admin)
        array = TaskArray.parse(job.array)
        for position in _positions(job, job.pending_tasks):
            reason = job.reason
            if position in by_administrator:
                reason = "held until an administrator releases it [JobHeldAdmin]"
            elif position in held:
                reason = "held by its user until it is released [JobHeldUser]"
            yield replace(
                job,
                job=job.job + 1 + position,
                label=f"{job.job}_{array.index(position)}",
                reason=reason,
                **dict.fromkeys(("array", "pending_tasks", "held_tasks", "held_by_admin"), ""),
            )


def has_task(job: JobInfo, first: int, last: int) -> bool:
    """Whether a job is an array of which a task with a number in a range is to come."""
    if not job.pending_tasks or last <= job.job:
        return False
    between = _positions(job, job.pending_tasks).between(first - job.job - 1, last - job.job - 1)
    return bool(between)


def _positions(job: JobInfo, tasks: str) -> ProcSet:
    """Positions of tasks of an array with these indices; none of ""."""
    if not tasks:
        return ProcSet()
    return positions_of(TaskArray.parse(job.array), TaskArray.parse(tasks))


_Command = TypeVar("_Command", bound=Callable[..., Any])


def _states(text: str) -> frozenset[str]:
    """States of jobs, by their long or short names."""
    known = {state.value: state.name for state in JobState}
    states = set()
    for word in text.upper().split(","):
        name = known.get(word, word)
        if name != "ALL" and name not in known.values():
            raise ValueError(f"{word!r} is not a state{nearest(word, [*known.values(), *known])}")
        states.add(name)
    return frozenset(known.values() if "ALL" in states else states)


format_option = click.option(
    "--format",
    "-o",
    "columns",
    type=ParsedText("FORMAT", JobFormat.parse, JobFormat),
    help="Columns: by names as in jobid,state:20 (docs/listings.md lists them), or by letters of"
    " squeue, as in '%i %.10T'.",
)
noheader_option = click.option("--noheader", is_flag=True, help="Leave out the headings.")
sort_option = click.option(
    "--sort",
    "-S",
    "order",
    metavar="FIELDS",
    help="Order of the jobs: names of columns; a '-' before a name: from high to low.",
)
_CHOICE = (
    click.option("--user", "-u", metavar="USERS", help="List jobs of these users."),
    click.option("--me", is_flag=True, help="List your own jobs."),
    click.option(
        "--state",
        "-t",
        "states",
        type=ParsedText("STATES", _states, frozenset),
        help="List jobs in these states.",
    ),
    click.option("--name", "-n", metavar="NAMES", help="List jobs of these names."),
    click.option(
        "--partition",
        "-p",
        metavar="NAMES",
        help="List jobs of these partitions.",
        shell_complete=complete_partitions,
    ),
    click.option(
        "--jobs",
        "-j",
        "numbers",
        type=JOBS,
        shell_complete=complete_jobs,
        help="List these jobs, as in 3,5-8,17_4.",
    ),
)


def choice_options(command: _Command) -> _Command:
    """Add the options that say which jobs are listed; `chosen` reads them."""
    for option in reversed(_CHOICE):
        command = option(command)
    return command


def chosen(
    directory: Path,
    jobs: Sequence[JobInfo],
    *,
    user: str | None,
    me: bool,
    states: frozenset[str] | None,
    name: str | None,
    partition: str | None,
    numbers: list[JobRange] | None,
) -> list[JobInfo]:
    """Choose jobs by the options of `choice_options`.

    Raises
    ------
    ReshapeError : a task or step that `numbers` names does not exist.
    """
    users = None if user is None else {*user.split(",")}
    if me:
        users = {*(users or ()), user_of(directory)}
    names = None if name is None else {*name.split(",")}
    partitions = None if partition is None else {*partition.split(",")}
    spans = [span for each in numbers or () for span in _spans(directory, each)]
    return [
        job
        for job in jobs
        if (users is None or job.user in users)
        and (names is None or job.name in names)
        and (partitions is None or job.partition in partitions)
        and (states is None or job.state in states)
        and (
            numbers is None
            or any(first <= job.job <= last or has_task(job, first, last) for first, last in spans)
        )
    ]


def _spans(directory: Path, named: JobRange) -> list[tuple[int, int]]:
    """First and last numbers of the jobs that a range stands for, or a name."""
    if named.last is not None:
        return [(named.first.job, named.last)]
    found = run(directory, operations.tasks_of(named.first))
    if not found.tasks:
        return [(found.job, found.job)]
    try:
        there = positions_of(
            run(directory, operations.array_of(found.job)), TaskArray.parse(found.tasks)
        )
    except ValueError as error:
        raise ReshapeError(f"array {found.job}: {error}") from None
    begin = found.job + 1
    return [(begin + first, begin + last) for first, last in there.intervals]
