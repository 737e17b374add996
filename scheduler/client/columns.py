"""The columns of jobs: one table of fields, from which all listings of jobs are made.

A format names fields by letters as squeue(1) does (``"%.10i %T"``), or by names as sacct(1) and
``squeue -O`` do (``"jobid,state:20"``).

The tasks of an array that are to come are jobs in a list, although the service has none of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from msgspec.structs import replace

from reshape.errors import ReshapeError, nearest
from reshape.key_values import whole_number
from reshape.times import in_local_time
from scheduler.model.arrays import TaskArray, positions_of
from scheduler.model.procset import ProcSet
from scheduler.protocol.messages import JobInfo
from scheduler.text.formats import format_moment, format_time
from scheduler.text.plain import plain
from scheduler.text.tables import Table, render

#: A column in letters: width, after a point if it is aligned to the right, and letter.
LETTER = re.compile(r"%(\.?)(\d*)([A-Za-z%])", re.ASCII)
#: Characters of a column, at most.
MOST_WIDE = 4096
#: A column by name. Its width follows ``:``, as of squeue, or ``%-``: the texts begin at the left.
#: Where it follows ``%``, as of sacct, they end at the right.
_NAME = re.compile(r"\s*([A-Za-z_]+)\s*(?:(:|%-?)(\d+))?\s*", re.ASCII)


class Field(NamedTuple):
    """A field of a job.

    Attributes
    ----------
    heading : of its column.
    text : writes it, given a job and the present time (Unix seconds).
    letters : of ``squeue --format``; "": none.
    names : further names, those of squeue and sacct.
    key : what jobs are sorted by; None: the text.
    is_left : whether the column is aligned to the left.
    """

    heading: str
    text: Callable[[JobInfo, float], str]
    letters: str = ""
    names: tuple[str, ...] = ()
    key: Callable[[JobInfo, float], Any] | None = None
    is_left: bool = False

    def sort_key(self, job: JobInfo, now: float) -> Any:
        """Return what jobs are sorted by."""
        return self.text(job, now) if self.key is None else self.key(job, now)


def sizes_text(job: JobInfo) -> str:
    """Write the sizes of a job over time, such as ``2-4-6-4``; repeated sizes count once."""
    sizes = [size for _, size in job.sizes if size]
    changes = [size for i, size in enumerate(sizes) if i == 0 or sizes[i - 1] != size]
    return "-".join(map(str, changes)) or "-"


def running_s(job: JobInfo, now: float) -> float:
    """Run time of a job up to now or its end, in seconds; 0 before its start."""
    if job.started_at is None:
        return 0.0
    return max(0.0, (now if job.ended_at is None else job.ended_at) - job.started_at)


def end_of(job: JobInfo) -> float | None:
    """End of a job, of a running one at its walltime, in Unix seconds; None: it has not started."""
    if job.ended_at is not None or job.started_at is None:
        return job.ended_at
    return job.started_at + job.walltime_s


def waited_s(job: JobInfo, now: float) -> float:
    """Wait of a job up to now, its start or its cancellation, in seconds."""
    ends = (job.started_at, job.ended_at, now)
    return min(at for at in ends if at is not None) - job.submitted_at


def amounts_text(resources: Mapping[str, int]) -> str:
    """Write amounts of resources as ``memory_gib=64,licences=2``."""
    return ",".join(f"{name}={amount}" for name, amount in resources.items()) or "-"


def progress_text(job: JobInfo) -> str:
    """Write how much of its iterations a job has finished, such as ``42%``; ``-`` if not known."""
    return f"{100 * job.iteration // job.iterations}%" if job.iterations else "-"


def memory_text(job: JobInfo) -> str:
    """Write the largest memory of a job, such as ``512M``; ``-`` if it was not measured."""
    return f"{job.max_memory_mib}M" if job.max_memory_mib else "-"


def _processors(job: JobInfo) -> int:
    return job.size or job.requested


def _nodes(job: JobInfo) -> int:
    return len(job.nodes.split(",")) if job.nodes else 0


def _place(job: JobInfo) -> str:
    """Write the nodes of a job; of one that waits or has ended its reason, if there is one."""
    is_told = job.reason and (job.ended_at is not None or not job.nodes)
    return f"({in_local_time(job.reason)})" if is_told else job.nodes


def _left_s(job: JobInfo, now: float) -> float:
    return job.walltime_s - running_s(job, now)


def _exit_code(job: JobInfo) -> str:
    return f"{job.exit_code}:{job.signal}"


def _moment(at: float | None) -> str:
    return "-" if at is None else format_moment(at)


def _short_moment(at: float | None, now: float) -> str:
    """Write a Unix time as the local time of day, or as month and day on another day."""
    if at is None:
        return "-"
    date, _, time = format_moment(at).partition("T")
    return time if format_moment(now).startswith(date) else f"{date[5:]}T{time[:5]}"


def _queue(job: JobInfo) -> str:
    return job.partition or job.queue or "-"


def _array(job: JobInfo, part: int) -> str:
    """Number of the array (part 0) or index of the task (part 2) that a job is."""
    parts = job.label.partition("_")
    return parts[part] if parts[1] else (str(job.job) if part == 0 else "N/A")


#: Name -> field.
FIELDS: dict[str, Field] = {
    "jobid": Field(
        "JOBID", lambda job, now: job.label or str(job.job), "i", key=lambda job, now: job.job
    ),
    "number": Field(
        "NUMBER", lambda job, now: str(job.job), "A", ("jobidraw",), lambda job, now: job.job
    ),
    "array": Field("ARRAY", lambda job, now: _array(job, 0), "F", ("arrayjobid",)),
    "task": Field("TASK", lambda job, now: _array(job, 2), "K", ("arraytaskid",)),
    "queue": Field("QUEUE", lambda job, now: _queue(job), "q", ("qos",), is_left=True),
    "partition": Field("PARTITION", lambda job, now: job.partition, "P", is_left=True),
    "name": Field("NAME", lambda job, now: job.name, "j", ("jobname",), is_left=True),
    "user": Field("USER", lambda job, now: job.user, "u", ("username",), is_left=True),
    "st": Field("ST", lambda job, now: job.code, "t", ("statecompact",), is_left=True),
    "state": Field("STATE", lambda job, now: job.state, "T", is_left=True),
    "time": Field(
        "TIME", lambda job, now: format_time(running_s(job, now)), "M", ("elapsed", "timeused"),
        running_s,
    ),
    "seconds": Field(
        "SECONDS", lambda job, now: f"{running_s(job, now):.0f}", "", ("elapsedraw",), running_s
    ),
    "run": Field("RUN", lambda job, now: format_time(running_s(job, now)), key=running_s),
    "wait": Field("WAIT", lambda job, now: format_time(waited_s(job, now)), key=waited_s),
    "walltime": Field(
        "WALLTIME", lambda job, now: format_time(job.walltime_s), "l", ("timelimit",),
        lambda job, now: job.walltime_s,
    ),
    "minutes": Field(
        "MINUTES", lambda job, now: f"{job.walltime_s / 60:.0f}", "", ("timelimitraw",),
        lambda job, now: job.walltime_s,
    ),
    "time_left": Field(
        "TIME_LEFT", lambda job, now: format_time(_left_s(job, now)), "L", ("timeleft",), _left_s
    ),
    "submit": Field(
        "SUBMIT", lambda job, now: format_moment(job.submitted_at), "V", ("submittime",)
    ),
    "start": Field(
        "START", lambda job, now: _moment(job.started_at), "S", ("starttime",),
        lambda job, now: inf if job.started_at is None else job.started_at,
    ),
    "started": Field(
        "START", lambda job, now: _short_moment(job.started_at, now),
        key=lambda job, now: inf if job.started_at is None else job.started_at,
    ),
    "end": Field(
        "END", lambda job, now: _moment(end_of(job)), "e", ("endtime",),
        lambda job, now: inf if (end := end_of(job)) is None else end,
    ),
    "nodes": Field(
        "NODES", lambda job, now: str(_nodes(job)), "D", ("nnodes", "numnodes"),
        lambda job, now: _nodes(job),
    ),
    "procs": Field(
        "PROCS", lambda job, now: str(_processors(job)), "C", ("ncpus", "alloccpus", "numcpus"),
        lambda job, now: _processors(job),
    ),
    "size": Field(
        "SIZE", lambda job, now: f"{_processors(job)}/{job.max_processors or job.requested}",
        key=lambda job, now: _processors(job),
    ),
    "min": Field(
        "MIN", lambda job, now: str(job.min_processors or job.requested),
        key=lambda job, now: job.min_processors or job.requested,
    ),
    "sizes": Field("SIZES", lambda job, now: sizes_text(job)),
    "priority": Field(
        "PRIORITY", lambda job, now: f"{job.priority:g}", "Qp", ("prioritylong",),
        lambda job, now: job.priority,
    ),
    "done": Field("DONE", lambda job, now: progress_text(job)),
    "demand": Field("DEMAND", lambda job, now: amounts_text(job.shared)),
    "maxmem": Field(
        "MAXMEM", lambda job, now: memory_text(job), "", ("maxrss",),
        lambda job, now: job.max_memory_mib,
    ),
    "exitcode": Field("EXITCODE", lambda job, now: _exit_code(job), "", ("exit_code",)),
    "nodelist": Field("NODELIST", lambda job, now: job.nodes, "N", is_left=True),
    "reason": Field(
        "REASON", lambda job, now: in_local_time(job.reason), "r", is_left=True
    ),
    "place": Field(
        "NODELIST(REASON)",
        lambda job, now: _place(job),
        "R", ("reasonlist",), is_left=True,
    ),
    "how": Field(
        "REASON",
        lambda job, now: in_local_time("; ".join(filter(None, (job.reason, job.failed_resizes)))),
        is_left=True,
    ),
    "command": Field("COMMAND", lambda job, now: " ".join(job.argv), "o", is_left=True),
    "output": Field("OUTPUT", lambda job, now: job.output, "", ("stdout",), is_left=True),
}  # fmt: skip
_BY_NAME = {name: field for own, field in FIELDS.items() for name in (own, *field.names)}
_BY_LETTER = {letter: field for field in FIELDS.values() for letter in field.letters}
LETTERS = " ".join(
    f"%{letter} {name}" for name, field in sorted(FIELDS.items()) for letter in field.letters
)


class Column(NamedTuple):
    """A column of a listing.

    Attributes
    ----------
    width : characters; shorter texts are filled up, longer ones cut off. 0: as wide as needed.
    is_left : whether the texts begin at the left.
    after : text up to the next column, in a format of letters.
    name : as the format has it; "" in a format of letters.
    """

    field: Field
    width: int = 0
    is_left: bool = True
    after: str = ""
    name: str = ""

    def fit(self, text: str) -> str:
        """Write a text in the width of the column."""
        if not self.width:
            return text
        cut = text[: self.width]
        return cut.ljust(self.width) if self.is_left else cut.rjust(self.width)


class JobFormat(NamedTuple):
    """Columns of a listing of jobs.

    Attributes
    ----------
    columns : from left to right.
    before : text before the first column; None: the columns are aligned as a table.
    """

    columns: list[Column]
    before: str | None = None

    @property
    def has_starts(self) -> bool:
        """Whether a column has the starts of jobs, of queued ones the expected starts."""
        return any(column.field.heading == "START" for column in self.columns)

    @classmethod
    def of(cls, *names: str) -> JobFormat:
        """Make a table of these fields."""
        return cls([Column(FIELDS[name], is_left=FIELDS[name].is_left) for name in names])

    @classmethod
    def parse(cls, text: str) -> JobFormat:
        """Read a format in letters or names.

        Raises
        ------
        ReshapeError : there is no such field.
        """
        return _in_letters(text) if LETTER.search(text) else _in_names(text)

    def table(self, jobs: Sequence[JobInfo], now: float) -> Table:
        """Make a table of jobs."""
        rows = [
            [column.fit(column.field.text(job, now)) for column in self.columns] for job in jobs
        ]
        left = {column.field.heading for column in self.columns if column.is_left}
        return Table([column.field.heading for column in self.columns], rows, frozenset(left))

    def render(
        self, jobs: Sequence[JobInfo], now: float, *, parsable: bool = False, heads: bool = True
    ) -> str:
        """Write jobs, a line each.

        Parameters
        ----------
        parsable : separate the columns of a table by ``|``.
        heads : begin with a line of headings.
        """
        if self.before is None:
            text = render(self.table(jobs, now), parsable)
            return text if heads else text.partition("\n")[2]
        lines = [[column.field.text(job, now) for column in self.columns] for job in jobs]
        if heads:
            lines.insert(0, [column.field.heading for column in self.columns])
        return "\n".join(self.before + self._joined(line) for line in lines)

    def _joined(self, texts: Sequence[str]) -> str:
        pairs = zip(self.columns, texts, strict=True)
        return "".join(column.fit(plain(text)) + column.after for column, text in pairs)


def width_of(text: str) -> int:
    """Read the width of a column; 0 of "", which is as wide as needed.

    Raises
    ------
    ReshapeError : it is too large.
    """
    width = whole_number(text or "0", MOST_WIDE)
    if width is None:
        raise ReshapeError(
            f"the format has a column of {text[:20]} characters: at most {MOST_WIDE}"
        )
    return width


def _in_letters(text: str) -> JobFormat:
    columns: list[Column] = []
    before, end = "", 0
    for match in LETTER.finditer(text):
        between, end = text[end : match.start()], match.end()
        point, width, letter = match.groups()
        if letter != "%" and letter not in _BY_LETTER:
            raise ReshapeError(f"the format has the letter %{letter}: known are {LETTERS}")
        if columns:
            columns[-1] = columns[-1]._replace(after=columns[-1].after + between)
        else:
            before += between
        if letter == "%" and columns:
            columns[-1] = columns[-1]._replace(after=columns[-1].after + "%")
        elif letter == "%":
            before += "%"
        else:
            columns.append(Column(_BY_LETTER[letter], width_of(width), is_left=not point))
    if not columns:
        raise ReshapeError(f"the format {text!r} has no field: known are {LETTERS}")
    columns[-1] = columns[-1]._replace(after=columns[-1].after + text[end:])
    return JobFormat(columns, before)


def _in_names(text: str) -> JobFormat:
    columns = []
    for part in text.split(","):
        match = _NAME.fullmatch(part)
        field = None if match is None else _BY_NAME.get(match[1].lower())
        if match is None or field is None:
            word = part.strip() if match is None else match[1]
            unknown = f"the format has the field {word!r}"
            raise ReshapeError(unknown + nearest(word.lower(), sorted(_BY_NAME)))
        is_left = field.is_left if match[2] is None else match[2] != "%"
        columns.append(Column(field, width_of(match[3] or ""), is_left, name=match[1]))
    return JobFormat(columns)


def sorted_jobs(jobs: Sequence[JobInfo], text: str, now: float) -> list[JobInfo]:
    """Sort jobs by fields, the first one first; ``-`` before a field sorts from high to low.

    Parameters
    ----------
    text : names or letters of fields, such as ``-priority,jobid`` or ``-Q,i``.

    Raises
    ------
    ReshapeError : there is no such field.
    """
    ordered = list(jobs)
    for part in reversed(text.split(",")):
        word = part.strip().lstrip("+-")
        field = _BY_LETTER.get(word) or _BY_NAME.get(word.lower())
        if field is None:
            unknown = f"jobs cannot be sorted by {word!r}"
            raise ReshapeError(unknown + nearest(word.lower(), sorted(_BY_NAME)))
        key = field.sort_key
        ordered.sort(key=lambda job: key(job, now), reverse=part.strip().startswith("-"))
    return ordered


def queue_format(jobs: Sequence[JobInfo]) -> JobFormat:
    """Columns of `reshape queue`, similar to those of squeue.

    QUEUE is the partition or the queue, SIZE the current (or requested) size and the largest one.
    DONE, the progress, is a column if that of a job is known, and DEMAND, of each process, if a job
    declares one.
    """
    done = ["done"] if any(job.iterations for job in jobs) else []
    demand = ["demand"] if any(job.shared for job in jobs) else []
    who, times = ("jobid", "queue", "name", "user", "st"), ("time", "time_left")
    return JobFormat.of(*who, *times, *done, "nodes", "size", *demand, "started", "place")


def history_format() -> JobFormat:
    """Columns of `reshape history`, similar to those of sacct."""
    ends = ("exitcode", "submit", "wait", "run", "sizes", "maxmem", "how")
    return JobFormat.of("jobid", "queue", "name", "user", "state", *ends)


def steps_format() -> JobFormat:
    """Columns of the steps of a job."""
    return JobFormat.of("jobid", "name", "state", "exitcode", "time", "sizes", "place")


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
