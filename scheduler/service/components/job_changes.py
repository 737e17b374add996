"""Changes of jobs by their users: cancel, hold, release, requeue, update and signals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from reshape.errors import PermissionDenied, ReshapeError
from reshape.times import utc_moment
from scheduler.core.core import Core
from scheduler.journal.clock import Clock
from scheduler.journal.descriptions import submission_command
from scheduler.journal.ended_jobs import positions
from scheduler.model.arrays import Hold
from scheduler.model.events import (
    Event,
    HoldChanged,
    JobCancelled,
    JobRequeued,
    JobSignalled,
    JobSpec,
    JobUpdated,
)
from scheduler.model.job import FINAL, Job, JobState
from scheduler.model.procset import ProcSet
from scheduler.model.requests import Conditions, signal_number
from scheduler.protocol import messages as m
from scheduler.protocol.job_requests import LONGEST_WALLTIME_S
from scheduler.service.components.application_scheduler import ApplicationScheduler
from scheduler.text.formats import format_time

#: What may be changed of a job that holds processors.
WHILE_RUNNING = ("walltime_s", "max_processors", "priority", "name")
#: Fields of a request that follow from each part of a submission that may be changed.
FOLLOWING: Mapping[str, tuple[str, ...]] = {
    "walltime_s": ("walltime_s",),
    "processors": ("processors", "max_processors", "min_processors"),
    "max_processors": ("max_processors",),
    "min_processors": ("min_processors",),
    "priority": ("priority",),
    "name": ("name",),
    "queue": ("queue", "priority"),
    "partition": ("partition", "processors", "max_processors", "nodes"),
    "dependency": ("conditions",),
    "begin": ("conditions",),
}
#: Jobs that wait for each other that a message names, at most.
MOST_OF_CHAIN = 20


class JobChanges:
    """Checks the changes of jobs that users request, and makes their events."""

    def __init__(self, core: Core, jobs: ApplicationScheduler, clock: Clock) -> None:
        self._core, self._jobs, self._clock = core, jobs, clock

    def events(
        self, named: m.JobTasks, change: m.JobChange, user: str, *, is_administrator: bool
    ) -> list[Event]:
        """Return the events that change a job, or tasks of an array, at the request of a user.

        Those tasks that run are requeued, and get a signal, one by one.

        Raises
        ------
        ReshapeError : the job cannot be changed like that.
        PermissionDenied : only an administrator may.
        """
        if named.tasks and isinstance(change, m.RequeueJob | m.SignalJob):
            is_signal = isinstance(change, m.SignalJob)
            array = self._unended(named.job) if is_signal else self._jobs.job(named.job)
            running = self._running(array, named.tasks)
            tasks = [m.JobTasks(task.id) for task in running]
            own = (self.events(t, change, user, is_administrator=is_administrator) for t in tasks)
            return [event for events in own for event in events]
        match change:
            case m.CancelJob():
                return [self._cancel(named, user)]
            case m.HoldJob():
                return [self._hold(named, user)]
            case m.ReleaseJob():
                return [self._release(named, is_administrator=is_administrator)]
            case m.RequeueJob():
                return [self._requeue(named.job, user)]
            case m.SignalJob():
                return [self._signal(named.job, change, user)]
            case m.UpdateJob():
                return [self._update(named, change, is_administrator=is_administrator)]

    def _cancel(self, named: m.JobTasks, user: str) -> Event:
        job = self._unended(named.job)
        number, tasks = self._jobs.named(job, named.tasks)
        return JobCancelled(self._clock(), number, f"cancelled by {_by(job, user)}", tasks)

    def _queued(self, number: int) -> Job:
        """Return a job that may be held or released."""
        job = self._unended_job(number)
        if job.state is not JobState.PENDING:
            raise ReshapeError(
                f"job {job.id} is {job.state.name}: only queued jobs are held and released"
            )
        return job

    def _hold(self, named: m.JobTasks, user: str) -> Event:
        """Hold a queued job, or tasks of an array."""
        job = self._queued(named.job)
        number, tasks = self._jobs.named(job, named.tasks)
        own = "" if job.conditions is None else job.conditions.hold
        is_own = user == job.spec.user and (own != "administrator" or tasks is not None)
        by: Hold = "user" if is_own else "administrator"
        return HoldChanged(self._clock(), number, by, tasks)

    def _release(self, named: m.JobTasks, *, is_administrator: bool) -> Event:
        """Release a held job, or tasks of an array."""
        job = self._queued(named.job)
        number, tasks = self._jobs.named(job, named.tasks)
        own = "" if job.conditions is None else job.conditions.hold
        what = f"tasks {named.tasks} of array {job.id}" if named.tasks else f"job {job.id}"
        held = {own} | self._holds(job, tasks)
        if held == {""}:
            raise ReshapeError(f"{what} {'are' if named.tasks else 'is'} not held")
        if "administrator" in held and not is_administrator:
            raise PermissionDenied(
                f"an administrator holds {what}, or some of the tasks: only an administrator can"
                " release what is held like that"
                if job.to_come is not None
                else f"an administrator holds {what}: only an administrator can release it"
            )
        return HoldChanged(self._clock(), number, "", tasks)

    def _holds(self, array: Job, tasks: ProcSet | None) -> set[Hold]:
        """Who holds tasks of an array one by one; of another job nothing."""
        coming = array.to_come
        if coming is None:
            return set()
        to_come = coming.left if tasks is None else coming.left & tasks
        conditions = (task.conditions for task in self._core.tasks_of(array, tasks))
        held: set[Hold] = {each.hold for each in conditions if each is not None}
        if to_come & coming.held:
            held.add("user")
        if to_come & coming.held_by_administrator:
            held.add("administrator")
        return held

    def _requeue(self, number: int, user: str) -> Event:
        """Return the event that ends a running job and queues it again."""
        job = self._jobs.job(number)
        if job.state in FINAL:
            ended = self._jobs.ended(number)
            again = "" if ended is None else f", as by {submission_command(ended[1])}"
            raise ReshapeError(
                f"job {number} has ended already ({job.state.name}), and only a running job is"
                f" requeued: submit it anew{again}"
            )
        job = self._unended_job(number)
        if job.state in (JobState.PENDING, JobState.COMPLETING):
            raise ReshapeError(f"job {number} is {job.state.name}: only a running job is requeued")
        return JobRequeued(self._clock(), number, f"requeued by {_by(job, user)}")

    def _running(self, array: Job, tasks: str) -> list[Job]:
        """Return those of some tasks of an array that run, one at least."""
        jobs = self._core.tasks_of(array, positions(array, tasks))
        running = [t for t in jobs if t.state not in (JobState.PENDING, JobState.COMPLETING)]
        if not running:
            raise ReshapeError(f"none of the tasks {tasks} of array {array.id} is running")
        return running

    def _signal(self, number: int, change: m.SignalJob, user: str) -> Event:
        """Send a signal to the processes of a job."""
        job = self._unended(number)
        if job.state is JobState.COMPLETING or (
            job.state is JobState.PENDING and job.spec.array is None
        ):
            raise ReshapeError(f"job {job.id} is {job.state.name}: only running jobs get a signal")
        try:
            signal_number(str(change.number))
        except ValueError as error:
            raise ReshapeError(str(error)) from None
        if change.to_script and not self._jobs.submission_of(job.id).script:
            raise ReshapeError(f"job {job.id} has no script: leave --batch out")
        why = f"sent by {_by(job, user)}"
        return JobSignalled(self._clock(), job.id, change.number, change.to_script, why)

    def _update(self, named: m.JobTasks, change: m.UpdateJob, *, is_administrator: bool) -> Event:
        """Change the request of a job, and note its new submission.

        The request keeps what does not follow from the changes: the core has set parts of it, which
        no submission has.
        """
        if named.tasks:
            raise ReshapeError(f"{named} are several tasks: change each of them by itself")
        job = self._unended_job(named.job)
        changes = change.given
        if not changes:
            raise ReshapeError("nothing is to be changed: give an option, such as --walltime")
        submission = replace(self._jobs.submission_of(job.id), **changes)
        if submission.walltime_s == LONGEST_WALLTIME_S:
            submission = self._jobs.received(submission, submission.user)
            changes = {**changes, "walltime_s": submission.walltime_s}
        if job.state is not JobState.PENDING:
            self._check_running(job, changes, is_administrator=is_administrator)
        if job.tasks_queued:
            raise ReshapeError(f"tasks of array {job.id} have begun: change each of them by itself")
        # What has become of the conditions since the submission is not checked again, nor the
        # reservation of a job that is there already.
        checked = {"begin": changes.get("begin"), "dependency": changes.get("dependency", "")}
        if job.state is not JobState.PENDING:
            checked["reservation"] = ""
        asked = self._jobs.request_of(
            replace(submission, hold=False, kill_on_invalid=False, **checked)
        )
        changed = {field for part in changes for field in FOLLOWING[part]}
        spec = replace(job.spec, **{field: getattr(asked, field) for field in changed})
        if job.state is JobState.PENDING:
            conditions = self._conditions(job, asked, changes, submission.kill_on_invalid)
            # A job that was redirected waits in another partition than its request names.
            partition = asked.partition if "partition" in changes else job.partition
            spec = replace(spec, conditions=conditions, partition=partition)
            self._check_cycle(job.id, spec)
        self._jobs.replace_submission(job.id, submission)
        return JobUpdated(self._clock(), job.id, spec)

    def _unended(self, number: int) -> Job:
        job = self._jobs.job(number)
        if job.state in FINAL:
            raise ReshapeError(f"job {number} has ended already ({job.state.name})")
        return job

    def _unended_job(self, number: int) -> Job:
        """Return a job that has not ended and is no step, which changes with its job alone."""
        job = self._unended(number)
        step = job.spec.step_of
        if step is not None:
            raise ReshapeError(f"step {step} is not changed by itself: change job {step.job}")
        return job

    def _check_running(
        self, job: Job, changes: Mapping[str, float | str], *, is_administrator: bool
    ) -> None:
        """Refuse changes of a job that holds processors."""
        fixed = [name for name in changes if name not in WHILE_RUNNING]
        if fixed or job.state is JobState.COMPLETING:
            what = fixed[0].replace("min_processors", "minimum") if fixed else "nothing"
            raise ReshapeError(
                f"job {job.id} is {job.state.name}: its {what} can be changed only while it is"
                " queued"
            )
        walltime_s = changes.get("walltime_s")
        if isinstance(walltime_s, float) and walltime_s > job.spec.walltime_s:
            if not is_administrator:
                raise PermissionDenied(
                    f"job {job.id} is running: only an administrator can raise its walltime"
                )
            self._check_way(job, walltime_s)
        largest = changes.get("max_processors")
        if isinstance(largest, int):
            is_resizable = job.spec.resizable
            if is_resizable != (job.spec.malleable or largest > job.spec.processors):
                raise ReshapeError(
                    f"job {job.id} is running, and cannot become"
                    f" {'rigid' if is_resizable else 'resizable'}: change --max while it is queued"
                )
            if largest < job.size:
                raise ReshapeError(
                    f"job {job.id} runs on {job.size} processors: --max must not be below"
                )

    def _check_way(self, job: Job, walltime_s: float) -> None:
        """Refuse a walltime by which a running job overruns a reservation that was granted."""
        allowed_s, ahead_s = job.spec.walltime_s, self._clock.ahead_s
        until = job.expected_end + (walltime_s - allowed_s) * job.stretch
        obstacle = self._core.in_the_way(job, until)
        if obstacle is None:
            return
        begin = obstacle.begin + ahead_s
        most_s = int(allowed_s + (obstacle.begin - job.expected_end) / job.stretch)
        advice = f"raise its walltime to {format_time(most_s)} at most"
        if most_s <= allowed_s:
            advice = "leave its walltime as it is"
        what = obstacle.name
        if obstacle.admits:
            what = f"reservation {obstacle.name}"
            advice += f", or cancel the reservation first (reshape reserve cancel {obstacle.name})"
        raise ReshapeError(
            f"job {job.id} would run until {utc_moment(until + ahead_s)} on processors"
            f" {self._core.held(job) & obstacle.processors}, which it has to leave at"
            f" {utc_moment(begin)} because of {what}: {advice}"
        )

    def _conditions(
        self, job: Job, asked: JobSpec, changes: Mapping[str, float | str], kill_on_invalid: bool
    ) -> Conditions | None:
        """Conditions of a queued job after a change; unchanged ones are what it still waits for."""
        old = job.conditions or Conditions()
        new = asked.conditions or Conditions()
        return Conditions(
            old.hold,
            new.begin if "begin" in changes else old.begin,
            new.dependency if "dependency" in changes else old.dependency,
            kill_on_invalid,
        ).left(self._clock())

    def _check_cycle(self, number: int, spec: JobSpec) -> None:
        """Refuse a dependency by which a job would wait for itself."""
        came_from: dict[int, int] = {}
        todo = [(number, other) for other in _waits_for(spec.conditions)]
        while todo:
            before, other = todo.pop()
            if other == number:
                chain = [other, before]
                while chain[-1] != number:
                    chain.append(came_from[chain[-1]])
                names = [*map(str, reversed(chain))]
                if len(names) > MOST_OF_CHAIN:
                    names[MOST_OF_CHAIN // 2 : -MOST_OF_CHAIN // 2] = ["..."]
                text = " -> ".join(names)
                raise ReshapeError(f"job {number} would wait for itself: {text}")
            if other not in came_from:
                came_from[other] = before
                job = self._core.jobs.get(other)
                conditions = None if job is None else job.conditions
                todo += [(other, further) for further in _waits_for(conditions)]


def merged(events: Sequence[Event]) -> list[Event]:
    """Make one event of those of a request that differ in the tasks of an array alone.

    The sets of an array may have thousands of intervals, through which each event has to go.
    """
    others, sets = list[Event](), dict[Event, list[ProcSet]]()
    for event in events:
        if isinstance(event, HoldChanged | JobCancelled) and event.tasks is not None:
            sets.setdefault(replace(event, at=events[-1].at, tasks=None), []).append(event.tasks)
        else:
            others.append(event)
    return others + [replace(event, tasks=ProcSet.union(own)) for event, own in sets.items()]


def _by(job: Job, user: str) -> str:
    """Say in which capacity a user changes a job."""
    return "its user" if user == job.spec.user else f"{user}, an administrator"


def _waits_for(conditions: Conditions | None) -> list[int]:
    """Numbers of the jobs that have to start or to end before a job is eligible.

    A task waits for what its array waits for.
    """
    if conditions is None or conditions.dependency is None:
        return []
    unmet = (term for term in conditions.dependency.terms if term.met is None and term.job)
    return [other for term in unmet for other in term.watched]
