"""What a resizing policy sees of the scheduler: a small interface that changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any, NamedTuple

from scheduler.model.groups import leaving_groups
from scheduler.model.interfaces import Prioritised
from scheduler.model.job import Job, JobState
from scheduler.model.job_view import JobView, original, shown
from scheduler.model.resources import processors_of
from scheduler.state.earliest_place import EarliestPlace
from scheduler.state.queue import Queue
from scheduler.state.scheduler_state import SchedulerState


class Reservation(NamedTuple):
    """Reservation of the head of the queue.

    Parameters
    ----------
    job : number of the head.
    at : shadow time, s; inf if the releases of all jobs do not suffice (nodes are down).
    spare : extra processors: those that stay free at `at` when the head has started.
    """

    job: int
    at: float
    spare: int


class QueuedJobs:
    """Queued jobs in queue order, as a read-only sequence.

    Parameters
    ----------
    read_only : whether the jobs are for user-defined code.
    """

    def __init__(self, queue: Queue, *, read_only: bool = False) -> None:
        self._queue, self._read_only = queue, read_only

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self._queue.jobs)

    def __iter__(self) -> Iterator[JobView]:
        """Iterate over the jobs."""
        in_order = self._queue.in_order()
        return map(shown, in_order) if self._read_only else in_order

    def __getitem__(self, index: int) -> JobView:
        """Job at a position of the queue."""
        job = list(self._queue)[index]
        return shown(job) if self._read_only else job


class MachineNow:
    """Time and processors of the present instant, for reading.

    Parameters
    ----------
    state : scheduler state.
    read_only : whether it is for user-defined code, which gets each job as a `ReadOnlyJob`.
    """

    def __init__(self, state: SchedulerState, *, read_only: bool) -> None:
        self._state, self._read_only = state, read_only

    def _shown(self, job: Job) -> JobView:
        return shown(job) if self._read_only else job

    @property
    def now(self) -> float:
        """Time of the events that are being handled, s."""
        return self._state.now

    @property
    def free(self) -> int:
        """Free processors; at a resize point those that the scheduling pass has left idle."""
        return self._state.machine.free_count

    @property
    def running(self) -> list[JobView]:
        """Jobs that hold processors: `size` of them, until `estimated_end`."""
        return [self._shown(job) for job in self._state.live.values()]

    @property
    def installed(self) -> int:
        """Processors of all known nodes, up or down."""
        return self._state.machine.installed

    @property
    def processors(self) -> int:
        """Processors that are free, or held by jobs.

        Those that jobs hold on nodes that drain are among them, and free ones there are not.
        """
        state = self._state
        machine = state.machine
        count = machine.processors
        if not machine.whole:
            for job in state.live.values():
                for held in job.own_groups.values():
                    count += held.count() - machine.count_usable(held)
        return count

    def resizes(self, job: JobView) -> bool:
        """Whether the resizing policy of the scenario may resize a job.

        Its queue may have another one, and not every job is resizable.
        """
        return own_job(job).resizable and job.spec.queue not in self._state.other_queues

    def resources_at(self, job: JobView) -> float:
        """Time (s) by which enough of all resources but processors is free for a queued job."""
        state, own = self._state, own_job(job)
        least = state.quantity(own.start_least, own)
        if not state.multi_resource or least <= state.free + state.quantity(own.start_least):
            return state.now
        return max(state.now, state.shadow(own)[0])

    def once(self, compute: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function computes from this view, once for each state.

        The function may read everything but the time.

        Parameters
        ----------
        compute : called with this view and the arguments.
        """
        state = self._state
        kept = state.computed
        if kept is not None and kept[0] == state.version:
            function, given, result = kept[1], kept[2], kept[3]
            if function == compute and given == arguments:
                return result
        result = compute(self, *arguments)
        state.computed = state.version, compute, arguments, result
        return result


class View(MachineNow):
    """Scheduler state at one instant, for reading.

    It gives out jobs as `JobView`, whose members cannot be assigned.

    Parameters
    ----------
    state : scheduler state.
    retry_after : resize points of a job before a resize that failed is tried again.
    prioritised : the queue order, if it gives priorities.
    read_only : whether it is for user-defined code, which gets each job as a `ReadOnlyJob`.
    """

    def __init__(
        self,
        state: SchedulerState,
        retry_after: int,
        prioritised: Prioritised | None,
        *,
        read_only: bool = False,
    ) -> None:
        super().__init__(state, read_only=read_only)
        self._retry_after = retry_after
        self._prioritised = prioritised

    def free_for(self, job: JobView) -> int:
        """Free processors that a job may hold; see `kept_from` of the state."""
        job, machine = own_job(job), self._state.machine
        if not self._state.excluding and job.spec.nodes is None:
            return machine.free_count
        return machine.free_count - (machine.free & self._state.kept_from(job)).count()

    def has_resources(self, job: JobView) -> bool:
        """Whether enough of all resources but processors is free for a queued job."""
        state = self._state
        if not state.multi_resource:
            return True
        job = own_job(job)
        return state.free + state.quantity(job.processors) >= job.demand

    def helps(self, head: JobView, job: JobView, to: int) -> bool:
        """Whether the head can use any processors that a contraction of a job releases.

        Without exclusions it can. Otherwise it is assumed that the newest groups leave.
        """
        state = self._state
        if not state.excluding:
            return True
        own, kept = own_job(job), state.kept_from(own_job(head))
        groups = leaving_groups(own.leavable, own.size - to)
        return any(bool(own.groups[group] - kept) for group in groups or ())

    @property
    def freeing(self) -> int:
        """Processors that contractions under way will release."""
        return self._state.freeing

    @property
    def queue(self) -> QueuedJobs:
        """Queued jobs in queue order."""
        return QueuedJobs(self._state.queue, read_only=self._read_only)

    @property
    def head(self) -> JobView | None:
        """First queued job that the machine could run if every node was up and idle."""
        head = self._state.head
        return shown(head) if self._read_only and head is not None else head

    @property
    def resizable(self) -> Iterator[JobView]:
        """Running jobs that may be resized now: they are resizable and no resize is under way."""
        running = self._state.resizable.values()
        resizing = (job for job in running if job.state is JobState.RUNNING)
        return map(shown, resizing) if self._read_only else resizing

    @property
    def expected(self) -> list[JobView]:
        """Queued jobs for which the latest pass has noted when they start, in its order."""
        jobs = self._state.queue.jobs
        reserved = self._state.reservations
        return [self._shown(jobs[number]) for number in reserved if number in jobs]

    @property
    def has_priorities(self) -> bool:
        """Whether the queue order gives priorities that compare with those of running jobs."""
        return self._prioritised is not None

    def queue_demand_exceeds(self, processors: int) -> bool:
        """Whether the queued jobs together request more than this many processors.

        Jobs that request more processors than are installed are left out.
        """
        return self._state.queue.demand_exceeds(processors, self._state.machine.installed)

    def reservation(self) -> Reservation | None:
        """Reservation of the head, by the expected releases; None without a head."""
        head = self._state.head
        return None if head is None else Reservation(head.id, *self._reserved(head))

    def _reserved(self, head: Job) -> tuple[float, int]:
        """Shadow time (s) and extra processors of the reservation of the head."""
        state = self._state
        at, left = state.shadow(head)
        spare = processors_of(left)
        if state.placing or state.excluding:  # further resources may be free later than the place
            earliest = EarliestPlace(state, head)
            at, spare = max(at, earliest.at), self.free - earliest.kept.count()
        return at, spare

    def spare(self, until: float, job: JobView | None = None) -> int:
        """Idle processors that may be held until a time (s) without delaying the head.

        This is the backfilling rule of EASY: all idle processors if they are released by the
        shadow time, otherwise at most the extra processors.

        Parameters
        ----------
        job : job that would hold them; processors that exclusions keep from it do not count.
        """
        free = self.free if job is None else self.free_for(job)
        head = self._state.head
        if head is None:
            return free
        at, spare = self._reserved(head)
        return free if until <= at else min(free, spare)

    def priority(self, job: JobView) -> float:
        """Priority of a job (PRIO 3.1): by queue order if queued, by the time left if running.

        For a queued job it is the user-assigned priority if the queue order gives none.
        """
        job = own_job(job)
        if job.state is not JobState.PENDING:
            return running_priority(job, self.now)
        order = self._prioritised
        return job.spec.priority if order is None else order.priority(job, self.now)

    def next_larger(self, job: JobView) -> int | None:
        """Next valid size above the present one; None without one or if it failed recently."""
        job = own_job(job)
        if not job.resizable or job.topology is None or topology_fault(job):
            return None
        size = job.valid_from(job.size + 1)
        return None if size is None or self.failed_lately(job, size) else size

    def pause_s(self, job: JobView) -> float | None:
        """Expected pause of a resize of the job, s; None if no resize was measured yet."""
        return job.history.predict_pause_s(self._state.resize_costs)

    def failed_lately(self, job: JobView, size: int) -> bool:
        """Whether a resize to this size is not to be tried (again) now, because resizes failed.

        One to this size failed fewer than `retry_after` resize points ago, or several in its
        direction failed in succession, so that there is a pause, or no other one is tried.
        """
        job = own_job(job)
        failures = job.history.failures_towards(size)
        if failures.given_up or self._state.now < failures.retry_at:
            return True
        failed = job.history.failures.get(size)
        return failed is not None and job.history.points - failed < self._retry_after


def own_job(job: JobView) -> Job:
    """Return the job that a policy sees: `original`, compiled."""
    return job if isinstance(job, Job) else original(job)


def running_priority(job: Job, now: float) -> float:
    """Priority of a running job: ``(100 - pct_time_left) + user`` (PRIO 3.1).

    "An application that is closer to finishing its execution will be assigned a higher priority."
    An overdue job has 0 % of its time left; a job without a walltime limit always has 100 %.
    """
    walltime_s, started_at = job.walltime_s, job.started_at
    if started_at is None or not isfinite(walltime_s):
        return job.spec.priority
    left_s = walltime_s - (now - started_at)
    if left_s < 0.0:  # policies call this for every running job: faster than `min` and `max`
        left_s = 0.0
    elif left_s > walltime_s:
        left_s = walltime_s
    return 100.0 - 100.0 * left_s / walltime_s + job.spec.priority


def topology_fault(job: Job) -> str:
    """Why a job has no valid size by its topology on which it can start; empty if it has one."""
    if job.topology is None or job.valid_sizes:
        return ""
    spec = job.spec
    try:
        job.topology.valid_sizes(spec.processors, spec.largest, job.minimum or None)
    except ValueError as error:
        return str(error)
    return ""
