"""Tasks of arrays that have no record of their own, because they have never been jobs.

The record of the array says which of them are to come, held or cancelled. When and why one was
cancelled is in the events of the array.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import msgspec
from msgspec.structs import replace

from reshape.errors import ReshapeError
from scheduler.model.events import Event, HoldChanged, JobCancelled, JobSubmitted, JobUpdated
from scheduler.model.job import FINAL, Job
from scheduler.model.procset import ProcSet
from scheduler.model.requests.task_array import TaskArray
from scheduler.model.requests.tasks_to_come import positions_of
from scheduler.replay.journal_format import event_decoder
from scheduler.replay.journal_reader import JournalReader
from scheduler.service.record.ended_jobs import recorded_job
from scheduler.state.derived_jobs.arrays import task_to_come, tasks_of


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
    if not is_left or array.state in FINAL:  # an earlier release did not note them as cancelled
        at, why = _cancellation(journal, array, position)
        task.cancel(at, why)
    return task


def _array_of(journal: JournalReader, number: int, live: Mapping[int, Job]) -> Job | None:
    """Return the array that has a task of a number; the tasks have the numbers after its own."""

    def job(number: int) -> Job | None:
        return live.get(number) or recorded_job(journal, number)

    (before,) = next(journal.rows("SELECT max(job) FROM records WHERE job<?", number))
    latest = None if before is None else job(before)
    if latest is not None and latest.spec.task_of is not None:
        latest = job(latest.spec.task_of.array)
    if latest is None or latest.spec.array is None:
        return None
    return latest if number <= latest.id + latest.spec.array.count else None


def _cancellation(journal: JournalReader, array: Job, position: int) -> tuple[float, str]:
    """Time and reason of the cancellation of a task: of its own, or of its array."""
    for (blob,) in journal.rows(_CANCELLATIONS, array.id):
        try:
            event = event_decoder.decode(blob)
        except (msgspec.DecodeError, ValueError) as error:
            journal.report_unreadable(f"a cancellation of array {array.id}", error)
            continue
        if isinstance(event, JobCancelled) and concerns(event.tasks, position):
            return event.at, event.why
    return array.ended_at or array.submitted_at, array.why


def concerns(tasks: ProcSet | None, position: int) -> bool:
    """Whether an event of an array, with the positions of its tasks, concerns one of them."""
    return tasks is None or position in tasks


def events_of_task(journal: JournalReader, array: int, task: int) -> list[Event]:
    """Return the events of an array that concern one of its tasks, until the task has ended.

    They are as if they were of the task alone.

    Parameters
    ----------
    array, task : numbers of both.
    """
    ended = recorded_job(journal, task)
    until = inf if ended is None or ended.ended_at is None else ended.ended_at
    kinds = JobSubmitted | JobUpdated | HoldChanged | JobCancelled
    own: list[Event] = []
    for event in journal.events_of(array):
        if not isinstance(event, kinds) or event.at > until:
            continue
        if not isinstance(event, HoldChanged | JobCancelled):
            own.append(event)
        elif concerns(event.tasks, task - array - 1):
            own.append(replace(event, tasks=None))
    return own


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


_CANCELLATIONS = "SELECT event FROM events WHERE job=? AND kind='JobCancelled' ORDER BY seq"
