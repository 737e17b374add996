"""A user-defined scheduling pass: a class whose method starts queued jobs or reserves for them.

It takes the place of backfilling. The method is called with a `CurrentPass` whenever a queued job
may be able to start, and at the time of each reservation that it has made. Reservations hold for
one pass, so that each pass decides anew, in any order of jobs that it likes.

What is free when is a profile of numbers, as in `scheduler.policies.backfill.profile_pass`. While
it matters which processors a job gets, because of exclusions or of the processor selection, it is
the reservation table of `scheduler.policies.backfill.table_pass`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from math import inf, isnan, nan
from numbers import Real
from operator import index
from types import MappingProxyType
from typing import Any, Protocol, SupportsFloat, SupportsIndex, TypeAlias

import msgspec

from scheduler.model.job import Job
from scheduler.model.job_view import JobView, ReadOnlyJob, is_ours, original
from scheduler.model.orders import Reason
from scheduler.model.space import NONE
from scheduler.policies.backfill.scheduling_pass import SchedulingPass
from scheduler.policies.backfill.table_pass import TablePass
from scheduler.policies.containment import ErrorReporter, Guard, plain_value
from scheduler.policies.selection.on_table import table_selection
from scheduler.state.profile import Availability
from scheduler.state.reservation_table import Allocation, TableSelection
from scheduler.state.scheduler_state import SchedulerState
from scheduler.state.view import MachineNow

FITS = "{needed} of {free} free{unit} for {walltime} s delay no reservation of this pass"

_json = msgspec.json.Encoder()


class Scheduling(Protocol):
    """A scheduling pass as a policy."""

    def schedule(self, current: CurrentPass, /) -> None:
        """Start queued jobs, or reserve for them, in one pass."""


class CurrentPass(MachineNow):
    """One scheduling pass: what is queued and free, and what may be done about it.

    Parameters
    ----------
    state : scheduler state.
    room : what is free when.
    name : of the policy, for reasons.
    read_only : whether it is for user-defined code, which gets each job as a `ReadOnlyJob`.
    """

    def __init__(
        self, state: SchedulerState, room: Room, name: str, *, read_only: bool = True
    ) -> None:
        super().__init__(state, read_only=read_only)
        self._room, self._name = room, name
        self._reserved: dict[int, float] = {}
        self._queue: list[JobView] | None = None
        room.begin()

    @property
    def queue(self) -> list[JobView]:
        """Jobs that were queued when this was read first and that the machine could run, in order.

        Only the first ones if the depth of passes is limited.
        """
        if self._queue is None:
            state = self._state
            examined = state.queue if state.window is None else state.window
            self._queue = [self._shown(job) for job in examined if state.can_run(job)]
            state.examined += len(self._queue)
        return self._queue

    def fitting(
        self,
        processors: int,
        until: float = inf,
        extra: int = 0,
        taken: Container[int] | None = None,
    ) -> Iterator[JobView]:
        """Jobs of `queue` that may start on so many processors, one by one, in backfill order.

        A policy that stops early leaves the others unexamined.

        Parameters
        ----------
        until : only jobs that then end by this time (s) if they start on their smallest size.
        extra : processors on which jobs may start that end later.
        taken : numbers of the jobs that the policy has taken, to which it adds. It says that a
            policy takes no job if it did not take an earlier one of an equal request, so that such
            jobs may be left out; None: it might.
        """
        state = self._state
        now, window = state.now, state.window
        if state.excluding or state.placing or state.multi_resource:
            taken = None  # jobs of equal requests may differ in their places and other resources
        for job in state.queue.fitting(processors, until - now, extra, now, window, taken):
            state.examined += 1
            if state.can_run(job):
                yield self._shown(job)

    def in_order(self) -> Iterator[JobView]:
        """Jobs of `queue` one by one, for a policy that stops early and starts none meanwhile.

        Raises
        ------
        ValueError : a job was started, and another one is asked for.
        """
        state = self._state
        examined: Iterable[Job] = state.queue.in_order() if state.window is None else state.window
        count = len(state.queue.jobs)
        for job in examined:
            if state.can_run(job):
                state.examined += 1
                yield self._shown(job)
                if len(state.queue.jobs) != count:
                    raise ValueError(
                        "a job was started within a loop over in_order(): loop over `queue`, or end"
                        " the loop with the start"
                    )

    @property
    def reserved(self) -> Mapping[int, float]:
        """Job number -> start that is reserved for it, s."""
        return MappingProxyType(self._reserved)

    def earliest(self, job: JobView) -> float:
        """Earliest start of a queued job that delays neither running jobs nor reservations.

        Returns
        -------
        seconds; the present time if it may start now, inf if too many nodes are down.

        Raises
        ------
        ValueError : the job is not queued, or has a reservation.
        """
        return self._room.earliest(self._queued(job))

    def lacks_place(self, job: JobView) -> bool:
        """Whether enough processors are free for a queued job, and it may not hold these.

        Exclusions, such as advance reservations, or the processor selection keep them from it, so
        that no contraction helps.
        """
        own, state = self._queued(job), self._state
        if not (state.excluding or state.placing):
            return False
        least = own.start_least
        return least <= state.machine.free_count and not self._room.has_place(own, least)

    def start(
        self, job: JobView, reason: Reason | None = None, size: SupportsIndex | None = None
    ) -> bool:
        """Start a queued job now if that delays no reservation; return whether it started.

        Parameters
        ----------
        reason : for `reshape explain`; None: that it delays no reservation.
        size : number of processors of a malleable job; None: those that it requests.

        Raises
        ------
        ValueError : the job is not queued, or has a reservation; it cannot start on this size; the
            reason cannot be recorded.
        TypeError : the size is no whole number.
        """
        own, state = self._queued(job), self._state
        if reason is not None and self._read_only:
            reason = _recordable(reason)
        count = own.processors if size is None else index(size)
        if count != own.processors and own.starts_on(count) != count:
            raise ValueError(f"job {own.id} cannot start on {count} processors")
        demand = own.demand if count == own.processors else state.quantity(count, own)
        if demand > state.free:
            return False
        why = self._fits(own, count) if reason is None else reason
        return self._room.begin_job(own, why, count)

    def reserve(self, job: JobView) -> float:
        """Reserve for a queued job at its earliest start, which no later decision delays.

        Returns
        -------
        time of the reservation, s; inf if too many nodes are down, and nothing is reserved.

        Raises
        ------
        ValueError : the job is not queued, or has a reservation.
        """
        own = self._queued(job)
        at = self._room.keep(own)
        if at < inf:
            self._reserved[own.id] = at
        return at

    def expect(self, job: JobView, at: SupportsFloat) -> None:
        """Note when a queued job is expected to start, s, without keeping anything for it.

        For jobs to which this policy leaves what contractions free.

        Raises
        ------
        ValueError : `at` is no number; the job is not queued.
        """
        own = self._queued(job)
        time = float(at) if isinstance(at, Real) else nan
        if isnan(time):
            raise ValueError(f"job {own.id} is expected to start at {at!r}, which is no number")
        self._reserved[own.id] = time

    def start_in_order(self) -> None:
        """Start jobs in queue order while they fit (FCFS), without any reservation."""
        self._reserved.clear()
        self._room.begin()
        for job in self.queue:
            if job.id in self._state.queue.jobs and not self.start(job):
                return

    def _queued(self, job: object) -> Job:  # whatever a policy passes
        own: Job | None = None
        if isinstance(job, Job):
            own = job
        elif isinstance(job, ReadOnlyJob):
            own = original(job)
        if own is None or self._state.queue.jobs.get(own.id) is not own:
            raise ValueError(f"{job!r} is not a queued job of this pass")
        if own.id in self._reserved:
            raise ValueError(f"job {own.id} has a reservation; a pass starts or reserves once")
        return own

    def _fits(self, job: Job, size: int) -> Reason:
        state = self._state
        facts: dict[str, int | float | str] = {
            "needed": state.format_quantity(state.quantity(size, job)),
            "free": state.format_quantity(state.free),
            "unit": "" if state.multi_resource else " processors",
            "walltime": job.estimate_on_s(size),
        }
        return Reason(self._name, FITS, facts)


class OwnPass(SchedulingPass):
    """Scheduling pass that a user-defined policy makes.

    Parameters
    ----------
    policy : the policy, a `Scheduling`.
    report : called when a user-defined policy fails; jobs then start in queue order while they fit.
        None lets the error out.
    """

    def __init__(
        self,
        state: SchedulerState,
        policy: Any,
        report: ErrorReporter | None,
    ) -> None:
        super().__init__(state, type(policy).__name__)
        self._policy = policy
        selection = state.selection
        by_place = state.excluding or state.placing or selection.searches_table
        self._room: Room = NumbersRoom(state)
        if by_place and not state.machine.counted:
            own = table_selection(selection, state.machine.space)
            self._room = TableRoom(state, own)
        self._read_only = not is_ours(policy)
        self._guard = Guard("scheduling", policy, report if self._read_only else None)

    def run(self) -> None:
        """Let the policy start the queued jobs that may start now."""
        state = self.state
        current = CurrentPass(state, self._room, self.name, read_only=self._read_only)
        self.failure = ""
        self._guard.call(
            "schedule",
            lambda: self._policy.schedule(current),
            lambda why: self._start_in_order(current, why),
        )
        if state.reservations != current.reserved:
            state.allocation_changed()
        state.reservations.clear()
        state.reservations.update(current.reserved)

    def _start_in_order(self, current: CurrentPass, why: str) -> None:
        self.failure = why
        current.start_in_order()


class NumbersRoom:
    """Free processors, or amounts of resources, over time."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        #: What is free when; None without reservations, where what is free only grows.
        self._profile: Availability | None = None

    def begin(self) -> None:
        """Begin a pass, without reservations."""
        self._profile = None

    def earliest(self, job: Job) -> float:
        """Earliest start of a job, s; inf if there is none."""
        state = self._state
        profile = self._profile
        if profile is None:
            profile = Availability(state.now, state.free, state.releases)
        return profile.earliest(job.demand, job.estimate_s, state.now)

    def has_place(self, job: Job, size: int) -> bool:
        """Whether a job has a place on so many processors now; as many are free."""
        state = self._state
        return not state.placing or state.selection.fits(state.machine.space, size)

    def begin_job(self, job: Job, reason: Reason, size: int) -> bool:
        """Start a job on `size` processors now if there is room; return whether it started."""
        state, profile = self._state, self._profile
        now, demand, length_s = state.now, state.quantity(size, job), job.estimate_on_s(size)
        if profile is not None and profile.earliest(demand, length_s, now) > now:
            return False
        if not state.start(job, reason, NONE, size):
            return False
        if profile is not None:
            profile.reserve(demand, now, length_s)
        return True

    def keep(self, job: Job) -> float:
        """Reserve for a job at its earliest start, and return that time (s)."""
        state, at = self._state, self.earliest(job)
        if at < inf:
            if self._profile is None:
                self._profile = Availability(state.now, state.free, state.releases)
            self._profile.reserve(job.demand, at, job.estimate_s)
        return at


class TableRoom(TablePass):
    """Certain processors over time, on the reservation table.

    Parameters
    ----------
    selection : finds the allocations.
    """

    def __init__(self, state: SchedulerState, selection: TableSelection) -> None:
        super().__init__(state, "", selection, None, False)

    def begin(self) -> None:
        """Begin a pass, without reservations."""
        self._begin()

    def earliest(self, job: Job) -> float:
        """Earliest start of a job, s."""
        allocation = self._find(job, inf)
        return inf if allocation is None else allocation.begin

    def has_place(self, job: Job, size: int) -> bool:
        """Whether exclusions leave a place for a job."""
        return self._find_now(job, size) is not None

    def begin_job(self, job: Job, reason: Reason, size: int) -> bool:
        """Start a job now if there is room for it."""
        allocation = self._find_now(job, size)
        return allocation is not None and self._start_with(job, allocation, reason, size)

    def _find_now(self, job: Job, size: int) -> Allocation | None:
        return self._find(job, self.state.now, 0 if size == job.processors else size)

    def keep(self, job: Job) -> float:
        """Reserve for a job."""
        allocation = self._find(job, inf)
        if allocation is None:
            return inf
        self._reserve(job, allocation)
        return allocation.begin


#: What is free from now on beside the jobs that run and the reservations of this pass.
Room: TypeAlias = NumbersRoom | TableRoom


def _recordable(reason: Reason) -> Reason:
    """Return a reason as it is recorded; an error if it cannot be recorded and printed."""
    if not isinstance(reason, Reason):
        raise TypeError(f"a reason must be a Reason, got {reason!r}")
    try:
        raw: Any = reason.facts  # whatever a pass has put there
        facts = {name: plain_value(raw[name]) for name in raw}
        plain = Reason(reason.rule, reason.text, facts)
        _json.encode(plain)
        plain.text.format(**facts)
    except Exception as error:
        kind = type(error).__name__
        raise ValueError(f"{reason!r} cannot be recorded: {kind}: {error}") from error
    return plain
