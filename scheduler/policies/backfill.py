"""Backfilling with k reservations: none is FCFS, one is EASY, all is conservative.

In the order of the queue jobs start while they fit. The first one that does not is the head. Each
of the first k jobs that must wait is promised a start; a later one may start now if, as far as
walltimes tell, it delays none of the promised starts. (An expansion of a running job respects the
first promise, if its policy does so; later ones may have to be made anew.)
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import TypeAlias

import msgspec

from scheduler.core.availability import Availability
from scheduler.core.orders import Reason
from scheduler.core.state import Job, JobState
from scheduler.core.view import View, shadow

Starts: TypeAlias = Iterator[tuple[Job, Reason]]


class Backfill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Backfilling.

    Parameters
    ----------
    reservations : how many waiting jobs hold one; None is all of them.

    Raises
    ------
    ValueError : fewer than 0 reservations.
    """

    reservations: int | None = 1

    def __post_init__(self) -> None:
        """Check the number."""
        if self.reservations is not None and self.reservations < 0:
            raise ValueError(f"reservations must be >= 0 or null for all, got {self.reservations}")

    @property
    def name(self) -> str:
        """The usual name of backfilling with so many reservations."""
        if self.reservations is None:
            return "conservative"
        return {0: "FCFS", 1: "EASY"}.get(self.reservations, f"{self.reservations} reservations")

    def starts(self, view: View) -> Starts:
        """Jobs to start now, one after the other, each with its reason.

        The core starts a job before it asks for the next; a job still PENDING then found no
        acceptable processors and is passed over.
        """
        if self.reservations == 0:
            yield from _in_order(view, self.name)
        elif self.reservations == 1:
            yield from _in_order(view, self.name)
            yield from _behind_the_head(view)
        else:
            yield from _promised(view, self.reservations, self.name)


def _in_order(view: View, name: str) -> Starts:
    """Start the first jobs of the queue while they fit."""
    while (job := view.head) is not None and job.spec.processors <= view.free:
        yield (
            job,
            Reason(
                f"{name} in order",
                "first in the queue: {needed} processors wanted, {free} free",
                {"needed": job.spec.processors, "free": view.free},
            ),
        )
        if job.state is JobState.PENDING:
            return


def _behind_the_head(view: View) -> Starts:
    """EASY: the head has a reservation, and whatever does not delay it may pass."""
    view.reservations.clear()
    head = view.head
    if head is None or len(view.queue) == 1:
        return
    reservation = shadow(head, view.now, view.free, view.ends)
    at, spare = reservation.at, reservation.spare
    view.reservations[head.id] = at
    job, place = head, view.queue.place(head)
    while (next_job := view.queue.next(place, at_most=view.free)) is not None:
        job, place = next_job, view.queue.place(next_job)
        needed = job.spec.processors
        in_time = view.now + job.spec.walltime_s <= at
        if in_time or needed <= spare:
            yield job, _passed(job, head, at, None if in_time else spare)
            if not in_time and job.state is not JobState.PENDING:
                spare -= needed


def _passed(job: Job, head: Job, at: float, spare: int | None) -> Reason:
    facts = {
        "needed": job.spec.processors,
        "walltime": job.spec.walltime_s,
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


def _promised(view: View, reservations: int | None, name: str) -> Starts:
    """Place every job in the profile of free processors, keeping what was promised before.

    When processors came back, or are expected, at another time than before, the promised jobs are
    lifted out and placed anew one by one in the order of the queue, so that none starts later than
    it was told (the compression of Mu'alem and Feitelson). Otherwise only new jobs are placed. A
    promise that can no longer be kept (a job outlived its walltime or grew) is made anew, and so
    are those behind it, lest they get in its way.
    """
    profile = Availability(view.now, view.free, view.ends)
    waiting = [job for job in view.queue if job.spec.processors <= view.installed]
    promised = view.reservations
    _reserve_again(profile, waiting, promised)
    held = 0
    for job in waiting:
        needed, walltime_s = job.spec.processors, job.spec.walltime_s
        at = promised.pop(job.id, None)
        if at is not None and (view.unforeseen or at <= view.now):
            profile.lift(needed, at, walltime_s)
            at = None
        if at is None:
            at = profile.earliest(needed, walltime_s, view.now)
            if at <= view.now:
                facts = {"needed": needed, "walltime": walltime_s, "free": view.free}
                yield (
                    job,
                    Reason(
                        name,
                        "{needed} of {free} free processors for {walltime} s delay no reservation",
                        facts,
                    ),
                )
                if job.state is JobState.PENDING:
                    continue
                profile.reserve(needed, at, walltime_s)
                continue
            if reservations is not None and held >= reservations:
                continue
            profile.reserve(needed, at, walltime_s)
        promised[job.id] = at
        held += 1


def _reserve_again(profile: Availability, waiting: list[Job], promised: dict[int, float]) -> None:
    """Enter the promises in the order of the queue as far as they can be kept; drop the others."""
    kept: dict[int, float] = {}
    for job in waiting:
        if job.id not in promised:
            continue
        at = max(promised[job.id], profile.now)
        needed, walltime_s = job.spec.processors, job.spec.walltime_s
        if profile.earliest(needed, walltime_s, at) != at:
            break
        profile.reserve(needed, at, walltime_s)
        kept[job.id] = at
    promised.clear()
    promised.update(kept)
