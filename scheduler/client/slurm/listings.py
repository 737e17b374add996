"""`squeue` and `sacct`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Unpack

from msgspec.structs import replace

from reshape.errors import ReshapeError
from reshape.times import parse_moment
from scheduler.client.api import operations
from scheduler.client.api.client import Client
from scheduler.client.api.operations import HistoryOptions
from scheduler.client.columns import FIELDS, Column, JobFormat, sorted_jobs
from scheduler.client.list_options import one_by_one
from scheduler.client.scripts.slurm_manual import SACCT, SQUEUE
from scheduler.client.slurm.node_listing import hosts
from scheduler.model.job import JobState
from scheduler.protocol.messages import JobInfo
from scheduler.text.formats import format_moment

#: Formats of squeue(1): without an option, with --long and with --start.
_JOBS = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_LONG_JOBS = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
_STARTS = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %R"
#: Formats of sacct(1), without some of its fields: without an option, and with --brief.
_ENDED, _BRIEF = "JobID,JobName,Partition,AllocCPUS,State,ExitCode", "JobID,State,ExitCode"
#: Names of the fields of sacct, as it writes them.
_NAMES = """
JobID JobIDRaw JobName User Partition QOS Priority State ExitCode Elapsed ElapsedRaw Timelimit
TimelimitRaw Submit Start End NNodes NCPUS AllocCPUS NodeList Reason MaxRSS
"""
_AS_WRITTEN = {name.lower(): name for name in _NAMES.split()}
#: Fields whose texts in sacct differ: it has the end of an ended job alone.
_OF_SACCT = {
    "start": FIELDS["start"]._replace(
        text=lambda job, now: "Unknown" if job.started_at is None else format_moment(job.started_at)
    ),
    "end": FIELDS["end"]._replace(
        text=lambda job, now: "Unknown" if job.ended_at is None else format_moment(job.ended_at)
    ),
}
#: States that Slurm does not have -> how Slurm would call them.
_STATES = {
    "STARTING": ("RUNNING", "R"),
    "EXPANDING": ("RUNNING", "R"),
    "CONTRACTING": ("RUNNING", "R"),
}
#: Names of the states that a choice of jobs may name; no job here is ever in the last ones.
_STATE_NAMES = {state.value: state.name for state in JobState if state.name not in _STATES} | {
    "BF": "BOOT_FAIL", "CF": "CONFIGURING", "DL": "DEADLINE", "OOM": "OUT_OF_MEMORY",
    "PR": "PREEMPTED", "RQ": "REQUEUED", "RS": "RESIZING", "RV": "REVOKED", "S": "SUSPENDED",
}  # fmt: skip


def squeue(words: Sequence[str]) -> None:
    """List jobs as squeue(1) does."""
    given = SQUEUE.without_arguments(words, os.environ, ("format", "Format", "long", "start"))
    usual = _STARTS if "start" in given else _LONG_JOBS if "long" in given else _JOBS
    form = JobFormat.parse(given.get("Format") or given.get("format") or usual)
    wanted = {"PENDING"} if "start" in given else {"PENDING", "RUNNING", "COMPLETING"}
    wanted = states(given["states"]) if "states" in given else wanted
    with Client() as service:
        users = service.user if "me" in given else given.get("users")
        listed = service.queue() + (ended_jobs(service) if "states" in given else [])
        if "array" in given or "_" in given.get("jobs", ""):
            listed = [*one_by_one(listed)]
        jobs = [job for job in chosen(all_as_slurm(listed), given, users) if job.state in wanted]
        if "notme" in given:
            jobs = [job for job in jobs if job.user != service.user]
        if form.has_starts:
            jobs = service.run(operations.with_expected_starts(jobs))
    now = time.time()
    order = given.get("sort") or ("S" if "start" in given else "i")
    text = form.render(sorted_jobs(jobs, order, now), now, heads="noheader" not in given)
    if text:
        print(text)


def sacct(words: Sequence[str]) -> None:
    """List ended and other jobs as sacct(1) does, a line for each job without its steps."""
    given = SACCT.without_arguments(words, os.environ, ("format", "brief"))
    if "helpformat" in given:
        print(*_AS_WRITTEN.values(), *(name for name in FIELDS if name not in _AS_WRITTEN))
        return
    form = JobFormat.parse(given.get("format") or (_BRIEF if "brief" in given else _ENDED))
    columns = [
        column._replace(field=_OF_SACCT.get(column.name.lower(), column.field))
        for column in form.columns
    ]
    since, until = (_moment(given.get(name)) for name in ("starttime", "endtime"))
    wanted = states(given.get("state") or "all")
    with Client() as service:
        listed = service.queue()
        listed += ended_jobs(service) if since is None else ended_jobs(service, since=since)
    jobs = [
        job
        for job in chosen(
            all_as_slurm(listed, steps="allocations" not in given), given, given.get("user")
        )
        if (since is None or job.ended_at is None or job.ended_at >= since)
        and (until is None or job.submitted_at <= until)
        and ("state" not in given or job.state in wanted)
    ]
    heads = "noheader" not in given
    if given.keys() & {"parsable", "parsable2"}:
        _print_parsable(columns, jobs, given.get("delimiter") or "|", "parsable" in given, heads)
        return
    widths = [column._replace(width=column.width or 10) for column in columns]
    for text in _lines(widths, jobs, heads=heads):
        print(text)


def _lines(columns: Sequence[Column], jobs: Iterable[JobInfo], *, heads: bool) -> Iterable[str]:
    """Lines of a table of sacct, whose columns have fixed widths."""
    now = time.time()
    if heads:
        yield " ".join(column.fit(_heading(column)) for column in columns)
        yield " ".join("-" * column.width for column in columns)
    for job in jobs:
        yield " ".join(column.fit(column.field.text(job, now)) for column in columns)


def _print_parsable(
    columns: Sequence[Column], jobs: Iterable[JobInfo], between: str, ends: bool, heads: bool
) -> None:
    now, end = time.time(), between if ends else ""
    if heads:
        print(between.join(map(_heading, columns)) + end)
    for job in jobs:
        print(between.join(column.field.text(job, now) for column in columns) + end)


def _heading(column: Column) -> str:
    """Heading of a column of sacct: the name of its field as sacct writes it."""
    return _AS_WRITTEN.get(column.name.lower(), column.name)


def as_slurm(job: JobInfo) -> JobInfo:
    """Describe a job with states, a partition and reasons as Slurm has them."""
    state, code = _STATES.get(job.state, (job.state, job.code))
    _, bracket, rule = job.reason.rpartition(" [")
    return replace(
        job,
        state=state,
        code=code,
        partition=job.partition or job.queue,
        reason=rule.rstrip("]") if bracket else job.reason,
    )


def all_as_slurm(jobs: Sequence[JobInfo], *, steps: bool = False) -> list[JobInfo]:
    """Describe jobs as Slurm does, which has no line for an array beside those of its tasks."""
    arrays = {job.label.partition("_")[0] for job in jobs if "_" in job.label}
    return [
        as_slurm(job)
        for job in jobs
        if (steps or not job.step_of) and (job.label or str(job.job) not in arrays)
    ]


def states(text: str) -> set[str]:
    """Read names of states, long or short, in any case; ``all`` names all of them.

    Raises
    ------
    ReshapeError : Slurm has no such state.
    """
    words = text.upper().split(",")
    known = set(_STATE_NAMES.values())
    if "ALL" in words:
        return known
    named = {_STATE_NAMES.get(word, word) for word in words}
    for word in sorted(named - known):
        raise ReshapeError(f"{word!r} is no state of a job: known are {', '.join(sorted(known))}")
    return named


def chosen(jobs: Iterable[JobInfo], given: Mapping[str, str], users: str | None) -> list[JobInfo]:
    """Choose jobs by users and by the options jobs, name and partition; all are lists."""
    wanted = {word for word in given.get("jobs", "").replace(" ", "").split(",") if word}
    names, partitions = given.get("name"), given.get("partition")
    nodes = {*hosts(given["nodelist"])} if "nodelist" in given else None
    return [
        job
        for job in jobs
        if ("jobs" not in given or not wanted.isdisjoint(_names_of(job)))
        and (users is None or job.user in users.split(","))
        and (names is None or job.name in names.split(","))
        and (partitions is None or job.partition in partitions.split(","))
        and (nodes is None or not nodes.isdisjoint(job.nodes.split(",")))
    ]


def _names_of(job: JobInfo) -> set[str]:
    """Return the words by which a job is named: its number, its label, and that of its array."""
    return {str(job.job), job.label, job.label.partition("_")[0]}


def _moment(text: str | None) -> float | None:
    """Read a moment; None: it is now, or there is none.

    Raises
    ------
    ReshapeError : it is none.
    """
    if text is None or text == "now":
        return None
    try:
        return parse_moment(text, time.time(), past=True)
    except ValueError as error:
        raise ReshapeError(str(error)) from None


def ended_jobs(service: Client, **chosen: Unpack[HistoryOptions]) -> list[JobInfo]:
    """Return all ended jobs that the service knows, by their numbers, in several requests."""
    jobs: dict[int, JobInfo] = {}
    while True:
        listing = service.run(operations.history(chosen))
        jobs |= {job.job: job for job in listing.jobs}
        if listing.before is None:
            return [jobs[number] for number in sorted(jobs)]
        chosen = {**chosen, "before": listing.before}
