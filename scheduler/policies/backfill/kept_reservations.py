"""Reservations that jobs keep: conservative backfilling, and backfilling with k reservations.

Every reservation takes its processors out of the profile. When processors were released, or their
release is expected at another time, the reservations are compressed: in queue order each is moved
to the earliest time at which it fits, so that no job starts later than it was reserved (Mu'alem and
Feitelson). Otherwise only new jobs are examined. A reservation that cannot be kept (a job exceeded
its estimate or was expanded) is made again, and so are the ones behind it.

With k reservations jobs are examined one by one until k of them hold a reservation; the index of
the queue then finds the other jobs that may start now.

If the depth of passes is limited, only the first jobs of the queue are examined and hold
reservations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import Final

from scheduler.model.job import Job
from scheduler.model.orders import Facts, Reason
from scheduler.model.resources import Quantity, highest
from scheduler.model.space import NONE
from scheduler.policies.backfill.balance import TEXT
from scheduler.policies.backfill.scheduling_pass import NO_FACTS, PassReservations
from scheduler.state.profile import Availability
from scheduler.state.scheduler_state import SchedulerState

ON_FEWER = "{needed} processors wanted; {size} free ones for {walltime} s delay no reservation"
#: Unsuccessful searches that a compression remembers, the latest ones.
KEPT_SEARCHES: Final = 16


class KeptReservations(PassReservations):
    """The reservations of the state and the profile without them, during one pass.

    Parameters
    ----------
    name : of the algorithm, for reasons.
    only_new : whether it is enough to examine what has changed if neither the expected releases
        nor the depth of passes have; otherwise all queued jobs are examined.

    Attributes
    ----------
    waiting : jobs to examine, in queue order.
    """

    def __init__(self, state: SchedulerState, name: str, *, only_new: bool) -> None:
        super().__init__(state)
        self._name = name
        self._held = state.reservations
        examined: Iterable[Job] = state.queue
        if state.window is not None:
            examined = state.window
            _drop_others(state, state.window)
        profile = state.current_profile()
        if profile is None:
            profile = Availability(state.now, state.free, state.releases)
            _reserve_again(profile, _runnable(state, examined), self._held)
        elif only_new and not (state.compression_due or state.was_limited):
            examined = _due_and_new(state)
        self.waiting: Iterator[Job] = _runnable(state, examined)
        self._profile = profile
        self._vacated_until = -inf  # latest end of what moved reservations have left
        #: What was searched for without success: demand, estimate, start of the reservation, time
        #: before which it does not fit. The latest is the first.
        self._searched: list[tuple[Quantity, float, float, float]] = []
        self._compressing = state.compression_due
        #: Upper bound of what is free before `more_free_until` of the profile.
        self._peak = profile.peak(profile.more_free_until) if self._compressing else profile.none

    def end(self) -> None:
        """Keep the profile, and note up to when jobs that were examined early may fit better."""
        if self._compressing:
            self._profile.more_free_until = self._vacated_until
        self.state.keep_profile(self._profile)

    def holds(self, job: Job) -> bool:
        """Whether a job holds a reservation."""
        return job.id in self._held

    def admits(self, job: Job) -> bool:
        """Whether a job may start now without delaying a reservation of another job."""
        now, needed, estimate_s = self.state.now, job.demand, job.estimate_s
        if needed > self.state.free:
            return False
        at = self._held.get(job.id)
        if at is None:
            return self._profile.earliest(needed, estimate_s, now) <= now
        if at <= now or needed > self._peak:
            return at <= now
        return self._profile.earlier(needed, estimate_s, at) <= now

    def next_candidate(self) -> Job | None:
        """First job of the index that fits into the profile now."""
        return self.state.queue.candidates.next(self._profile.lasting())

    def start(self, job: Job, choice: Facts = NO_FACTS) -> bool:
        """Start a job that is admitted; the reservation that it may hold is cancelled."""
        state, now = self.state, self.state.now
        if self._cancel(job) and self._profile.earliest(job.demand, job.estimate_s, now) > now:
            return False  # the time of its reservation has passed
        needed, free = state.format_quantity(job.demand), state.format_quantity(state.free)
        facts: Facts = {"needed": needed, "walltime": job.estimate_s, "free": free}
        unit = "" if state.multi_resource else " processors"
        text = f"{{needed}} of {{free}} free{unit} for {{walltime}} s delay no reservation"
        if choice:
            text, facts = f"{text}; {TEXT}", {**facts, **choice}
        if not state.start(job, Reason(self._name, text, facts)):
            return False
        self._profile.reserve(job.demand, now, job.estimate_s)
        return True

    def examine(self, job: Job, *, may_reserve: bool) -> bool:
        """Start a job, or move its reservation or make one; return whether it holds one then."""
        at, now = self._held.get(job.id), self.state.now
        if at is not None:
            if job.demand <= self._peak:
                at = self._compress(job, at)
            if at > now:
                return not (job.minimum and self._start_on_fewer(job))
            self._cancel(job)
        needed, estimate_s = job.demand, job.estimate_s
        if not may_reserve and not job.minimum and needed > self.state.free:
            return False
        at = self._profile.earliest(needed, estimate_s, now)
        if at <= now:
            self.start(job)
            return False
        if job.minimum and self._start_on_fewer(job):
            return False
        if may_reserve:
            self._profile.reserve(needed, at, estimate_s)
            self._held[job.id] = at
        return may_reserve

    def _start_on_fewer(self, job: Job) -> bool:
        """Start a malleable job on the largest smaller size that delays no reservation."""
        state, now = self.state, self.state.now
        size = job.starts_on(min(state.machine.free_count, job.processors - 1))
        while size is not None:
            demand, length_s = state.quantity(size, job), job.estimate_on_s(size)
            if demand <= state.free and self._profile.earliest(demand, length_s, now) <= now:
                self._cancel(job)
                facts: Facts = {"needed": job.processors, "size": size, "walltime": length_s}
                if not state.start(job, Reason(self._name, ON_FEWER, facts), NONE, size):
                    return False
                self._profile.reserve(demand, now, length_s)
                return True
            size = job.starts_on(size - 1)
        return False

    def _cancel(self, job: Job) -> bool:
        """Cancel the reservation of a job; return whether it held one."""
        at = self._held.pop(job.id, None)
        if at is None:
            return False
        self._profile.cancel(job.demand, at, job.estimate_s)
        self._searched.clear()
        if at > self.state.now:  # the job was chosen
            end = at + job.estimate_s
            self._vacate(end, self._profile.peak(end))
        return True

    def _compress(self, job: Job, at: float) -> float:
        """Move a reservation to the earliest time at which it fits, and return that time (s).

        A job with at least the demand and the estimate of another one, and with a reservation that
        is not earlier, cannot be moved to a time at which the other did not fit.
        """
        profile, needed, estimate_s = self._profile, job.demand, job.estimate_s
        searched_until = -inf
        for demand, length_s, start, until in self._searched:
            if (
                until > searched_until
                and estimate_s >= length_s
                and at >= start
                and needed >= demand
            ):
                searched_until = until
        if searched_until >= at or searched_until >= profile.more_free_until:
            return at
        earlier = profile.earlier(needed, estimate_s, at, searched_until)
        if earlier < at:
            self._held[job.id] = earlier
            more = profile.move(needed, estimate_s, at, earlier)
            self._search_again(max(at, earlier + estimate_s), more)
            self._vacate(at + estimate_s, more)
        self._searched.insert(0, (needed, estimate_s, at, earlier))
        if len(self._searched) > KEPT_SEARCHES:
            self._searched.pop()
        return earlier

    def _search_again(self, since: float, most: Quantity) -> None:
        """Shorten the searches that may succeed, as up to `most` is free from a time (s) on."""
        for i, (demand, length_s, start, until) in enumerate(self._searched):
            if most >= demand and until > since - length_s:
                self._searched[i] = demand, length_s, start, since - length_s

    def _vacate(self, end: float, most: Quantity) -> None:
        """Record that up to `most` has become free until a time (s): a reservation has moved."""
        profile = self._profile
        self._vacated_until = max(self._vacated_until, end)
        if end > profile.more_free_until:
            profile.more_free_until = end
            self._peak = profile.peak(end)
        else:
            self._peak = highest((self._peak, most))


def _runnable(state: SchedulerState, jobs: Iterable[Job]) -> Iterator[Job]:
    """Jobs that request no more than the machine has."""
    installed = state.installed
    return (job for job in jobs if job.demand <= installed)


def _due_and_new(state: SchedulerState) -> list[Job]:
    """Jobs whose reservations begin by now, and those that arrived, in queue order."""
    reservations, now = state.reservations, state.now
    new = state.queue.arrived(now)
    if not reservations or min(reservations.values()) > now:
        return new
    numbers = {job.id for job in new} | {job for job, at in reservations.items() if at <= now}
    return [job for job in state.queue if job.id in numbers]


def _drop_others(state: SchedulerState, window: list[Job]) -> None:
    """Cancel the reservations of jobs that this pass does not examine."""
    numbers = {job.id for job in window}
    others = [number for number in state.reservations if number not in numbers]
    for number in others:
        del state.reservations[number]
    if others:
        state.profile = None


def _reserve_again(
    profile: Availability, waiting: Iterable[Job], reservations: dict[int, float]
) -> None:
    """Reserve in a new profile, in queue order, until one does not fit; drop the others."""
    kept: dict[int, float] = {}
    for job in waiting:
        if len(kept) == len(reservations):
            break
        if job.id not in reservations:
            continue
        at = max(reservations[job.id], profile.now)
        needed, estimate_s = job.demand, job.estimate_s
        if profile.earliest(needed, estimate_s, at) != at:
            break
        profile.reserve(needed, at, estimate_s)
        kept[job.id] = at
    reservations.clear()
    reservations.update(kept)
