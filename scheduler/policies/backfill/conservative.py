"""Conservative backfilling, and backfilling with k reservations.

Every reservation takes its processors out of the profile. When processors were released, or their
release is expected at another time, the reservations are compressed: in queue order each is moved
to the earliest time at which it fits, so that no job starts later than it was reserved (Mu'alem and
Feitelson). Otherwise only new jobs are examined. A reservation that cannot be kept (a job exceeded
its estimate or was expanded) is made again, and so are the ones behind it.

With k reservations jobs are examined one by one until k of them hold a reservation; the search
trees of the queue then find the other jobs that may start now.

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
from scheduler.policies.backfill.balance import TEXT, Choose
from scheduler.policies.backfill.in_order import SchedulingPass, StartJob
from scheduler.state.profile import Availability
from scheduler.state.scheduler_state import SchedulerState

#: Unsuccessful searches that a compression remembers, the latest ones.
KEPT_SEARCHES: Final = 16


class Conservative(SchedulingPass):
    """Backfilling that delays no reservation.

    Parameters
    ----------
    reservations : how many queued jobs hold a reservation at most; None is all of them.
    choose : chooses the next job of those that may start now; None: the first.
    """

    def __init__(
        self,
        state: SchedulerState,
        start_job: StartJob,
        name: str,
        reservations: int | None,
        choose: Choose | None,
    ) -> None:
        super().__init__(state, start_job, name)
        self._most = reservations
        self._choose = choose

    def run(self) -> None:
        """Start the queued jobs that may start now, and update the reservations."""
        state, most = self.state, self._most
        examined: Iterable[Job] = state.queue
        if state.window is not None:
            examined = state.window
            _drop_others(state, state.window)
        profile = state.current_profile()
        if profile is None:
            profile = Availability(state.now, state.free, state.releases)
            _reserve_again(profile, _runnable(state, examined), state.reservations)
        elif not (state.compression_due or state.was_limited) and most is None:
            examined = _due_and_new(state)
        waiting: Iterable[Job] = _runnable(state, examined)
        schedule = _Schedule(state, profile, self.start_job, self.name)
        if state.compression_due:
            schedule.begin_compression()
        if self._choose is not None:
            jobs = list(waiting)
            schedule.start_chosen(jobs, self._choose)
            waiting = (job for job in jobs if job.id in state.queue)
        self._place(waiting, schedule)
        state.queue.index_all()
        schedule.end_compression()
        state.keep_profile(profile)

    def _place(self, waiting: Iterable[Job], schedule: _Schedule) -> None:
        """Start jobs, move their reservations or make new ones, in queue order."""
        state, queue, reservations = self.state, self.state.queue, self.state.reservations
        most = inf if self._most is None else self._most
        later, to_examine = 0, len(reservations)  # reserved for a later time; not examined yet
        examined = 0
        searchable = queue.has_one_order and queue.is_indexed and not state.multi_resource
        searchable = searchable and state.window is None
        for job in waiting:
            if later >= most and not to_examine and searchable:
                schedule.start_candidates()
                break
            examined += 1
            at = reservations.get(job.id)
            to_examine -= at is not None
            if at is not None and job.demand <= schedule.peak:
                at = schedule.compress(job, at)
            if at is not None and at > state.now:
                later += 1
            else:
                later += schedule.place(job, may_reserve=later < most)
        state.examined += examined


class _Schedule:
    """The profile and the reservations in it, during one pass."""

    def __init__(
        self, state: SchedulerState, profile: Availability, start_job: StartJob, name: str
    ) -> None:
        self._state, self._profile, self._start_job, self._name = state, profile, start_job, name
        self._reservations = state.reservations
        self._compressing = False
        self._choice: Facts = {}  # by which the job that starts next was chosen
        self._vacated_until = -inf  # latest end of what moved reservations have left
        #: What was searched for without success: demand, estimate, start of the reservation, time
        #: before which it does not fit. The latest is the first.
        self._searched: list[tuple[Quantity, float, float, float]] = []
        self.peak = profile.none  # upper bound of what is free before `profile.more_free_until`

    def begin_compression(self) -> None:
        """Let reservations move to earlier times."""
        self._compressing = True
        self.peak = self._profile.peak(self._profile.more_free_until)

    def end_compression(self) -> None:
        """Record up to when jobs that were examined early in the pass may fit better now."""
        if self._compressing:
            self._profile.more_free_until = self._vacated_until

    def place(self, job: Job, *, may_reserve: bool) -> bool:
        """Start a job, or reserve its start; return whether it holds a reservation now.

        A reservation that the job already has is made again.
        """
        at = self._reservations.pop(job.id, None)
        now, needed, estimate_s = self._state.now, job.demand, job.estimate_s
        if at is not None:
            self._profile.cancel(needed, at, estimate_s)
            self._searched.clear()
            if at > now:  # `start_chosen` found that the job may start now
                self._vacate(at + estimate_s, self._profile.peak(at + estimate_s))
        if not may_reserve and needed > self._state.free:
            return False
        at = self._profile.earliest(needed, estimate_s, now)
        if at <= now:
            if self._start(job):
                self._profile.reserve(needed, at, estimate_s)
            return False
        if may_reserve:
            self._profile.reserve(needed, at, estimate_s)
            self._reservations[job.id] = at
        return may_reserve

    def compress(self, job: Job, at: float) -> float:
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
            self._reservations[job.id] = earlier
            more = profile.move(needed, estimate_s, at, earlier)
            self._search_again(max(at, earlier + estimate_s), more)
            self._vacate(at + estimate_s, more)
        self._searched.insert(0, (needed, estimate_s, at, earlier))
        if len(self._searched) > KEPT_SEARCHES:
            self._searched.pop()
        return earlier

    def _search_again(self, since: float, most: Quantity) -> None:
        """Shorten the searches that may succeed now that more is free from a time on.

        Parameters
        ----------
        since : time, s.
        most : largest amount of each resource that is free at any time of what became free.
        """
        for i, (demand, length_s, start, until) in enumerate(self._searched):
            if most >= demand and until > since - length_s:
                self._searched[i] = demand, length_s, start, since - length_s

    def start_candidates(self) -> None:
        """Start jobs without a reservation that delay none, found by the search trees."""
        queue = self._state.queue
        queue.index_all()
        while (job := queue.candidate(self._profile.lasting())) is not None:
            if job.id not in self._reservations:
                self.place(job, may_reserve=False)
            if job.id in queue:
                queue.set_aside(job)

    def start_chosen(self, waiting: list[Job], choose: Choose) -> None:
        """Start jobs that delay no reservation one by one, as chosen, until there are none."""
        ready = [job for job in waiting if self._may_start(job)]
        while ready and (found := choose(self._state.machine, ready)) is not None:
            job, self._choice = found
            self.place(job, may_reserve=False)
            ready = [other for other in ready if other is not job and self._may_start(other)]
        self._choice = {}

    def _may_start(self, job: Job) -> bool:
        """Whether a job may start now without delaying a reservation of another job."""
        now, needed, estimate_s = self._state.now, job.demand, job.estimate_s
        if needed > self._state.free:
            return False
        at = self._reservations.get(job.id)
        if at is None:
            return self._profile.earliest(needed, estimate_s, now) <= now
        if at <= now or needed > self.peak:
            return at <= now
        return self._profile.earlier(needed, estimate_s, at) <= now

    def _vacate(self, end: float, most: Quantity) -> None:
        """Record that a reservation has moved.

        Parameters
        ----------
        end : end of the time that it has left, s.
        most : largest amount of each resource that is free at any time of what it has left.
        """
        profile = self._profile
        self._vacated_until = max(self._vacated_until, end)
        if end > profile.more_free_until:
            profile.more_free_until = end
            self.peak = profile.peak(end)
        else:
            self.peak = highest((self.peak, most))

    def _start(self, job: Job) -> bool:
        state = self._state
        needed, free = state.format_quantity(job.demand), state.format_quantity(state.free)
        facts: Facts = {"needed": needed, "walltime": job.estimate_s, "free": free}
        unit = "" if state.multi_resource else " processors"
        text = f"{{needed}} of {{free}} free{unit} for {{walltime}} s delay no reservation"
        if self._choice:
            text, facts = f"{text}; {TEXT}", {**facts, **self._choice}
        return self._start_job(job, Reason(self._name, text, facts))


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
