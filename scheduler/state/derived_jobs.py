"""Jobs that come from other jobs: tasks of arrays, and steps of job scripts.

An array that is eligible is not in the queue itself. Before a pass, as many of its tasks are queued
as could start then, and one more, for which the pass may reserve processors. A task becomes a job
when it comes to the queue, or before when its own request is changed; until then the array knows
whether it is held or cancelled (`scheduler.model.arrays`).

The first group of a step is lent: its processors are among those that the step's job was granted,
and remain allocated to the job. The step gives them back at its end without a release. What a step
has beyond its first group is its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from scheduler.model.arrays import TaskArray, TaskOf, TasksToCome
from scheduler.model.events import JobSpec
from scheduler.model.job import COMPLETED, PENDING, Job, JobState
from scheduler.model.orders import Await, Drop, Enqueue, Facts, Order, Reason
from scheduler.model.procset import ProcSet
from scheduler.model.requests import Conditions


class Arrays:
    """The arrays of a partition.

    Parameters
    ----------
    jobs : job number -> job, of all partitions.
    unended : array -> its tasks that are jobs and have not ended by number, of all partitions.

    Attributes
    ----------
    open : arrays with tasks that are ready to be queued, by number.
    """

    def __init__(self, jobs: dict[int, Job], unended: dict[int, dict[int, Job]]) -> None:
        self._jobs, self._unended = jobs, unended
        self.open: dict[int, Job] = {}
        self._waiting: dict[int, set[int]] = {}  # array -> queued tasks that may not have started

    def add(self, array: Job) -> None:
        """Take an array that is eligible."""
        self._waiting.setdefault(array.id, set())
        self._unended.setdefault(array.id, {})
        if array.conditions is None and array.cause is None and to_come(array).ready:
            self.open[array.id] = array

    def add_task(self, task: Job) -> None:
        """Note a task that is a job, or is queued again."""
        number = task_of(task).array
        self._unended.setdefault(number, {})[task.id] = task
        if task.state is PENDING:
            self._waiting.setdefault(number, set()).add(task.id)

    def tasks(self, array: Job, positions: ProcSet | None = None) -> list[Job]:
        """Tasks of an array that are queued or hold processors.

        Parameters
        ----------
        positions : of the tasks that are asked for; None: all.
        """
        tasks = sorted(self._unended.get(array.id, {}).items())
        return [t for n, t in tasks if positions is None or n - array.id - 1 in positions]

    def tasks_here(self, array: Job, positions: ProcSet | None = None) -> list[Job]:
        """Those of `tasks` that are in the partition of their array; others were redirected."""
        return [t for t in self.tasks(array, positions) if t.partition == array.partition]

    def due(self, free: int, orders: list[Order]) -> list[Job]:
        """Return the tasks that are to be queued now.

        Parameters
        ----------
        free : number of free processors.
        """
        made: list[Job] = []
        for array in list(self.open.values()):
            number, jobs = array.id, self._jobs
            waiting = {n for n in self._waiting[number] if n in jobs and jobs[n].state is PENDING}
            self._waiting[number] = waiting
            eligible = sum([jobs[n].conditions is None for n in waiting])
            count = min(free // array.start_least + 1 - eligible, self._room(array))
            if count <= 0:
                continue
            ready = to_come(array).ready
            for position in ready.first(count):
                task = self._bring(array, position)
                index = task_of(task).index
                made.append(task)
                facts: Facts = {"array": number, "index": index}
                reason = Reason("array", "task {index} of array {array}", facts)
                orders.append(Enqueue(task.id, reason))
            if count == len(ready):
                del self.open[number]
            orders.append(Await(number, self.reason(array)))
        return made

    def _room(self, array: Job) -> int:
        """Number of tasks that may be queued now."""
        most, ready = tasks_of(array).at_once, to_come(array).ready.count()
        return min(ready, most - len(self._unended.get(array.id, {}))) if most else ready

    def bring(self, array: Job, position: int) -> Job:
        """Make a job of a task that has not come, out of turn."""
        task = self._bring(array, position)
        if not to_come(array).ready:
            self.close(array)
        return task

    def _bring(self, array: Job, position: int) -> Job:
        task = task_to_come(array, position)
        array.to_come = to_come(array).without(ProcSet.span(position, 1))
        array.tasks_queued += 1
        self._jobs[task.id] = task
        self.add_task(task)
        return task

    def note_end(self, task: Job, now: float, orders: list[Order]) -> Job | None:
        """Note that a task has ended; return the array if it has ended with it."""
        array = self._jobs.get(task_of(task).array)
        if array is None or self._unended.get(array.id, {}).pop(task.id, None) is None:
            return None
        if task.state is not COMPLETED:
            array.tasks_failed += 1
            array.exit_code = array.exit_code or task.exit_code
            orders.append(Await(array.id, self.reason(array)))
        return self.end(array, now, orders)

    def end(self, array: Job, now: float, orders: list[Order]) -> Job | None:
        """End an array if all its tasks have ended, and no further ones come."""
        if to_come(array).left or self._unended.get(array.id):
            return None
        cancelled = to_come(array).cancelled.count()
        final = JobState.FAILED if array.tasks_failed or cancelled else COMPLETED
        array.state = array.cause or (final if array.tasks_queued else JobState.CANCELLED)
        array.ended_at = now
        facts = {"count": array.tasks_queued, "failed": array.tasks_failed, "cancelled": cancelled}
        text = "{count} tasks have ended, {failed} of them failed"
        text += "; cancelled before they came to the queue: {cancelled}" if cancelled else ""
        reason = Reason("array", text, facts)
        array.why = array.why or reason.sentence
        self.forget(array)
        orders.append(Drop(array.id, reason))
        return array

    def close(self, array: Job) -> None:
        """Queue no further tasks of an array."""
        self.open.pop(array.id, None)

    def forget(self, array: Job) -> None:
        """Drop an array that has ended."""
        self.close(array)
        self._waiting.pop(array.id, None)
        self._unended.pop(array.id, None)

    def reason(self, array: Job) -> Reason:
        """Why an array has not ended."""
        tasks, coming = tasks_of(array), to_come(array)
        facts: dict[str, int | float | str]
        facts = {"queued": array.tasks_queued, "count": tasks.count}
        text, rule = "{queued} of {count} tasks have come to the queue", "Array"
        if array.tasks_failed:
            facts["failed"] = array.tasks_failed
            text += ", {failed} of them failed"
        for name, positions in (("held", coming.all_held), ("cancelled", coming.cancelled)):
            if positions:
                facts[name] = positions.count()
                text += f", {{{name}}} {name}"
        if array.id in self.open and self._room(array) <= 0:
            facts["most"] = tasks.at_once
            rule, text = "JobArrayTaskLimit", f"{text}; at most {{most}} are there at a time"
        elif coming.all_held and not coming.ready:
            rule = "JobHeldUser" if coming.held else "JobHeldAdmin"
        return Reason(rule, text, facts)

    def reason_to_come(self, array: Job, position: int) -> Reason:
        """Why a task of an eligible array is no job yet."""
        tasks, coming = tasks_of(array), to_come(array)
        facts: dict[str, int | float | str] = {"array": array.id, "index": tasks.index(position)}
        hold = coming.hold_of(position)
        if hold:
            rule = "JobHeldUser" if hold == "user" else "JobHeldAdmin"
            by = "its user" if hold == "user" else "an administrator"
            return Reason(rule, f"task {{index}} of array {{array}} is held by {by}", facts)
        facts["place"] = 1 + (coming.ready.between(0, position - 1).count() if position else 0)
        text = "its place among the tasks of array {array} that are to come is {place}"
        if self._room(array) <= 0:
            facts["most"] = tasks.at_once
            text += "; at most {most} are there at a time"
            return Reason("JobArrayTaskLimit", text, facts)
        return Reason("Array", f"{text}; each comes as soon as it could start", facts)


def task_to_come(array: Job, position: int) -> Job:
    """Make the job that a task will be which has not come; it waits for what its array does."""
    spec = task_spec(array.spec, TaskOf(array.id, tasks_of(array).index(position)))
    task = Job(array.id + 1 + position, spec, array.submitted_at)
    task.queued_at, task.partition = array.queued_at, array.partition
    task.conditions = array.conditions
    hold = to_come(array).hold_of(position)
    if hold:
        task.conditions = replace(array.conditions or Conditions(), hold=hold)
    return task


def task_spec(array: JobSpec, own: TaskOf) -> JobSpec:
    """Request of a task: that of its array."""
    return replace(array, array=None, conditions=None, task_of=own)


def last_number(jobs: Iterable[Job]) -> int:
    """Largest number that jobs and the tasks of arrays have, or will have; 0 without jobs."""
    own = (job.id if job.spec.array is None else job.id + job.spec.array.count for job in jobs)
    return max(own, default=0)


def tasks_of(array: Job) -> TaskArray:
    """Tasks of an array, as it was submitted."""
    assert array.spec.array is not None
    return array.spec.array


def to_come(array: Job) -> TasksToCome:
    """Tasks of an array that are no jobs yet."""
    assert array.to_come is not None
    return array.to_come


def task_of(task: Job) -> TaskOf:
    """What makes a job a task."""
    assert task.spec.task_of is not None
    return task.spec.task_of


class Steps:
    """The steps of a partition that have not ended.

    Attributes
    ----------
    by_job : job number -> its steps by number; a job without such steps is not among the keys.
    """

    def __init__(self) -> None:
        self.by_job: dict[int, dict[int, Job]] = {}

    def add(self, step: Job) -> None:
        """Note a step."""
        self.by_job.setdefault(_job_of(step), {})[step.id] = step

    def remove(self, step: Job) -> None:
        """Forget a step that has ended."""
        steps = self.by_job[_job_of(step)]
        del steps[step.id]
        if not steps:
            del self.by_job[_job_of(step)]

    def of(self, job: int) -> list[Job]:
        """Steps of a job that have not ended, in the order of their requests."""
        return list(self.by_job.get(job, {}).values())

    def waiting(self, job: int) -> list[Job]:
        """Steps of a job that wait for processors, in the order of their requests."""
        return [step for step in self.of(job) if step.state is PENDING]

    def idle(self, job: Job) -> ProcSet:
        """Processors that a job was granted and that no step of it has."""
        granted = ProcSet.union(job.groups.values())
        return granted - ProcSet.union(lent_group(step) for step in self.of(job.id))

    def held(self, job: Job) -> ProcSet:
        """Processors that a job and its steps hold."""
        groups: Iterable[ProcSet] = job.groups.values()
        if job.id in self.by_job:
            groups = [held for each in (job, *self.of(job.id)) for held in each.groups.values()]
        return ProcSet.union(groups)

    def reason(self, step: Job, job: Job) -> Reason:
        """Why a step waits."""
        facts: Facts = {
            **{"needed": step.processors, "idle": self.idle(job).count(), "job": job.id},
            "granted": sum(map(len, job.groups.values())),
        }
        text = "{needed} processors wanted, job {job} has {idle} idle of {granted}"
        return Reason("Step", text, facts)


def lent_group(step: Job) -> ProcSet:
    """Processors that a step has from its job; none if it waits, or if the job has ended."""
    return next(iter(step.groups.values())) if step.is_lent and step.groups else ProcSet()


def _job_of(step: Job) -> int:
    assert step.spec.step_of is not None
    return step.spec.step_of.job
