"""Scheduling pass on a profile of numbers: free processors, or amounts of resources, over time.

The parameter is the number of reservations. With none (FCFS) jobs start in queue order while they
fit. With one (EASY) the first job that does not fit, the head, has a reservation, which is made
again when allocations or expected releases have changed. With more, or with one for each job
(conservative backfilling), jobs keep the reservations that they were given
(`scheduler.policies.backfill.kept_reservations`). Then other jobs start if they delay no
reservation, in backfill order or as a rule chooses them.

The reservation of the head is one of numbers (`HeadReservation`), or for a selection that may
refuse one of a place (`PlaceReservation`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Literal, TypeAlias, cast

from scheduler.model.job import REASON, Job, QueuePosition
from scheduler.model.orders import Facts, Reason
from scheduler.model.resources import processors_of
from scheduler.model.space import NONE, Space
from scheduler.policies.backfill.balance import TEXT, Choose
from scheduler.policies.backfill.kept_reservations import KeptReservations
from scheduler.policies.backfill.scheduling_pass import (
    NO_FACTS,
    PassReservations,
    SchedulingPass,
    facts_before,
)
from scheduler.state.earliest_place import EarliestPlace
from scheduler.state.profile import longest_until
from scheduler.state.scheduler_state import SchedulerState

#: What is reserved for the head if the selection may refuse; see `Backfill.reserve`.
ReservedForHead: TypeAlias = Literal["place", "shortage"]
FIRST = "first in the queue: {needed} processors wanted, {free} free"
FIRST_AMOUNTS = "first in the queue: {needed} wanted, {free} free"  # quantities name their units
FIRST_ON_FEWER = FIRST + "; it starts on {size}"
IN_TIME = (
    "it takes {needed} processors for {walltime} s and ends before the reservation of job {head}"
    " at {at}"
)
ON_EXTRA = (
    "{needed} of the {spare} processors that job {head} leaves over at its reservation at {at}"
)
BEFORE_PLACE = (
    "it takes {needed} processors for {walltime} s and ends before job {head} has a place at {at}"
)
OUTSIDE = "{needed} processors outside of the {kept} kept for job {head} from {at} on"


class ProfilePass(SchedulingPass):
    """Scheduling pass on a profile of numbers.

    Parameters
    ----------
    reservations : number of queued jobs that hold one; None is all of them.
    reserve : what is reserved for the head if the selection may refuse.
    choose : chooses the next of the jobs that may start before others; None: the first.
    chooses_all : whether `choose` accepts one of the jobs in any case. Otherwise a job that it
        has refused may be accepted later, so all jobs are examined in each pass.
    """

    def __init__(
        self,
        state: SchedulerState,
        name: str,
        reservations: int | None,
        reserve: ReservedForHead,
        choose: Choose | None,
        chooses_all: bool,
    ) -> None:
        super().__init__(state, name)
        self._rule = f"{name} in order"
        self._most = inf if reservations is None else float(reservations)
        self._choose, self._chooses_all = choose, chooses_all
        self._reserves_place = state.placing and reserve == "place"
        self._waits_for_place = state.placing and reserve == "shortage"
        indexed = state.queue.is_indexed
        self._searches = choose is None and indexed and not state.multi_resource
        self.can_start_unqueued = self._most <= 1 and not (state.multi_resource or state.placing)
        #: Reservation of the head that still holds while the version of the state is this one.
        self._reservation: PassReservations | None = None
        self._version = -1

    def run(self) -> None:
        """Start the queued jobs that may start now."""
        if self._most > 1:
            self._run_with_kept_reservations()
            return
        head, state = self._start_in_order(), self.state
        if self._most and head is not None and len(state.queue.jobs) > 1 and state.backfill_allowed:
            self._start_before(head)

    # No reservation, or that of the head.

    def _start_in_order(self) -> Job | None:
        """Start jobs in queue order while they fit, and return the head, which does not."""
        state = self.state
        queue, installed = state.queue, state.machine.installed
        check = state.can_run if state.placing or state.multi_resource else None
        while (job := queue.first(installed, check)) is not None:
            if not self.start_first(job):
                return job
            if not queue.jobs:
                break
        return None

    def start_first(self, job: Job) -> bool:
        """Start the first job of the queue if it fits, and return whether it did."""
        state = self.state
        if state.multi_resource:
            if job.demand > state.free:
                return self._start_on_fewer(job)
            needed, free = state.format_quantity(job.demand), state.format_quantity(state.free)
            reason = REASON(self._rule, FIRST_AMOUNTS, {"needed": needed, "free": free})
            return self.state.start(job, reason)
        processors, free_count = job.processors, state.machine.free_count
        if processors > free_count:
            return self._start_on_fewer(job)
        reason = REASON(self._rule, FIRST, {"needed": processors, "free": free_count})
        return self.state.start(job, reason)

    def _start_on_fewer(self, job: Job) -> bool:
        """Start a malleable job on the largest smaller size that fits; return whether it did."""
        state = self.state
        free = state.machine.free_count
        size = job.starts_on(free) if job.minimum else None
        if size is None or not state.quantity(size, job) <= state.free:
            return False
        facts = {"needed": job.spec.processors, "free": free, "size": size}
        reason = REASON(f"{self.name} on fewer processors", FIRST_ON_FEWER, facts)
        return self.state.start(job, reason, NONE, size)

    def _start_before(self, head: Job) -> None:
        """Start jobs that do not delay the head.

        While its reservation holds, only arrivals are tried: by numbers, a job that could not start
        before the head cannot start later either. By places, the start of an arrival can make room
        for an earlier job, which is tried at the next end of a job.
        """
        state, queue, reservation = self.state, self.state.queue, self._reservation
        if (
            reservation is not None
            and reservation.holds(head)
            and self._version == state.version
            and state.window is None
            and not state.releases.any_by(state.now)
        ):
            self._start_some(queue.arrived(state.now), reservation)
            queue.index_all()
        else:
            if queue.smallest > state.machine.free_count:
                return
            queue.index_all()
            if self._waits_for_place and head.processors <= state.machine.free_count:
                self._reservation = None  # no later job takes any of the free processors
                return
            if self._reserves_place:
                reservation = PlaceReservation(state, head)
            else:
                reservation = HeadReservation(state, head)
            self._start_any(reservation)
            holds = self._chooses_all and not state.was_limited
            holds = holds and (queue.is_indexed or not self._reserves_place)
            self._reservation = reservation if holds else None
        self._version = state.version

    def _start_any(self, reservation: PassReservations) -> None:
        """Start all queued jobs that do not delay the head."""
        state, alike = self.state, self.state.queue.alike
        is_plain = self._choose is None and not (self._reserves_place or state.multi_resource)
        if self._searches:
            self._start_searched(reservation)
        elif is_plain and alike is not None and state.window is None:
            self._start_groups(list(alike.groups), reservation)
        else:
            fitting = state.fitting_jobs()
            state.examined += len(fitting)
            ready = [job for job in fitting if reservation.admits(job)]
            self._start_some(state.queue.in_backfill_order(ready, state.now), reservation)

    def _start_groups(
        self, groups: list[list[QueuePosition]], reservation: PassReservations
    ) -> None:
        """Start jobs in backfill order; of each group of equal requests the first is a candidate.

        What is free does not grow, so if one job of a group may not start, the others may not.
        """
        state, queue = self.state, self.state.queue
        jobs, taken = queue.jobs, set[int]()
        state.examined += len(groups)
        ready = [group for group in groups if reservation.admits(jobs[group[0][1]])]
        for job in queue.merged(ready, state.now, taken):
            if reservation.holds(job):
                taken.add(job.id)
            elif reservation.admits(job):
                taken.add(job.id)
                reservation.start(job)

    # Jobs that delay no reservation.

    def _start_searched(self, reservations: PassReservations) -> None:
        """Start the jobs that the index of the queue finds."""
        queue = self.state.queue
        while (job := reservations.next_candidate()) is not None:
            if not self._start_one(job, reservations):
                queue.set_aside(job)

    def _start_some(self, jobs: Iterable[Job], reservations: PassReservations) -> None:
        """Start jobs of a list if they delay no reservation, in its order or as they are chosen."""
        if self._choose is None:
            for job in jobs:
                self._start_one(job, reservations)
        else:
            others = [job for job in jobs if not reservations.holds(job)]
            self._start_chosen(others, reservations, self._choose)

    def _start_one(self, job: Job, reservations: PassReservations) -> bool:
        """Start a job if it holds no reservation and delays none; return whether it started."""
        may_start = not reservations.holds(job) and reservations.admits(job)
        return may_start and reservations.start(job)

    def _start_chosen(
        self, jobs: list[Job], reservations: PassReservations, choose: Choose
    ) -> None:
        """Start jobs of a list if they delay no reservation of another job, as they are chosen."""
        ready = [job for job in jobs if reservations.admits(job)]
        while ready and (index := choose(self.state.machine, ready)) is not None:
            job, facts = index
            reservations.start(job, facts)
            ready = [other for other in ready if other is not job and reservations.admits(other)]

    # Several reservations.

    def _run_with_kept_reservations(self) -> None:
        """Start the queued jobs that may start now, and update the reservations."""
        state, choose = self.state, self._choose
        only_new = self._most == inf
        reservations = KeptReservations(state, self.name, only_new=only_new)
        if choose is not None:
            waiting = list(reservations.waiting)
            self._start_chosen(waiting, reservations, choose)
            reservations.waiting = (job for job in waiting if job.id in state.queue)
        self._place_in_order(reservations)
        state.queue.index_all()
        reservations.end()

    def _place_in_order(self, reservations: KeptReservations) -> None:
        """Start jobs, move their reservations or make new ones, in queue order."""
        state, queue = self.state, self.state.queue
        searches = self._searches and queue.has_one_order and state.window is None
        later, to_examine = 0, len(state.reservations)  # reserved for later; not examined yet
        for job in reservations.waiting:
            if searches and later >= self._most and not to_examine:
                queue.index_all()
                self._start_searched(reservations)
                return
            state.examined += 1
            to_examine -= reservations.holds(job)
            later += reservations.examine(job, may_reserve=later < self._most)


class HeadReservation(PassReservations):
    """Reservation of processors, or of an amount of each resource, at the shadow time of the head.

    It needs no profile (EASY, Lifka 1995). Until the head starts, the free processors only grow, by
    the expected releases. So two numbers tell all of the profile that matters: the shadow time, and
    the extra processors, which are left over then.

    A job may start if it ends by the shadow time or takes only what is left over then. No place is
    reserved, even if the selection may refuse.
    """

    def __init__(self, state: SchedulerState, head: Job) -> None:
        super().__init__(state)
        self._head = head
        self._at, self._extra = state.shadow(head)

    def holds(self, job: Job) -> bool:
        """Whether a job is the head."""
        return job is self._head

    def admits(self, job: Job) -> bool:
        """Whether a job fits and ends by the shadow time or takes only what is left over then."""
        if job.minimum:
            return self._size_of(job) is not None
        state, demand = self.state, job.demand
        if demand > state.free:
            return False
        return state.now + job.estimate_s <= self._at or demand <= self._extra

    def _size_of(self, job: Job) -> int | None:
        """Largest size on which a malleable job may start; None if there is none."""
        state = self.state
        size = job.starts_on(state.machine.free_count)
        if size is None or state.quantity(size, job) > state.free:
            return None
        if state.now + job.estimate_on_s(size) <= self._at:
            return size
        extra = job.starts_on(min(size, processors_of(self._extra)))
        if extra is None or not state.quantity(extra, job) <= self._extra:
            return None
        return extra

    def next_candidate(self) -> Job | None:
        """First job of the index that may be admitted."""
        state, free = self.state, self.state.machine.free_count
        extra = processors_of(self._extra) if state.multi_resource else cast("int", self._extra)
        most_extra = extra if extra < free else free
        limits = [(most_extra, inf), (free, longest_until(self._at, state.now))]
        return state.queue.candidates.next(limits)

    def start(self, job: Job, choice: Facts = NO_FACTS) -> bool:
        """Start a job that is admitted."""
        state, size = self.state, self._size_of(job) if job.minimum else None
        demand = job.demand if size is None else state.quantity(size, job)
        walltime = job.estimate_s if size is None else job.estimate_on_s(size)
        in_time = state.now + walltime <= self._at
        job.backfilled = True
        facts = facts_before(self._head, self._at, walltime, state.format_quantity(demand))
        text = IN_TIME
        if not in_time:
            text = ON_EXTRA
            facts["spare"] = state.format_quantity(self._extra)
        if state.multi_resource:
            text = text.replace(" processors", "")  # each quantity names its units
        if choice:
            text, facts = f"{text}; {TEXT}", {**facts, **choice}
        if not self.state.start(job, REASON("EASY backfill", text, facts), NONE, size):
            return False
        if not in_time:
            self._extra -= demand
        return True


class PlaceReservation(PassReservations):
    """Reservation of the earliest place of the head, for selections that may refuse.

    The head waits for processors that the selection accepts together, as contiguous ones. Its
    reservation is the earliest time at which there is such a place, by the expected releases;
    processors that are free now and needed then are kept for it. A later job may start if there is
    a place for it and it either ends by then or avoids the processors that are kept. A reservation
    by numbers alone would not prevent small jobs from filling forever the gaps that the head needs
    to be joined.
    """

    def __init__(self, state: SchedulerState, head: Job) -> None:
        super().__init__(state)
        self._head = head
        self._earliest: EarliestPlace | None = None
        self._forget_fits()

    @property
    def earliest(self) -> EarliestPlace:
        """Earliest place of the head, computed when the first job might start before it."""
        if self._earliest is None:
            self._earliest = EarliestPlace(self.state, self._head)
        return self._earliest

    def holds(self, job: Job) -> bool:
        """Whether a job is the head."""
        return job is self._head

    def admits(self, job: Job) -> bool:
        """Whether a job has a place now and does not take the one of the head."""
        needed, state = job.processors, self.state
        if needed > state.machine.free_count or not self._fits(needed):
            return False
        return state.now + job.estimate_s <= self.earliest.at or self._fits_outside(needed)

    def next_candidate(self) -> Job | None:
        """First job of the index that may be admitted."""
        candidates, free = self.state.queue.candidates, self.state.machine.free_count
        if not any(self._fits(size) for size in candidates.sizes(free)):
            return None
        within_s = longest_until(self.earliest.at, self.state.now)
        return candidates.placeable(free, within_s, self._fits, self._fits_outside)

    def start(self, job: Job, choice: Facts = NO_FACTS) -> bool:
        """Start a job that is admitted."""
        earliest = self.earliest
        in_time = self.state.now + job.estimate_s <= earliest.at
        job.backfilled = True
        facts = facts_before(self._head, earliest.at, job.estimate_s, job.processors)
        text, kept = BEFORE_PLACE, NONE
        if not in_time:
            text, kept = OUTSIDE, earliest.kept
            facts["kept"] = kept.count()
        if not self.state.start(job, Reason("EASY backfill by place", text, facts), kept):
            return False
        earliest.job_started(job, in_time=in_time)
        self._forget_fits()
        return True

    def _forget_fits(self) -> None:
        """Forget which sizes fit: the free processors have changed."""
        self._fitting: dict[int, bool] = {}
        self._fitting_outside: dict[int, bool] = {}
        self._outside: Space | None = None
        self._free_outside = 0  # processors

    def _fits(self, processors: int) -> bool:
        """Whether there is a place for this many processors now."""
        fits = self._fitting.get(processors)
        if fits is None:
            fits = self.state.selection.fits(self.state.machine.space, processors)
            self._fitting[processors] = fits
        return fits

    def _fits_outside(self, processors: int) -> bool:
        """Whether there is a place without the processors that are kept for the head."""
        fits = self._fitting_outside.get(processors)
        if fits is None:
            outside = self._outside
            if outside is None:
                machine, kept = self.state.machine, self.earliest.kept
                outside = machine.space
                self._free_outside = machine.free_count - kept.count()
                if kept:
                    outside = outside.copy()
                    outside.take(kept)
                self._outside = outside
            enough = processors <= self._free_outside
            fits = enough and self.state.selection.fits(outside, processors)
            self._fitting_outside[processors] = fits
        return fits
