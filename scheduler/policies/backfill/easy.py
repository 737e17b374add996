"""EASY backfilling: the head of the queue has a reservation, and later jobs must not delay it.

Jobs start in queue order while they fit. The first job that does not fit is the head. Its
reservation says which of the jobs behind it may start now. What is reserved is a choice: a number
of processors (`ProcessorReservation`), amounts of several resources
(`amount_reservation.AmountReservation`), or a place (`place_reservation.PlaceReservation`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite
from typing import TypeAlias

from scheduler.model.job import Job
from scheduler.model.orders import Reason
from scheduler.model.resources import processors_of
from scheduler.policies.backfill.in_order import InOrder, StartJob
from scheduler.state.scheduler_state import SchedulerState


class HeadReservation:
    """Reservation of the head, and the rule by which jobs start before it.

    Parameters
    ----------
    state : scheduler state.
    start_job : starts a job.
    head : first job of the queue; it does not fit now.

    Attributes
    ----------
    is_reusable : whether the next pass may use the reservation again and try only the jobs that
        arrived meanwhile, as long as nothing else has changed.
    version : version of the state for which the reservation holds.
    """

    def __init__(self, state: SchedulerState, start_job: StartJob, head: Job) -> None:
        self.state = state
        self.start_job = start_job
        self.head = head
        self.is_reusable = True
        self.version = -1

    def next_candidate(self) -> Job | None:
        """Next queued job, in backfill order, that `start` may accept."""
        raise NotImplementedError

    def start(self, job: Job) -> bool:
        """Start a job if it fits and does not delay the head; return whether it started."""
        raise NotImplementedError

    def backfill_queue(self) -> None:
        """Start all queued jobs that may start before the head."""
        queue = self.state.queue
        while (job := self.next_candidate()) is not None:
            if not self.start(job):
                queue.set_aside(job)

    def backfill_arrivals(self) -> None:
        """Start those that may of the jobs that arrived since the last pass."""
        queue = self.state.queue
        for job in queue.arrived(self.state.now):
            if not self.start(job):
                queue.index(job)


#: Makes the reservation of a head.
Reserve: TypeAlias = Callable[[SchedulerState, StartJob, Job], HeadReservation]


class Easy(InOrder):
    """EASY backfilling (Lifka 1995).

    A reservation is kept until allocations or expected releases change. Until then only arrivals
    are tried: a job that could not start before the head cannot start later either.

    Parameters
    ----------
    reserve : makes the reservation of the head.
    least_share : see `InOrder`.
    """

    def __init__(
        self,
        state: SchedulerState,
        start_job: StartJob,
        name: str,
        reserve: Reserve,
        least_share: float = 1.0,
    ) -> None:
        super().__init__(state, start_job, name, least_share)
        self._reserve = reserve
        self._last: HeadReservation | None = None

    def run(self) -> None:
        """Start jobs in queue order, then jobs that do not delay the head."""
        head = self.start_in_order()
        if head is not None and len(self.state.queue.jobs) > 1 and self.state.backfill_allowed:
            self._backfill(head)

    def _backfill(self, head: Job) -> None:
        state = self.state
        reservation = self._last
        if (
            reservation is not None
            and reservation.head is head
            and reservation.version == state.version
            and state.window is None
            and not state.releases.any_by(state.now)
        ):
            reservation.backfill_arrivals()
        else:
            if state.queue.smallest > state.machine.free_count:
                return
            state.queue.index_all()
            reservation = self._reserve(state, self.start_job, head)
            reservation.backfill_queue()
        self._last = reservation if reservation.is_reusable else None
        reservation.version = state.version


class ProcessorReservation(HeadReservation):
    """Reservation of a number of processors at the shadow time.

    A job may start if it ends by the shadow time or takes only extra processors.

    Attributes
    ----------
    at : shadow time, s.
    extra : extra processors.
    """

    def __init__(self, state: SchedulerState, start_job: StartJob, head: Job) -> None:
        super().__init__(state, start_job, head)
        at, left = state.shadow(head)
        self.at = at
        self.extra = processors_of(left)

    def next_candidate(self) -> Job | None:
        """Next job of the search trees that fits and does not delay the head."""
        state, free = self.state, self.state.machine.free_count
        extra = self.extra if self.extra < free else free
        return state.queue.candidate([(extra, inf), (free, self.at - state.now)])

    def start(self, job: Job) -> bool:
        """Start a job if it fits and does not delay the head; return whether it started."""
        needed = job.processors
        in_time = job.estimate_s <= self.at - self.state.now
        if needed > self.state.machine.free_count or not (in_time or needed <= self.extra):
            return False
        if job is self.head:
            return False
        job.backfilled = True
        facts: dict[str, int | float | str] = {
            "needed": needed,
            "walltime": job.estimate_s,
            "head": self.head.id,
            "at": self.at if isfinite(self.at) else "no known time",  # nodes are down
        }
        if in_time:
            return self.start_job(job, Reason("EASY backfill", IN_TIME, facts))
        facts["spare"] = self.extra
        if not self.start_job(job, Reason("EASY backfill", ON_EXTRA, facts)):
            return False
        self.extra -= needed
        return True


IN_TIME = (
    "it takes {needed} processors for {walltime} s and ends before the reservation of job {head}"
    " at {at}"
)
ON_EXTRA = (
    "{needed} of the {spare} processors that job {head} leaves over at its reservation at {at}"
)
