"""EASY where not any processors will do, as with contiguous selections.

The head waits for a place, that is for processors which the selection accepts together. Its
reservation is the earliest time at which, by the estimates of what runs, there is one; those of the
processors free now that it needs then are kept. A later job passes if it has a place and either
ends by the reservation or its place is outside of what is kept. So nobody who passes delays the
head, which a reservation by numbers alone would not see to: small jobs could go on for ever
filling the gaps that the head waits to see joined.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from scheduler.model.job import Job, JobState
from scheduler.model.orders import Reason
from scheduler.model.procset import ProcSet
from scheduler.model.space import NONE, Space
from scheduler.state.reserved_place import Place
from scheduler.state.view import Start, View


def behind_the_head(view: View, start: Start, head: Job) -> None:
    """Start whatever may pass the head."""
    queue, machine = view.queue, view.machine
    if queue.walks:
        rule = _Rule(view, start, head)
        for job in queue.walk(view.free, view.now):
            rule.tries(job)
        return
    standing = view.standing
    if standing is not None and standing[0] is head:
        rule = standing[2]
        for job in queue.arrived(view.now):
            if not rule.tries(job):
                queue.file(job)
    else:
        queue.file_all()
        if queue.smallest > machine.free_count:
            return  # whatever the reservation is
        rule = _Rule(view, start, head)
        if any(map(rule.has, queue.sizes(view.free))):
            within_s = rule.place.at - view.now
            while (
                found := queue.placeable(view.free, within_s, rule.has, rule.has_outside)
            ) is not None:
                if not rule.tries(found):
                    queue.set_aside(found)  # the selection refused it nevertheless
    view.stand(head, 0.0, rule)


def kills(view: View) -> Iterator[tuple[Job, Reason]]:
    """Jobs to end now because the head's reservation has come and they hold its place.

    As `Backfill.kills`: none in vain, and the last started first; of these, only those that stand
    on the place that the head then gets.
    """
    head, overdue = view.head, view.overdue
    if head is None or not overdue or view.place(head).at > view.now:
        return
    needed, space = head.processors, view.machine.space.copy()
    overdue.sort(key=lambda job: (job.started_at, job.id), reverse=True)
    for job in overdue:
        if job.state is JobState.COMPLETING:
            space.put(view.held(job))
    passed = [job for job in overdue if job.passed and job.state is not JobState.COMPLETING]
    place, asked = _choose(view, space, needed), 0
    while place is None and asked < len(passed):
        space.put(view.held(passed[asked]))
        place, asked = _choose(view, space, needed), asked + 1
    if place is None:
        return
    facts = {"head": head.id, "needed": needed}
    text = "its estimate is over and job {head} needs the place for its {needed} processors now"
    for job in passed[:asked]:
        if place & view.held(job):
            yield job, Reason("EASY kill at reservation", text, facts)


def _choose(view: View, space: Space, processors: int) -> ProcSet | None:
    return view.select(space, processors) if space.free.count() >= processors else None


class _Rule:
    """Who may pass the head, as long as nothing ends."""

    def __init__(self, view: View, start: Start, head: Job) -> None:
        self._view, self._start, self._head = view, start, head
        self._place: Place | None = None
        self._look()

    @property
    def place(self) -> Place:
        """Reservation of the head; most passes find nobody who could pass, and need none."""
        if self._place is None:
            self._place = self._view.place(self._head)
        return self._place

    def _look(self) -> None:
        """Look anew at what there is."""
        self._has: dict[int, bool] = {}
        self._has_outside: dict[int, bool] = {}
        self._outside: Space | None = None
        self._room = 0  # processors free outside

    def has(self, processors: int) -> bool:
        """Whether there is a place for so many now."""
        has = self._has.get(processors)
        if has is None:
            has = self._view.fits(self._view.machine.space, processors)
            self._has[processors] = has
        return has

    def has_outside(self, processors: int) -> bool:
        """Whether there is one outside of what is kept for the head."""
        has = self._has_outside.get(processors)
        if has is None:
            if self._outside is None:
                self._outside = self._view.machine.space
                kept = self.place.kept
                self._room = self._view.free - kept.count()
                if kept:
                    self._outside = self._outside.copy()
                    self._outside.take(kept)
            enough = processors <= self._room
            has = enough and self._view.fits(self._outside, processors)
            self._has_outside[processors] = has
        return has

    def tries(self, job: Job) -> bool:
        """Let a job pass if it may, and tell whether it did."""
        needed, view = job.processors, self._view
        if job is self._head or needed > view.free or not self.has(needed):
            return False
        place = self.place
        in_time = job.estimate_s <= place.at - view.now
        if not in_time and not self.has_outside(needed):
            return False
        job.passed = True
        if not self._start(job, *self._terms(job, place, in_time)):
            return False
        place.started(job, in_time=in_time)
        self._look()
        return True

    def _terms(self, job: Job, place: Place, in_time: bool) -> tuple[Reason, ProcSet]:
        """Why the job may pass, and what it is to avoid."""
        facts: dict[str, int | float | str] = {
            "needed": job.processors,
            "walltime": job.estimate_s,
            "head": self._head.id,
            "at": place.at if isfinite(place.at) else "no known time",
        }
        if in_time:
            text = "{needed} processors for {walltime} s end before job {head} has a place at {at}"
            return Reason("EASY backfill by place", text, facts), NONE
        facts["kept"] = place.kept.count()
        text = "{needed} processors outside of the {kept} kept for job {head} from {at} on"
        return Reason("EASY backfill by place", text, facts), place.kept
