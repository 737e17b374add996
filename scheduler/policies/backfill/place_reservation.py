"""Reservation of a place for the head, for selections that may refuse, as contiguous ones do.

The head waits for a place: processors that the selection accepts together. Its reservation is the
earliest time at which there is one, by the expected releases; processors that are free now and
needed then are kept for it. A later job may start if there is a place for it and it either ends by
then or avoids the processors that are kept. A reservation by numbers alone would not prevent small
jobs from filling forever the gaps that the head needs to be joined.
"""

from __future__ import annotations

from scheduler.model.job import Job
from scheduler.model.orders import Facts, Reason
from scheduler.model.space import NONE, Space
from scheduler.policies.backfill.scheduling_pass import (
    NO_FACTS,
    PassReservations,
    Starter,
    facts_before,
)
from scheduler.state.earliest_place import EarliestPlace
from scheduler.state.profile import longest_until
from scheduler.state.scheduler_state import SchedulerState

IN_TIME = (
    "it takes {needed} processors for {walltime} s and ends before job {head} has a place at {at}"
)
OUTSIDE = "{needed} processors outside of the {kept} kept for job {head} from {at} on"


class PlaceReservation(PassReservations):
    """Reservation of the earliest place of the head."""

    def __init__(self, state: SchedulerState, starter: Starter, head: Job) -> None:
        super().__init__(state, starter)
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
        """First job of the search trees that may be admitted."""
        queue, free = self.state.queue, self.state.machine.free_count
        if not any(self._fits(size) for size in queue.sizes(free)):
            return None
        within_s = longest_until(self.earliest.at, self.state.now)
        return queue.placeable(free, within_s, self._fits, self._fits_outside)

    def start(self, job: Job, choice: Facts = NO_FACTS) -> bool:
        """Start a job that is admitted."""
        earliest = self.earliest
        in_time = self.state.now + job.estimate_s <= earliest.at
        job.backfilled = True
        facts = facts_before(self._head, earliest.at, job.estimate_s, job.processors)
        text, kept = IN_TIME, NONE
        if not in_time:
            text, kept = OUTSIDE, earliest.kept
            facts["kept"] = kept.count()
        if not self.starter.start(job, Reason("EASY backfill by place", text, facts), kept):
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
