"""`squeue`, `sacct` and `sinfo`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from reshape.errors import ReshapeError
from scheduler.client.api.client import Client, user_of
from scheduler.client.columns import Column, JobFormat, sorted_jobs
from scheduler.client.slurm.command_line import CommandLine
from scheduler.model.job import JobState
from scheduler.protocol.messages import JobInfo
from scheduler.text.formats import format_time

#: Formats without an option: of squeue(1), and a part of that of sacct(1).
_SQUEUE = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_SACCT = "JobID,JobName,Partition,AllocCPUS,State,ExitCode"
#: Names of the fields of sacct, as it writes them.
_NAMES = """
JobID JobIDRaw JobName User Partition QOS Priority State ExitCode Elapsed Timelimit Submit Start End
NNodes NCPUS AllocCPUS NodeList Reason MaxRSS
"""
_AS_WRITTEN = {name.lower(): name for name in _NAMES.split()}
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
    line = CommandLine("squeue")
    line.flag("-h", "--noheader")
    line.flag("--me")
    line.flag("-a", "--all")
    line.flag("-r", "--array")
    line.add_argument("-o", "--format", default=_SQUEUE)
    line.add_argument("-O", "--Format")
    line.add_argument("-S", "--sort")
    line.add_argument("-j", "--jobs", "--job", action="append", default=[])
    line.add_argument("-u", "--user", "--users")
    line.add_argument("-n", "--name")
    line.add_argument("-p", "--partition")
    line.add_argument("-t", "--states", "--state")
    line.without_effect("-M", "--clusters", "--cluster")
    given = line.read(words)
    wanted = {"PENDING", "RUNNING", "COMPLETING"}
    wanted = wanted if given.states is None else states(given.states)
    with Client() as service:
        jobs = all_as_slurm(service.queue(ended=given.states is not None))
    now = time.time()
    users = user_of(service.service) if given.me else given.user
    jobs = [job for job in chosen(jobs, given.jobs, users, given.name) if job.state in wanted]
    if given.partition is not None:
        jobs = [job for job in jobs if job.partition in given.partition.split(",")]
    form = JobFormat.parse(given.Format or given.format)
    text = form.render(sorted_jobs(jobs, given.sort or "i", now), now, heads=not given.noheader)
    if text:
        print(text)


def sacct(words: Sequence[str]) -> None:
    """List ended and other jobs as sacct(1) does, a line for each job without its steps."""
    line = CommandLine("sacct")
    for names in (("-n", "--noheader"), ("-P", "--parsable2"), ("-p", "--parsable")):
        line.flag(*names)
    line.flag("-X", "--allocations")
    line.flag("-a", "--allusers")
    line.flag("-D", "--duplicates")
    line.add_argument("-o", "--format", default=_SACCT)
    line.add_argument("-j", "--jobs", "--job", action="append", default=[])
    line.add_argument("-u", "--user", "--uid")
    line.add_argument("--name")
    line.add_argument("-s", "--state")
    line.add_argument("-S", "--starttime")
    line.add_argument("-E", "--endtime")
    line.add_argument("--delimiter", default="|")
    line.without_effect("-M", "--clusters")
    line.without_effect("-L", "--allclusters", takes_value=False)
    given = line.read(words)
    form = JobFormat.parse(given.format)
    with Client() as service:
        jobs = all_as_slurm(service.queue(ended=True), steps=not given.allocations)
    since, until = _moment(given.starttime), _moment(given.endtime)
    wanted = states(given.state or "all")
    jobs = [
        job
        for job in chosen(jobs, given.jobs, given.user, given.name)
        if (since is None or job.ended_at is None or job.ended_at >= since)
        and (until is None or job.submitted_at <= until)
        and (given.state is None or job.state in wanted)
    ]
    if given.parsable or given.parsable2:
        _print_parsable(form, jobs, given.delimiter, given.parsable, not given.noheader)
        return
    widths = [column._replace(width=column.width or 10) for column in form.columns]
    for text in _lines(widths, jobs, heads=not given.noheader):
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
    form: JobFormat, jobs: Iterable[JobInfo], between: str, ends: bool, heads: bool
) -> None:
    now, end = time.time(), between if ends else ""
    if heads:
        print(between.join(map(_heading, form.columns)) + end)
    for job in jobs:
        print(between.join(column.field.text(job, now) for column in form.columns) + end)


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


def chosen(
    jobs: Iterable[JobInfo], numbers: Sequence[str], users: str | None, names: str | None
) -> list[JobInfo]:
    """Choose jobs by their names in Slurm, users and names, which are lists with commas."""
    wanted = {word for text in numbers for word in text.replace(" ", "").split(",") if word}
    return [
        job
        for job in jobs
        if (not numbers or not wanted.isdisjoint(_names_of(job)))
        and (users is None or job.user in users.split(","))
        and (names is None or job.name in names.split(","))
    ]


def _names_of(job: JobInfo) -> set[str]:
    """Return the words by which a job is named: its number, its label, and that of its array."""
    return {str(job.job), job.label, job.label.partition("_")[0]}


def _moment(text: str | None) -> float | None:
    """Read a time: a date, a date and time, or ``now``."""
    if text is None or text == "now":
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ReshapeError(f"{text!r} is not a time such as 2026-05-01T12:00") from None


def sinfo(words: Sequence[str]) -> None:
    """List partitions and their nodes as sinfo(1) does."""
    line = CommandLine("sinfo")
    line.flag("-h", "--noheader")
    line.flag("-s", "--summarize")
    line.flag("-a", "--all")
    line.add_argument("-o", "--format", default="%9P %5a %10l %6D %6t %N")
    line.add_argument("-p", "--partition")
    line.without_effect("-M", "--clusters")
    given = line.read(words)
    with Client() as service:
        info, nodes = service.info(), service.nodes()
    names = [part.name for part in info.partitions] or ["main"]
    limits = {part.name: part.max_walltime_s for part in info.partitions}
    heads = {
        "P": "PARTITION", "R": "PARTITION", "a": "AVAIL", "l": "TIMELIMIT", "D": "NODES",
        "t": "STATE", "T": "STATE", "N": "NODELIST", "C": "CPUS", "c": "CPUS",
    }  # fmt: skip
    rows = [] if given.noheader else [heads]
    for name in names:
        if given.partition is not None and name not in given.partition.split(","):
            continue
        there = [node for node in nodes if not node.partitions or name in node.partitions]
        for state in sorted({node.state for node in there}):
            part = [node for node in there if node.state == state]
            limit = limits.get(name)
            rows.append(
                {
                    "P": name + ("*" if name == names[0] else ""),
                    "R": name,
                    "a": "up",
                    "l": "infinite" if limit is None else format_time(limit),
                    "D": str(len(part)),
                    "t": state,
                    "T": state,
                    "N": ",".join(node.name for node in part),
                    "C": str(sum(node.processors for node in part)),
                    "c": str(max(node.processors for node in part)),
                }
            )
    texts = [_filled(given.format, row) for row in rows]
    print("\n".join(dict.fromkeys(texts)))


def _filled(form: str, row: dict[str, str]) -> str:
    """Write a row in a format of letters."""
    text, rest = "", form
    while rest:
        before, percent, rest = rest.partition("%")
        text += before
        if not percent:
            break
        width = rest[: len(rest) - len(rest.lstrip(".0123456789"))]
        letter, rest = rest[len(width) : len(width) + 1], rest[len(width) + 1 :]
        if letter not in row:
            raise ReshapeError(f"the format has the letter %{letter}: known are {' '.join(row)}")
        size = int(width.lstrip(".") or 0)
        cut = row[letter][:size] if size else row[letter]
        text += cut.rjust(size) if width.startswith(".") else cut.ljust(size)
    return text.rstrip()
