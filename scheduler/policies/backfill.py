"""Backfilling with k reservations: none is FCFS, one is EASY, all is conservative.

In the order of the queue jobs start while they fit. The first one that does not is the head. Each
of the first k jobs that must wait is promised a start; a later one may start now if, as far as
walltimes tell, it delays none of the promised starts. (An expansion of a running job respects the
first promise, if its policy does so; later ones may have to be made anew.)
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

import msgspec

from scheduler.core.orders import Reason
from scheduler.core.state import Job, JobState
from scheduler.core.view import Start, View
from scheduler.policies import places, promises


class Backfill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Backfilling.

    Parameters
    ----------
    reservations : how many waiting jobs hold one; None is all of them.
    kill_at_reservation : when the time of EASY's reservation has come and jobs that passed the head
        still hold, beyond their estimates, what the head needs, end them (Pascual and
        Miguel-Alonso, Locality-aware ..., section 2). It says something where jobs outlive their
        estimates, that is where they are not killed at the walltime. Nobody is ended in vain:
        only if the head can start then, and the last started first.

    Raises
    ------
    ValueError : fewer than 0 reservations; killing at a reservation that is not EASY's.
    """

    reservations: int | None = 1
    kill_at_reservation: bool = False

    def __post_init__(self) -> None:
        """Check the number."""
        if self.reservations is not None and self.reservations < 0:
            raise ValueError(f"reservations must be >= 0 or null for all, got {self.reservations}")
        if self.kill_at_reservation and self.reservations != 1:
            raise ValueError("kill_at_reservation goes with 1 reservation (EASY) alone")

    @property
    def name(self) -> str:
        """The usual name of backfilling with so many reservations."""
        if self.reservations is None:
            return "conservative"
        return {0: "FCFS", 1: "EASY"}.get(self.reservations, f"{self.reservations} reservations")

    def kills(self, view: View) -> Iterator[tuple[Job, Reason]]:
        """Jobs to end now because the head's reservation has come and they hold its processors."""
        if view.placing:
            yield from places.kills(view)
            return
        head = view.head
        if head is None or head.spec.processors <= view.free or view.shadow(head)[0] > view.now:
            return
        overdue = view.overdue
        ending = [job for job in overdue if job.state is JobState.COMPLETING]
        short = head.spec.processors - view.free - sum(job.size for job in ending)
        chosen: list[Job] = []
        for job in sorted(overdue, key=lambda job: (job.started_at, job.id), reverse=True):
            if short > 0 and job.passed and job.state is not JobState.COMPLETING:
                chosen.append(job)
                short -= job.size
        if short > 0:
            return
        facts = {"head": head.id, "needed": head.spec.processors}
        text = "its estimate is over and job {head} needs its {needed} processors now"
        for job in chosen:
            yield job, Reason("EASY kill at reservation", text, facts)

    def schedule(self, view: View, start: Start) -> None:
        """Start the jobs that may start now."""
        if self.reservations == 0:
            _in_order(view, start, "FCFS in order")
        elif self.reservations == 1:
            head = _in_order(view, start, "EASY in order")
            if head is not None and len(view.queue.jobs) > 1:
                (places.behind_the_head if view.placing else _behind_the_head)(view, start, head)
        else:
            promises.schedule(view, start, self.reservations, self.name)


def _in_order(view: View, start: Start, rule: str) -> Job | None:
    """Start the first jobs of the queue while they fit; tell the first one that has to wait."""
    queue, machine = view.queue, view.machine
    able = view.able if view.placing else None
    text = "first in the queue: {needed} processors wanted, {free} free"
    while queue.jobs and (job := queue.first(machine.installed, able)) is not None:
        needed, free = job.spec.processors, machine.free_count
        if needed > free or not start(job, Reason(rule, text, {"needed": needed, "free": free})):
            return job
    return None


def _behind_the_head(view: View, start: Start, head: Job) -> None:
    """EASY: the head has a reservation, and whatever does not delay it may pass.

    If nothing but arrivals came since the last pass, only they are looked at. Otherwise each
    question for the next one that fits goes to the trees of the queue.
    """
    queue, machine, now = view.queue, view.machine, view.now
    if queue.walks:
        _walk(view, start, head)
        return
    standing = view.standing
    if standing is not None and standing[0] is head:
        _, at, spare = standing
        for job in queue.arrived(now):
            needed = job.spec.processors
            in_time = job.estimate_s <= at - now
            if needed > machine.free_count or not (in_time or needed <= spare) or job is head:
                queue.file(job)
            elif start(job, _passed(job, head, at, None if in_time else spare)) and not in_time:
                spare -= needed
        view.stand(head, at, spare)
        return
    queue.file_all()
    if queue.smallest() > machine.free_count:
        return  # whatever the reservation is
    at, spare = view.shadow(head)
    while (found := queue.candidate(machine.free_count, at - now, spare)) is not None:
        in_time = found.estimate_s <= at - now
        if found is head or not start(found, _passed(found, head, at, None if in_time else spare)):
            queue.set_aside(found)  # no acceptable processors
        elif not in_time:
            spare -= found.spec.processors
    view.stand(head, at, spare)


def _walk(view: View, start: Start, head: Job) -> None:
    """EASY where the passing order changes with time: sort, and look at each job that fits."""
    at, spare = view.shadow(head)
    for job in view.queue.walk(view.free, view.now):
        needed = job.spec.processors
        in_time = job.estimate_s <= at - view.now
        if needed > view.free or not (in_time or needed <= spare) or job is head:
            continue
        if start(job, _passed(job, head, at, None if in_time else spare)) and not in_time:
            spare -= needed


def _passed(job: Job, head: Job, at: float, spare: int | None) -> Reason:
    """Note that the job passes the head, and say why it may."""
    job.passed = True
    facts = {
        "needed": job.spec.processors,
        "walltime": job.estimate_s,
        "head": head.id,
        "at": at if isfinite(at) else "no known time",  # while nodes it needs are away
    }
    if spare is None:
        return Reason(
            "EASY backfill",
            "{needed} processors for {walltime} s end before the reservation of job {head} at {at}",
            facts,
        )
    facts["spare"] = spare
    return Reason(
        "EASY backfill",
        "{needed} of the {spare} processors that job {head} leaves over at its reservation at {at}",
        facts,
    )
