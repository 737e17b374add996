"""EASY with a reservation of amounts: several resources, a choice among jobs, aging orders.

The search trees of the queue do not help here. Each queued job is examined, or only the first one
of each group of equal requests if the backfill order keeps their order (`scheduler.state.alike`).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from math import isfinite

from scheduler.model.job import Job
from scheduler.model.orders import Facts, Reason
from scheduler.policies.backfill.balance import TEXT, Choose
from scheduler.policies.backfill.easy import IN_TIME, ON_EXTRA, HeadReservation
from scheduler.policies.backfill.in_order import StartJob
from scheduler.state.candidates import QueuePosition
from scheduler.state.scheduler_state import SchedulerState


class AmountReservation(HeadReservation):
    """Reservation of an amount of each resource at the shadow time.

    No place is reserved, even if the selection may refuse.

    Parameters
    ----------
    choose : chooses the next job of those that may start before the head; None: the first.
    chooses_all : whether `choose` accepts one of the jobs in any case. Otherwise a job that it
        has refused may be accepted later, so all jobs are examined in each pass.
    """

    def __init__(
        self,
        choose: Choose | None,
        chooses_all: bool,
        state: SchedulerState,
        start_job: StartJob,
        head: Job,
    ) -> None:
        super().__init__(state, start_job, head)
        self.is_reusable = chooses_all and not state.was_limited
        self.at, self._extra = state.shadow(head)
        self._choose = choose
        self._candidates: list[Job] = []
        self._facts: Facts = {}  # by which the next candidate was chosen

    def backfill_queue(self) -> None:
        """Start all queued jobs that may start before the head."""
        if (
            self._choose is None
            and self.state.queue.alike is not None
            and not self.state.multi_resource
            and self.state.window is None
        ):
            self._backfill_groups(self.state.queue.alike.groups)
            return
        fitting = self.state.fitting_jobs()
        self.state.examined += len(fitting)
        self._backfill(fitting)

    def backfill_arrivals(self) -> None:
        """Start those that may of the jobs that arrived since the last pass."""
        arrived = self.state.queue.arrived(self.state.now)
        self.state.queue.index_all()
        self._backfill(arrived)

    def _backfill(self, jobs: Iterable[Job]) -> None:
        fitting = [job for job in jobs if self._may_start(job) and job is not self.head]
        self._candidates = self.state.queue.in_backfill_order(fitting, self.state.now)
        while (job := self.next_candidate()) is not None:
            self._candidates.remove(job)
            if self.start(job):
                self._candidates = [job for job in self._candidates if self._may_start(job)]

    def _backfill_groups(self, groups: Iterable[list[QueuePosition]]) -> None:
        """Start jobs in backfill order; of each group only the first job is a candidate.

        What is free does not grow, so if one job of a group may not start, the others may not.
        """
        first: list[tuple[QueuePosition, int, list[QueuePosition]]] = []
        for group in groups:
            self.state.examined += 1
            if self._may_start(self.state.queue.jobs[group[0][1]]):
                self._add_first(first, group, 0)
        while first:
            (_, number), i, group = heappop(first)
            job = self.state.queue.jobs[number]
            if self._may_start(job):
                # A job that starts leaves its group.
                self._add_first(first, group, i if self.start(job) else i + 1)

    def _add_first(
        self,
        first: list[tuple[QueuePosition, int, list[QueuePosition]]],
        group: list[QueuePosition],
        i: int,
    ) -> None:
        """Add the first job of a group from index `i` on to the heap of candidates."""
        queue = self.state.queue
        if i < len(group) and group[i][1] == self.head.id:
            i += 1
        if i < len(group):
            position = queue.backfill_position(queue.jobs[group[i][1]], self.state.now)
            heappush(first, (position, i, group))

    def next_candidate(self) -> Job | None:
        """Candidate that is chosen next."""
        if not self._candidates:
            return None
        if self._choose is None:
            return self._candidates[0]
        found = self._choose(self.state.machine, self._candidates)
        if found is None:
            return None
        job, self._facts = found
        return job

    def _may_start(self, job: Job) -> bool:
        """Whether a job fits and ends by the shadow time or takes only what is left over then."""
        if job.demand > self.state.free:
            return False
        return job.estimate_s <= self.at - self.state.now or job.demand <= self._extra

    def start(self, job: Job) -> bool:
        """Start a candidate; return whether the selection accepts processors for it."""
        state = self.state
        in_time = job.estimate_s <= self.at - state.now
        job.backfilled = True
        facts: dict[str, int | float | str] = {
            "needed": state.format_quantity(job.demand),
            "walltime": job.estimate_s,
            "head": self.head.id,
            "at": self.at if isfinite(self.at) else "no known time",  # nodes are down
        }
        text = IN_TIME
        if not in_time:
            text = ON_EXTRA
            facts["spare"] = state.format_quantity(self._extra)
        if state.multi_resource:
            text = text.replace(" processors", "")  # each quantity names its units
        if self._facts:
            text += "; " + TEXT
        if not self.start_job(job, Reason("EASY backfill", text, {**facts, **self._facts})):
            return False
        if not in_time:
            self._extra -= job.demand
        return True
