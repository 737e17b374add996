"""The columns of jobs: one table of fields, from which all listings of jobs are made.

A format names fields by letters as squeue(1) does (``"%.10i %T"``), or by names as sacct(1) and
``squeue -O`` do (``"jobid,state:20"``).

The tasks of an array that are to come are jobs in a list, although the service has none of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from msgspec.structs import replace

from reshape.errors import ReshapeError, nearest
from reshape.key_values import whole_number
from reshape.times import in_local_time
from scheduler.model.arrays import TaskArray, positions_of
from scheduler.model.procset import ProcSet
from scheduler.protocol.messages import JobInfo
from scheduler.text.formats import format_moment, format_time
from scheduler.text.plain import escaped
from scheduler.text.tables import Table, render

#: A column in letters: width, after a point if it is aligned to the right, and letter.
_LETTER = re.compile(r"%(\.?)(\d*)([A-Za-z%])", re.ASCII)
#: Characters of a column, at most.
_MOST_WIDE = 4096
#: A column by name. Its width follows ``:``, as of squeue, or ``%-``: the texts begin at the left.
#: Where it follows ``%``, as of sacct, they end at the right.
_NAME = re.compile(r"\s*([A-Za-z_]+)\s*(?:(:|%-?)(\d+))?\s*", re.ASCII)


class Field(NamedTuple):
    """A field of a job, or of another thing that a listing has lines of.

    Attributes
    ----------
    heading : of its column.
    value : what it is of a job at a time (Unix seconds). Jobs are sorted by it, None comes last.
    letters : of ``squeue --format``; "": none.
    names : further names, those of squeue and sacct.
    form : writes a value that is not None.
    is_left : whether the column is aligned to the left.
    unknown : text of None.
    """

    heading: str
    value: Callable[[Any, float], Any]
    letters: str = ""
    names: tuple[str, ...] = ()
    form: Callable[[Any], str] = str
    is_left: bool = False
    unknown: str = "-"

    def text(self, job: Any, now: float) -> str:
        """Write what it is of a job."""
        value = self.value(job, now)
        return self.unknown if value is None else self.form(value)


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


def progress_pct(job: JobInfo) -> int | None:
    """Percentage of its iterations that a job has finished; None if it is not known."""
    return 100 * job.iteration // job.iterations if job.iterations else None


def _processors(job: JobInfo) -> int:
    return job.size or job.requested


def _place(job: JobInfo) -> str:
    """Write the nodes of a job; of one that waits or has ended its reason, if there is one."""
    is_told = job.reason and (job.ended_at is not None or not job.nodes)
    return f"({in_local_time(job.reason)})" if is_told else job.nodes


def _short_moment(moments: tuple[float, float]) -> str:
    """Write a Unix time as the local time of day; on another day than the second one, the date."""
    date, _, time = format_moment(moments[0]).partition("T")
    return time if format_moment(moments[1]).startswith(date) else f"{date[5:]}T{time[:5]}"


def _array(job: JobInfo, part: int) -> str:
    """Number of the array (part 0) or index of the task (part 2) that a job is."""
    parts = job.label.partition("_")
    return parts[part] if parts[1] else (str(job.job) if part == 0 else "N/A")


#: Name -> field.
FIELDS: dict[str, Field] = {
    "jobid": Field("JOBID", lambda job, now: (job.job, job.label or f"{job.job}"), "i",
                   form=itemgetter(1)),
    "number": Field("NUMBER", lambda job, now: job.job, "A", ("jobidraw",)),
    "array": Field("ARRAY", lambda job, now: _array(job, 0), "F", ("arrayjobid",)),
    "task": Field("TASK", lambda job, now: _array(job, 2), "K", ("arraytaskid",)),
    "queue": Field("QUEUE", lambda job, now: job.partition or job.queue or "-", "q", ("qos",),
                   is_left=True),
    "partition": Field("PARTITION", lambda job, now: job.partition, "P", is_left=True),
    "name": Field("NAME", lambda job, now: job.name, "j", ("jobname",), is_left=True),
    "user": Field("USER", lambda job, now: job.user, "u", ("username",), is_left=True),
    "st": Field("ST", lambda job, now: job.code, "t", ("statecompact",), is_left=True),
    "state": Field("STATE", lambda job, now: job.state, "T", is_left=True),
    "time": Field("TIME", running_s, "M", ("elapsed", "timeused"), format_time),
    "seconds": Field("SECONDS", running_s, "", ("elapsedraw",), "{:.0f}".format),
    "wait": Field("WAIT", waited_s, form=format_time),
    "walltime": Field("WALLTIME", lambda job, now: job.walltime_s, "l", ("timelimit",),
                      format_time),
    "minutes": Field("MINUTES", lambda job, now: job.walltime_s / 60, "", ("timelimitraw",),
                     "{:.0f}".format),
    "time_left": Field("TIME_LEFT", lambda job, now: job.walltime_s - running_s(job, now), "L",
                       ("timeleft",), format_time),
    "submit": Field("SUBMIT", lambda job, now: job.submitted_at, "V", ("submittime",),
                    format_moment),
    "start": Field("START", lambda job, now: job.started_at, "S", ("starttime",), format_moment),
    "started": Field("START", lambda job, now: None if job.started_at is None
                     else (job.started_at, now), form=_short_moment),
    "end": Field("END", lambda job, now: end_of(job), "e", ("endtime",), format_moment),
    "nodes": Field("NODES", lambda job, now: len(job.nodes.split(",")) if job.nodes else 0, "D",
                   ("nnodes", "numnodes")),
    "procs": Field("PROCS", lambda job, now: _processors(job), "C",
                   ("ncpus", "alloccpus", "numcpus")),
    "size": Field("SIZE", lambda job, now: (_processors(job), job.max_processors or job.requested),
                  form=lambda sizes: "{}/{}".format(*sizes)),
    "min": Field("MIN", lambda job, now: job.min_processors or job.requested),
    "sizes": Field("SIZES", lambda job, now: sizes_text(job)),
    "priority": Field("PRIORITY", lambda job, now: job.priority, "Qp", ("prioritylong",),
                      "{:g}".format),
    "done": Field("DONE", lambda job, now: progress_pct(job), form="{}%".format),
    "demand": Field("DEMAND", lambda job, now: amounts_text(job.shared)),
    "maxmem": Field("MAXMEM", lambda job, now: job.max_memory_mib, "", ("maxrss",),
                    lambda mib: f"{mib}M" if mib else "-"),
    "exitcode": Field("EXITCODE", lambda job, now: f"{job.exit_code}:{job.signal}", "",
                      ("exit_code",)),
    "nodelist": Field("NODELIST", lambda job, now: job.nodes, "N", is_left=True),
    "reason": Field("REASON", lambda job, now: in_local_time(job.reason), "r", is_left=True),
    "place": Field("NODELIST(REASON)", lambda job, now: _place(job), "R", ("reasonlist",),
                   is_left=True),
    "how": Field("REASON", lambda job, now: in_local_time(
        "; ".join(filter(None, (job.reason, job.failed_resizes)))), is_left=True),
    "command": Field("COMMAND", lambda job, now: " ".join(job.argv), "o", is_left=True),
    "output": Field("OUTPUT", lambda job, now: job.output, "", ("stdout",), is_left=True),
}  # fmt: skip
_BY_NAME = {name: field for own, field in FIELDS.items() for name in (own, *field.names)}
_BY_LETTER = {letter: field for field in FIELDS.values() for letter in field.letters}


class Column(NamedTuple):
    """A column of a listing.

    Attributes
    ----------
    width : characters; shorter texts are filled up, longer ones cut off. 0: as wide as needed.
    is_left : whether the texts begin at the left.
    name : as the format has it; "" in a format of letters.
    """

    field: Field
    width: int = 0
    is_left: bool = True
    name: str = ""

    def fit(self, text: str) -> str:
        """Write a text in the width of the column."""
        if not self.width:
            return text
        cut = text[: self.width]
        return cut.ljust(self.width) if self.is_left else cut.rjust(self.width)


class ListingFormat(NamedTuple):
    """Columns of a listing, of jobs unless its fields are of other things.

    Attributes
    ----------
    columns : from left to right.
    between : texts before, between and after the columns; None: they are aligned as a table.
    """

    columns: list[Column]
    between: list[str] | None = None

    @property
    def has_starts(self) -> bool:
        """Whether a column has the starts of jobs, of queued ones the expected starts."""
        return any(column.field.heading == "START" for column in self.columns)

    @classmethod
    def parse(cls, text: str) -> ListingFormat:
        """Read a format in letters or names.

        Raises
        ------
        ReshapeError : there is no such field.
        """
        return in_letters(text) if _LETTER.search(text) else _in_names(text)

    def table(self, jobs: Sequence[JobInfo], now: float) -> Table:
        """Make a table of jobs."""
        rows = [
            [column.fit(column.field.text(job, now)) for column in self.columns] for job in jobs
        ]
        left = {column.field.heading for column in self.columns if column.is_left}
        return Table([column.field.heading for column in self.columns], rows, frozenset(left))

    def render(self, jobs: Sequence[Any], now: float, *, heads: bool = True) -> str:
        """Write jobs, a line each.

        Parameters
        ----------
        heads : begin with a line of headings.
        """
        if self.between is None:
            text = render(self.table(jobs, now))
            return text if heads else text.partition("\n")[2]
        lines = [[column.field.text(job, now) for column in self.columns] for job in jobs]
        if heads:
            lines.insert(0, [column.field.heading for column in self.columns])
        before, *after = self.between
        return "\n".join(
            before
            + "".join(
                column.fit(escaped(text)) + then
                for column, text, then in zip(self.columns, line, after, strict=True)
            )
            for line in lines
        )


def _width(text: str) -> int:
    """Read the width of a column; 0 of "", which is as wide as needed."""
    width = whole_number(text or "0", _MOST_WIDE)
    if width is None:
        raise ReshapeError(
            f"the format has a column of {text[:20]} characters: at most {_MOST_WIDE}"
        )
    return width


def in_letters(text: str, fields: Mapping[str, Field] = _BY_LETTER) -> ListingFormat:
    """Read a format in letters.

    Parameters
    ----------
    fields : letter -> field.

    Raises
    ------
    ReshapeError : there is no such field, or none in the format.
    """
    letters = " ".join(f"%{letter} {field.heading.lower()}" for letter, field in fields.items())
    columns: list[Column] = []
    before, *parts = _LETTER.split(text)
    between = [before]
    for point, width, letter, after in zip(*[iter(parts)] * 4, strict=True):
        if letter == "%":
            between[-1] += f"%{after}"
        elif letter in fields:
            columns.append(Column(fields[letter], _width(width), is_left=not point))
            between.append(after)
        else:
            raise ReshapeError(f"the format has the letter %{letter}: known are {letters}")
    if not columns:
        raise ReshapeError(f"the format {text!r} has no field: known are {letters}")
    return ListingFormat(columns, between)


def _in_names(text: str) -> ListingFormat:
    columns = []
    for part in text.split(","):
        match = _NAME.fullmatch(part)
        field = None if match is None else _BY_NAME.get(match[1].lower())
        if match is None or field is None:
            word = part.strip() if match is None else match[1]
            unknown = f"the format has the field {word!r}"
            raise ReshapeError(unknown + nearest(word.lower(), _BY_NAME))
        is_left = field.is_left if match[2] is None else match[2] != "%"
        columns.append(Column(field, _width(match[3] or ""), is_left, name=match[1]))
    return ListingFormat(columns)


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
            raise ReshapeError(unknown + nearest(word.lower(), _BY_NAME))
        ordered.sort(
            key=lambda job: ((value := field.value(job, now)) is None, value),
            reverse=part.strip().startswith("-"),
        )
    return ordered


def states_in(text: str, names: Mapping[str, str]) -> set[str]:
    """Read the states of a list, by their short or long names, in any case.

    Parameters
    ----------
    names : short name -> long name. ``all`` stands for all of them.

    Raises
    ------
    ReshapeError : there is no such state.
    """
    states = {names.get(word, word) for word in text.upper().split(",")}
    known_states = {*names.values()}
    if "ALL" in states:
        return known_states
    for word in sorted(states - known_states):
        raise ReshapeError(
            f"{word!r} is no state of a job: known are {', '.join(sorted(known_states))}"
        )
    return states


def choose(jobs: Iterable[JobInfo], **choices: str | Container[str] | None) -> list[JobInfo]:
    """Choose the jobs whose fields have one of some values.

    Parameters
    ----------
    choices : field of `JobInfo` -> values, also as a list with commas; None: all.
    """
    allowed = {
        name: values.split(",") if isinstance(values, str) else values
        for name, values in choices.items()
        if values is not None
    }
    return [job for job in jobs if all(getattr(job, name) in allowed[name] for name in allowed)]


def queue_format(jobs: Sequence[JobInfo]) -> ListingFormat:
    """Columns of `reshape queue`, similar to those of squeue.

    QUEUE is the partition or the queue, SIZE the current (or requested) size and the largest one.
    DONE, the progress, is a column if that of a job is known, and DEMAND, of each process, if a job
    declares one.
    """
    done = "done," if any(job.iterations for job in jobs) else ""
    demand = "demand," if any(job.shared for job in jobs) else ""
    names = f"jobid,queue,name,user,st,time,time_left,{done}nodes,size,{demand}started,place"
    return ListingFormat.parse(names)


#: Columns of `reshape history`, similar to those of sacct, and of the steps of a job.
HISTORY = "jobid,queue,name,user,state,exitcode,submit,wait,time,sizes,maxmem,how"
STEPS = "jobid,name,state,exitcode,time,sizes,place"


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
