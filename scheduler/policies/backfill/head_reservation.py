"""Reservations of a scheduling pass, and the jobs that start without delaying them.

The reservation of the head alone (EASY, Lifka 1995) needs no profile. Until the head starts, the
free processors only grow, by the expected releases. So two numbers tell all of the profile that
matters: the shadow time, and the extra processors, which are left over then.
"""

from __future__ import annotations

from math import inf
from typing import cast

from scheduler.model.job import REASON, Job
from scheduler.model.orders import Facts
from scheduler.model.resources import processors_of
from scheduler.model.space import NONE
from scheduler.policies.backfill.balance import TEXT
from scheduler.policies.backfill.scheduling_pass import (
    NO_FACTS,
    PassReservations,
    Starter,
    facts_before,
)
from scheduler.state.profile import longest_until
from scheduler.state.scheduler_state import SchedulerState

IN_TIME = (
    "it takes {needed} processors for {walltime} s and ends before the reservation of job {head}"
    " at {at}"
)
ON_EXTRA = (
    "{needed} of the {spare} processors that job {head} leaves over at its reservation at {at}"
)


class HeadReservation(PassReservations):
    """Reservation of processors, or of an amount of each resource, at the shadow time of the head.

    A job may start if it ends by the shadow time or takes only what is left over then. No place is
    reserved, even if the selection may refuse.
    """

    def __init__(self, state: SchedulerState, starter: Starter, head: Job) -> None:
        super().__init__(state, starter)
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
        """First job of the search trees that may be admitted."""
        state, free = self.state, self.state.machine.free_count
        extra = processors_of(self._extra) if state.multi_resource else cast("int", self._extra)
        most_extra = extra if extra < free else free
        limits = [(most_extra, inf), (free, longest_until(self._at, state.now))]
        return state.queue.candidate(limits)

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
        if not self.starter.start(job, REASON("EASY backfill", text, facts), NONE, size):
            return False
        if not in_time:
            self._extra -= demand
        return True
