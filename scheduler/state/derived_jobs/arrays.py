"""Arrays of a partition: their tasks come to the queue as processors become free.

An array that is eligible is not in the queue itself. Before a pass, as many of its tasks are queued
as could start then, and one more, for which the pass may reserve processors.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from scheduler.model.events import JobSpec
from scheduler.model.job import COMPLETED, FINAL, PENDING, Job, JobState
from scheduler.model.orders import Await, Drop, Enqueue, Facts, Order, Reason
from scheduler.model.requests.task_array import TaskArray, TaskOf


class Arrays:
    """The arrays of a partition.

    Parameters
    ----------
    jobs : job number -> job, of all partitions.
    unended : array -> number of its queued tasks that have not ended, of all partitions.

    Attributes
    ----------
    open : arrays with tasks that are still to be queued, by number.
    """

    def __init__(self, jobs: dict[int, Job], unended: dict[int, int]) -> None:
        self._jobs, self._unended = jobs, unended
        self.open: dict[int, Job] = {}
        self._waiting: dict[int, list[int]] = {}  # array -> queued tasks that may not have started

    def add(self, array: Job) -> None:
        """Take an array that is eligible, or one that is held after some of its tasks."""
        tasks = [job.id for job in self.tasks(array)]
        self._waiting[array.id], self._unended[array.id] = tasks, len(tasks)
        is_eligible = array.conditions is None and array.cause is None
        if is_eligible and array.tasks_queued < _tasks(array).count:
            self.open[array.id] = array

    def tasks(self, array: Job) -> list[Job]:
        """Tasks of an array that are queued or hold processors."""
        numbers = range(array.id + 1, array.id + 1 + array.tasks_queued)
        tasks = (self._jobs.get(number) for number in numbers)
        return [job for job in tasks if job is not None and job.state not in FINAL]

    def tasks_here(self, array: Job) -> list[Job]:
        """Those of `tasks` that are in the partition of their array; others were redirected."""
        return [task for task in self.tasks(array) if task.partition == array.partition]

    def due(self, free: int, orders: list[Order]) -> list[Job]:
        """Return the tasks that are to be queued now.

        Parameters
        ----------
        free : number of free processors.
        """
        made: list[Job] = []
        for array in list(self.open.values()):
            tasks = _tasks(array)
            number = array.id
            jobs, waiting = self._jobs, self._waiting[number]
            waiting[:] = [n for n in waiting if n in jobs and jobs[n].state is PENDING]
            count = min(free // array.spec.processors + 1 - len(waiting), self._left(array))
            for _ in range(count):
                place = array.tasks_queued
                task = self._task(array, place, tasks.index(place))
                array.tasks_queued += 1
                self._unended[number] += 1
                waiting.append(task.id)
                made.append(task)
                facts: Facts = {"array": number, "index": tasks.index(place)}
                reason = Reason("array", "task {index} of array {array}", facts)
                orders.append(Enqueue(task.id, reason))
            if array.tasks_queued == tasks.count:
                del self.open[number]
            if count > 0:
                orders.append(Await(number, self.reason(array)))
        return made

    def _left(self, array: Job) -> int:
        """Number of tasks that may be queued now."""
        tasks = _tasks(array)
        left = tasks.count - array.tasks_queued
        return min(left, tasks.at_once - self._unended[array.id]) if tasks.at_once else left

    def _task(self, array: Job, place: int, index: int) -> Job:
        spec = task_spec(array.spec, TaskOf(array.id, index))
        task = Job(array.id + 1 + place, spec, array.submitted_at)
        task.queued_at, task.partition = array.queued_at, array.partition
        self._jobs[task.id] = task
        return task

    def note_end(self, task: Job, now: float, orders: list[Order]) -> Job | None:
        """Note that a task has ended; return the array if it has ended with it."""
        assert task.spec.task_of is not None
        array = self._jobs.get(task.spec.task_of.array)
        if array is None or array.id not in self._unended:
            return None
        self._unended[array.id] -= 1
        if task.state is not COMPLETED:
            array.tasks_failed += 1
            array.exit_code = array.exit_code or task.exit_code
            orders.append(Await(array.id, self.reason(array)))
        return self.end(array, now, orders)

    def end(self, array: Job, now: float, orders: list[Order]) -> Job | None:
        """End an array if all its tasks have ended, and no further ones come."""
        has_more = array.cause is None and array.tasks_queued < _tasks(array).count
        if has_more or self._unended[array.id]:
            return None
        final = JobState.FAILED if array.tasks_failed else COMPLETED
        array.state = array.cause or final
        array.ended_at = now
        facts: Facts = {"count": array.tasks_queued, "failed": array.tasks_failed}
        reason = Reason("array", "{count} tasks have ended, {failed} of them failed", facts)
        array.why = array.why or reason.sentence
        self.forget(array)
        orders.append(Drop(array.id, reason))
        return array

    def close(self, array: Job) -> None:
        """Queue no further tasks of an array."""
        self.open.pop(array.id, None)

    def forget(self, array: Job) -> None:
        """Drop an array that has ended, or goes to another partition."""
        self.close(array)
        self._waiting.pop(array.id, None)
        self._unended.pop(array.id, None)

    def reason(self, array: Job) -> Reason:
        """Why an array has not ended."""
        tasks = _tasks(array)
        facts: Facts = {"queued": array.tasks_queued, "count": tasks.count}
        text = "{queued} of {count} tasks have come to the queue"
        if array.tasks_failed:
            facts = {**facts, "failed": array.tasks_failed}
            text += ", {failed} of them failed"
        rule = "Array"
        if array.id in self.open and self._left(array) <= 0:
            facts = {**facts, "most": tasks.at_once}
            rule, text = "JobArrayTaskLimit", f"{text}; at most {{most}} are there at a time"
        return Reason(rule, text, facts)


def task_spec(array: JobSpec, own: TaskOf) -> JobSpec:
    """Request of a task: that of its array."""
    return replace(array, array=None, conditions=None, task_of=own)


def last_number(jobs: Iterable[Job]) -> int:
    """Largest number that jobs and the tasks of arrays have, or will have; 0 without jobs."""
    own = (job.id if job.spec.array is None else job.id + job.spec.array.count for job in jobs)
    return max(own, default=0)


def _tasks(array: Job) -> TaskArray:
    assert array.spec.array is not None
    return array.spec.array
