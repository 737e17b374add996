"""Descriptions of jobs (`JobInfo`), as tables and JSON show them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from reshape.wire.messages import AtResizePoint
from scheduler.journal.clock import ahead_of_job_s, moved_time
from scheduler.journal.explanations import allocation, resizes
from scheduler.journal.journal_format import KeptSubmission
from scheduler.journal.journal_reader import JournalReader, lost_submission
from scheduler.model.arrays import TaskArray, TaskOf, tasks_at
from scheduler.model.events import Event, JobEnded
from scheduler.model.job import FINAL, Job
from scheduler.model.procset import ProcSet
from scheduler.protocol import messages as m
from scheduler.text.job_output import output_name, task_output
from scheduler.text.plain import LONGEST_LABEL, plain

#: Encodes the description of an ended job for the journal, and decodes it.
encode_summary: Callable[[m.JobInfo], bytes] = msgspec.msgpack.Encoder().encode
decode_summary = msgspec.msgpack.Decoder(m.JobInfo).decode
#: Fields of a description that are those of the job, its times, and those of its request.
_OF_JOB = ("size", "walltime_s", "exit_code", "signal", "restarts", "requeues", "partition")
_TIMES = ("submitted_at", "started_at", "ended_at", "redirected_at")
_OF_SPEC = (
    *("name", "user", "max_processors", "min_processors", "queue", "priority"),
    *("resources", "shared"),
)


def describe(
    job: Job,
    journal: JournalReader,
    submission: m.Submission,
    now: float,
    *,
    reason: str,
    ahead_s: float = 0.0,
    nodes_of: Callable[[ProcSet], Iterable[str]] = lambda _: (),
    host: str = "",
    point: AtResizePoint | None = None,
) -> m.JobInfo:
    """Describe a job from its record, its submission and the journal.

    Parameters
    ----------
    now : the service's clock, Unix seconds.
    reason : why it waits, is resized or ended.
    ahead_s : wall clock minus the service's clock, seconds; the times described are wall times.
    nodes_of : names the nodes of processors. Those of an ended job are the nodes that it held last.
    host : that of its first group, "" if it has none.
    point : its last message at a resize point.
    """
    has_run = job.started_at is not None or job.first_group > 1
    events = journal.events_of(job.id) if has_run else []
    orders = journal.orders_of(job.id) if has_run else []
    held, present = allocation(events, orders), ProcSet.union(job.groups.values())
    by_size = processor_seconds(held, job.sizes, now if job.ended_at is None else job.ended_at)
    return m.JobInfo(
        iteration=0 if point is None else point.iteration,
        iteration_s=0.0 if point is None else point.iteration_s,
        iterations=0 if point is None else point.iterations,
        **{name: getattr(job, name) for name in _OF_JOB},
        **_times(job, ahead_s),
        **{name: getattr(job.spec, name) for name in _OF_SPEC},
        job=job.id,
        state=job.state.name,
        code=job.state.value,
        requested=job.spec.processors,
        processors=str(present),
        nodes=",".join(nodes_of(_last_held(held) if job.state in FINAL else present)),
        reason=reason,
        sizes=[(at + ahead_s, size) for at, size in job.sizes],
        resizes=resizes(job, events, orders, ahead_s),
        allocation=[(at + ahead_s, processors) for at, processors in held],
        facts=journal.facts(job.id) if has_run else {},
        output=output_path(submission.output, job.id, submission, host),
        error=output_path(submission.error, job.id, submission, host),
        **{name: getattr(submission, name) for name in ("argv", "ignored")},
        on_nodes="" if job.spec.nodes is None else str(job.spec.nodes),
        processor_seconds=sum(by_size.values()),
        processor_seconds_by_size=sorted(by_size.items()),
        resize_count=job.committed,
        pause_s=job.paused_s,
        max_memory_mib=journal.max_memory_mib(job.id) if has_run else 0,
        last_lines=_last_lines(events) if job.state in FINAL else "",
        **_names(job),
        failed_resizes=job.recorded_history.failures_text() if job.recorded_history else "",
    )


def _times(job: Job, ahead_s: float) -> dict[str, Any]:
    return {name: moved_time(getattr(job, name), ahead_s) for name in _TIMES}


def _last_held(held: Sequence[tuple[float, str]]) -> ProcSet:
    """Return the last processors of an allocation over time."""
    return next((ProcSet.parse(text) for _, text in reversed(held) if text), ProcSet())


def describe_recorded(job: Job, journal: JournalReader, now: float = inf) -> m.JobInfo:
    """Describe a job by the journal alone; one that has not ended, as of `now`, see `describe`."""
    submission = noted_submission(journal, job)
    ahead_s = ahead_of_job_s(journal, job)
    return describe(job, journal, submission, now, reason=job.why, ahead_s=ahead_s)


def iteration_times(job: Job) -> list[tuple[int, float]]:
    """Return (size, typical iteration time in s) of each size on which a job was measured."""
    history = job.recorded_history
    if history is None:
        return []
    times = ((size, history.time_s(size)) for size in sorted(history.visited))
    return [(size, seconds) for size, seconds in times if seconds]


def noted_submission(journal: JournalReader, job: Job) -> KeptSubmission:
    """Return the submission of a job; that of a task which has never been one is its array's."""
    if (launch := journal.launch_of(job.id)) is not None:
        return launch.submission
    own = job.spec.task_of
    array = None if own is None else journal.launch_of(own.array)
    if own is None or array is None or not array.submission.array:
        return lost_submission()
    return task_submission(array.submission, own, TaskArray.parse(array.submission.array))


def task_submission(array: KeptSubmission, own: TaskOf, tasks: TaskArray) -> KeptSubmission:
    """Submission of a task: that of its array with its index, as Slurm names the variables."""
    values = {
        **{"JOB_ID": own.array, "TASK_ID": own.index, "TASK_COUNT": tasks.count},
        **{"TASK_MIN": tasks.smallest, "TASK_MAX": tasks.largest},
        **{"TASK_STEP": tasks.ranges[0][2]},
    }
    variables = {f"RESHAPE_ARRAY_{name}": str(value) for name, value in values.items()}
    return msgspec.structs.replace(
        array,
        array="",
        key="",
        environment=array.environment | variables,
        output=task_output(array.output, own.array, own.index),
        error=task_output(array.error, own.array, own.index),
    )


def submission_command(submission: m.Submission) -> str:
    """Command that submits the same program or script with the main options."""
    options = {
        "-n": submission.processors,
        "--min": submission.min_processors,
        "--max": submission.max_processors,
        "--per-process": submission.per_process if submission.per_process > 1 else None,
        "--walltime": f"{submission.walltime_s:g}s",
        "--partition": submission.partition,
        "--array": submission.array,
        "--chdir": submission.cwd,
    }
    words = [text for name, value in options.items() if value for text in (name, str(value))]
    argv = submission.argv
    if submission.script and not submission.text and argv[1:2] == ["-c"]:
        return plain(f"reshape batch {shlex.join([*words, '--wrap', *argv[2:3]])}")
    name = "batch" if submission.script else "submit"
    return plain(f"reshape {name} {shlex.join([*words, '--', *argv])}")


def label_of(job: Job) -> str:
    """How users write a task, 17_4, an array with tasks to come, 17_[5-9], or a step, 17.0."""
    if job.spec.step_of is not None:
        return str(job.spec.step_of)
    if job.spec.task_of is not None:
        return str(job.spec.task_of)
    rest = _tasks(job).get("pending_tasks")
    if not rest:
        return ""
    cut = rest if len(rest) <= LONGEST_LABEL else rest[:LONGEST_LABEL].rpartition(",")[0] + ",..."
    return f"{job.id}_[{cut}]"


def _names(job: Job) -> dict[str, Any]:
    """Fields of a description that say what a job is: a task, an array or a step."""
    step = job.spec.step_of
    return {"label": label_of(job), "step_of": 0 if step is None else step.job, **_tasks(job)}


def _tasks(job: Job) -> dict[str, Any]:
    """Fields of a description with the tasks of an array; none of another job."""
    array, coming = job.spec.array, job.to_come
    if array is None:
        return {}
    if coming is None:
        return {"array": str(array)}
    sets = {
        "pending_tasks": coming.left if job.state not in FINAL else ProcSet(),
        "held_tasks": coming.all_held,
        "held_by_admin": coming.held_by_administrator,
    }
    parts = {name: tasks_at(array, positions) for name, positions in sets.items()}
    texts = {name: "" if part is None else str(part) for name, part in parts.items()}
    return {"array": str(array), **texts}


def processor_seconds(
    held: Sequence[tuple[float, str]], sizes: Sequence[tuple[float, int]], until: float
) -> dict[int, float]:
    """Integrate the number of processors that a job held over time.

    Parameters
    ----------
    held : (time, processors as in "0-3 7") of each change of its allocation.
    sizes : (time, size) of each change of its committed size.
    until : end of the last interval, seconds.

    Returns
    -------
    size on which the job computed -> processor-seconds that it held meanwhile.
    """
    changes: list[tuple[float, int | None, int | None]] = [
        *((at, len(ProcSet.parse(text)), None) for at, text in held),
        *((at, None, size) for at, size in sizes),
        (until, None, None),
    ]
    changes.sort(key=lambda change: change[0])
    by_size: dict[int, float] = {}
    count = size = 0
    for (begin, new_count, new_size), (end, _, _) in pairwise(changes):
        count = count if new_count is None else new_count
        size = size if new_size is None else new_size
        if count and begin < end <= until:
            computing = size or count  # before its first size was committed
            by_size[computing] = by_size.get(computing, 0.0) + count * (end - begin)
    return by_size


def _last_lines(events: Sequence[Event]) -> str:
    """Last lines of the output, as the last end of the job reports them."""
    return next((e.last_lines for e in reversed(events) if isinstance(e, JobEnded)), "")


def output_path(text: str, job: int, submission: m.Submission, host: str = "") -> str:
    """Return the file that a job writes to on a host; "" if there is none.

    That of an array has the placeholders of a task.

    Parameters
    ----------
    text : name of the file as submitted, with placeholders.
    """
    if not text:
        return ""
    name = output_name(
        text,
        job=job,
        name=submission.name,
        user=submission.user,
        host=host,
        is_array=bool(submission.array),
    )
    return str(Path(submission.cwd) / name)
