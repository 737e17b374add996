"""The tasks of an array that are to come, which a listing has in the line of their array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from scheduler.model.procset import ProcSet
from scheduler.model.requests.task_array import TaskArray
from scheduler.model.requests.tasks_to_come import positions_of
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
