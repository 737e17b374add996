"""EASY with a reservation of a place, for selections that may refuse, as contiguous ones do.

The head waits for a place: processors that the selection accepts together. Its reservation is the
earliest time at which there is one, by the expected releases; processors that are free now and
needed then are kept for it. A later job may start if there is a place for it and it either ends by
then or avoids the processors that are kept. A reservation by numbers alone would not prevent small
jobs from filling forever the gaps that the head needs to be joined. In place of a reservation, jobs
behind the head may have to wait until it has a place (`WaitForPlace`).
"""

from __future__ import annotations

from math import isfinite

from scheduler.model.job import Job
from scheduler.model.orders import Reason
from scheduler.model.space import NONE, Space
from scheduler.policies.backfill.easy import HeadReservation, Reserve
from scheduler.policies.backfill.in_order import StartJob
from scheduler.state.earliest_place import EarliestPlace
from scheduler.state.scheduler_state import SchedulerState


class WaitForPlace(HeadReservation):
    """No reservation: enough processors are free for the head, and no later job takes any."""

    def next_candidate(self) -> Job | None:
        """Return None: no job may start."""
        return None

    def start(self, job: Job) -> bool:
        """Return False: no job may start."""
        return False


def only_in_shortage(
    reserve: Reserve, state: SchedulerState, start: StartJob, head: Job
) -> HeadReservation:
    """Make a reservation if too few processors are free for the head, or else let it wait.

    "A reservation for the first job in the queue is done, if enough resources are not currently
    available" (Pascual and Miguel-Alonso, Locality-aware ..., section 3).

    Parameters
    ----------
    reserve : makes the reservation.
    """
    if head.processors > state.machine.free_count:
        return reserve(state, start, head)
    return WaitForPlace(state, start, head)


class PlaceReservation(HeadReservation):
    """Reservation of the earliest place of the head."""

    def __init__(self, state: SchedulerState, start_job: StartJob, head: Job) -> None:
        super().__init__(state, start_job, head)
        self.is_reusable = state.queue.is_indexed and not state.was_limited
        self._place: EarliestPlace | None = None
        self._forget_places()

    @property
    def place(self) -> EarliestPlace:
        """Earliest place of the head, computed when the first job might start before it."""
        if self._place is None:
            self._place = EarliestPlace(self.state, self.head)
        return self._place

    def backfill_queue(self) -> None:
        """Start all queued jobs that may start before the head."""
        state = self.state
        if state.queue.is_indexed:
            super().backfill_queue()
            return
        fitting = state.fitting_jobs()
        state.examined += len(fitting)
        for job in state.queue.in_backfill_order(fitting, state.now):
            self.start(job)

    def next_candidate(self) -> Job | None:
        """Next job of the search trees that has a place and does not delay the head."""
        queue, free = self.state.queue, self.state.machine.free_count
        if not any(self._has_place(size) for size in queue.sizes(free)):
            return None
        within_s = self.place.at - self.state.now
        return queue.placeable(free, within_s, self._has_place, self._has_place_outside)

    def start(self, job: Job) -> bool:
        """Start a job if it has a place and does not delay the head; return whether it started."""
        needed, state = job.processors, self.state
        if job is self.head or needed > state.machine.free_count or not self._has_place(needed):
            return False
        place = self.place
        in_time = job.estimate_s <= place.at - state.now
        if not in_time and not self._has_place_outside(needed):
            return False
        job.backfilled = True
        facts: dict[str, int | float | str] = {
            "needed": needed,
            "walltime": job.estimate_s,
            "head": self.head.id,
            "at": place.at if isfinite(place.at) else "no known time",  # nodes are down
        }
        if in_time:
            text = (
                "it takes {needed} processors for {walltime} s and ends before job {head} has a"
                " place at {at}"
            )
            kept = NONE
        else:
            text = "{needed} processors outside of the {kept} kept for job {head} from {at} on"
            kept = place.kept
            facts["kept"] = kept.count()
        if not self.start_job(job, Reason("EASY backfill by place", text, facts), kept):
            return False
        place.job_started(job, in_time=in_time)
        self._forget_places()
        return True

    def _forget_places(self) -> None:
        """Forget which sizes have a place: the free processors have changed."""
        self._placed: dict[int, bool] = {}
        self._placed_outside: dict[int, bool] = {}
        self._outside: Space | None = None
        self._free_outside = 0  # processors

    def _has_place(self, processors: int) -> bool:
        """Whether there is a place for this many processors now."""
        found = self._placed.get(processors)
        if found is None:
            found = self.state.selection.fits(self.state.machine.space, processors)
            self._placed[processors] = found
        return found

    def _has_place_outside(self, processors: int) -> bool:
        """Whether there is a place without the processors that are kept for the head."""
        found = self._placed_outside.get(processors)
        if found is None:
            outside = self._outside
            if outside is None:
                machine, kept = self.state.machine, self.place.kept
                outside = machine.space
                self._free_outside = machine.free_count - kept.count()
                if kept:
                    outside = outside.copy()
                    outside.take(kept)
                self._outside = outside
            enough = processors <= self._free_outside
            found = enough and self.state.selection.fits(outside, processors)
            self._placed_outside[processors] = found
        return found
