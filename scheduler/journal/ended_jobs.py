"""Ended jobs: what the journal holds of them, found by number or by filters.

The process that decides keeps no ended job in memory. Questions about one read its record and its
description (`summaries`); lists of ended jobs come in pages, the jobs that ended last first. The
service writes both with the end of the job (`Driver._note_changes` and
`ApplicationScheduler.note_ends`); :mod:`scheduler.journal.journal_reader` describes all tables.

Tasks of arrays have no record of their own if they have never been jobs. The record of the array
says which of them are to come, held or cancelled. When and why one was cancelled is in the events
of the array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

import msgspec
from msgspec.structs import replace

from reshape.errors import ReshapeError
from reshape.times import utc_moment
from scheduler.journal.clock import ahead_of_job_s, noted_ahead_s
from scheduler.journal.descriptions import decode_summary, describe_recorded
from scheduler.journal.explanations import explanation_lines
from scheduler.journal.journal_format import CONTINUE_REMOVED, SUMMARY, KeptSubmission, unseal
from scheduler.journal.journal_reader import ORDERS_LIMIT, JournalReader
from scheduler.model.arrays import TaskArray, TaskOf, positions_of
from scheduler.model.events import Event, HoldChanged, JobCancelled, JobSubmitted, JobUpdated
from scheduler.model.job import FINAL, Job
from scheduler.model.procset import ProcSet
from scheduler.protocol import messages as m
from scheduler.state.derived_jobs import task_to_come, tasks_of

#: Ended jobs in one answer at most.
PAGE = 1000


def ended_info(journal: JournalReader, job: Job) -> m.JobInfo:
    """Describe an ended job, from its noted description if there is one."""
    for (summary,) in journal.rows("SELECT summary FROM summaries WHERE job=?", job.id):
        if (plain := _readable(journal, job.id, summary)) is not None:
            return decode_summary(plain)
    return describe_recorded(job, journal)


def _readable(journal: JournalReader, number: int, summary: bytes) -> bytes | None:
    """Return a noted description that can be decoded, None if it is damaged."""
    try:
        return unseal(SUMMARY.format(number), summary)
    except msgspec.DecodeError as error:
        journal.report_unreadable(f"the description of job {number}", error)
        return None


def without_environment(submission: KeptSubmission) -> KeptSubmission:
    """Return the submission of an ended job as the journal keeps it."""
    return replace(submission, environment={}, environment_part="")


def page(journal: JournalReader, query: m.ListJobs) -> tuple[dict[int, msgspec.Raw], int | None]:
    """Find the ended jobs that a question asks for.

    Returns
    -------
    descriptions (`JobInfo`, MessagePack) by number; number of the job that ended first of these if
    further ones match, else None.

    Raises
    ------
    ReshapeError : a filter has no meaning.
    """
    limit = PAGE if query.limit is None else min(query.limit, PAGE)
    if limit < 1:
        raise ReshapeError(f"the limit must be at least 1, got {limit}")
    rows = list(_matching(journal, query, limit + 1))
    jobs = {}
    for number, summary in rows[:limit]:
        if summary is not None and (plain := _readable(journal, number, summary)) is not None:
            jobs[number] = msgspec.Raw(plain)
        elif (job := journal.recorded_job(number)) is not None:
            jobs[number] = msgspec.Raw(msgspec.msgpack.encode(describe_recorded(job, journal)))
    return jobs, rows[limit - 1][0] if len(rows) > limit else None


def _matching(
    journal: JournalReader, query: m.ListJobs, limit: int
) -> Iterator[tuple[int, bytes | None]]:
    states = {state.name: state.name for state in FINAL} | {s.value: s.name for s in FINAL}
    if query.state is not None and query.state.upper() not in states:
        names = ", ".join(sorted(state.name for state in FINAL))
        raise ReshapeError(f"{query.state!r} is not the state of an ended job: give {names}")
    filters = {
        "records.state=?": None if query.state is None else states[query.state.upper()],
        "records.user=?": query.user,
        "records.name=?": query.name,
        "records.ended_at>=?": query.since,
        "records.ended_at<=?": query.until,
    }
    values = [value for value in filters.values() if value is not None]
    terms = [term for term, value in filters.items() if value is not None]
    terms.append("records.ended_at IS NOT NULL")
    if query.before is not None:
        row = next(journal.rows("SELECT ended_at FROM records WHERE job=?", query.before), None)
        if row is None or row[0] is None:
            raise ReshapeError(f"there is no ended job {query.before} to list the earlier jobs of")
        terms.append("(records.ended_at, records.job)<(?, ?)")
        values += [row[0], query.before]
    return journal.rows(
        "SELECT records.job, summary FROM records LEFT JOIN summaries USING (job)"
        f" WHERE {' AND '.join(terms)} ORDER BY records.ended_at DESC, records.job DESC LIMIT ?",
        *(*values, limit),
    )


def task_without_record(
    journal: JournalReader, number: int, live: Mapping[int, Job] | None = None
) -> Job | None:
    """Return a task of an array that has never been a job: to come, or cancelled before it came.

    Parameters
    ----------
    live : jobs as a core has them, which precede their records.

    Returns
    -------
    None : the number is not that of such a task, or the journal does not hold its array any more.
    """
    array = _array_of(journal, number, live or {})
    if array is None or array.to_come is None:
        return None
    position, coming = number - array.id - 1, array.to_come
    is_left = position in coming.left
    if not (is_left or position in coming.cancelled):
        return None
    task = task_to_come(array, position)
    if not is_left:
        events = events_of_task(journal, array.id, number)
        own = next((event for event in events if isinstance(event, JobCancelled)), None)
        at, why = (own.at, own.why) if own else (array.ended_at or array.submitted_at, array.why)
        task.cancel(at, why)
    return task


def _array_of(journal: JournalReader, number: int, live: Mapping[int, Job]) -> Job | None:
    """Return the array that has a task of a number; the tasks have the numbers after its own."""

    def job(number: int) -> Job | None:
        return live.get(number) or journal.recorded_job(number)

    (before,) = next(journal.rows("SELECT max(job) FROM records WHERE job<?", number))
    latest = None if before is None else job(before)
    if latest is not None and latest.spec.task_of is not None:
        latest = job(latest.spec.task_of.array)
    if latest is None or latest.spec.array is None:
        return None
    return latest if number <= latest.id + latest.spec.array.count else None


def events_of_task(journal: JournalReader, array: int, task: int) -> list[Event]:
    """Return the events of an array that concern one of its tasks, until the task has ended.

    They are as if they were of the task alone.

    Parameters
    ----------
    array, task : numbers of both.
    """
    ended = journal.recorded_job(task)
    until = inf if ended is None or ended.ended_at is None else ended.ended_at
    kinds = JobSubmitted | JobUpdated | HoldChanged | JobCancelled
    own: list[Event] = []
    for event in journal.events_of(array):
        if not isinstance(event, kinds) or event.at > until:
            continue
        if not isinstance(event, HoldChanged | JobCancelled):
            own.append(event)
        elif event.tasks is None or task - array - 1 in event.tasks:
            own.append(replace(event, tasks=None))
    return own


def explanation(
    journal: JournalReader, number: int, task_of: TaskOf | None = None
) -> list[m.Story]:
    """Describe what happened to a job and why, oldest first, at wall times.

    Parameters
    ----------
    task_of : what makes it a task, also if it has never been a job.
    """
    job = journal.recorded_job(number)
    ahead_s = noted_ahead_s(journal) if job is None else ahead_of_job_s(journal, job)
    events = journal.events_of(number)
    if task_of is not None:
        events = [*events_of_task(journal, task_of.array, number), *events]
    orders = journal.orders_of(number, routine=True)
    lines = explanation_lines(events, orders, journal.phases_of(number), ahead_s)
    if len(orders) == ORDERS_LIMIT:
        text = f"earlier decisions are left out: the latest {ORDERS_LIMIT} are shown"
        lines.append(m.Story(at=orders[0][0] + ahead_s, text=text))
    lines = [*_removed_lines(journal, job, ahead_s), *lines]
    return sorted(lines, key=lambda line: line.at)


def _removed_lines(journal: JournalReader, job: Job | None, ahead_s: float) -> list[m.Story]:
    """Say before when decisions at the resize points of a resizable job are not kept.

    Parameters
    ----------
    ahead_s : wall clock minus the service's clock, seconds.
    """
    removed = journal.meta(CONTINUE_REMOVED)
    if job is None or job.recorded_history is None or removed is None:
        return []
    rows = journal.rows("SELECT at FROM orders WHERE seq>? ORDER BY seq LIMIT 1", int(removed))
    at = min((at for (at,) in rows), default=inf)
    at = min(at, job.ended_at or journal.latest_event_at())
    if at <= job.sizes[0][0]:
        return []
    text = f"what was decided at its resize points before {utc_moment(at + ahead_s)} is not kept"
    return [m.Story(at=at + ahead_s, text=text)]


def positions(array: Job, tasks: str) -> ProcSet:
    """Positions of the tasks of an array with some indices.

    Parameters
    ----------
    tasks : indices, as `TaskArray.parse` reads them.

    Raises
    ------
    ReshapeError : it is no array, or has no such tasks.
    """
    if array.spec.array is None:
        raise ReshapeError(f"job {array.id} is no array, and has no tasks {tasks}")
    try:
        return positions_of(tasks_of(array), TaskArray.parse(tasks))
    except ValueError as error:
        raise ReshapeError(f"array {array.id}: {error}") from None
