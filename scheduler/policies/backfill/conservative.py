"""Promised starts: conservative backfilling, and backfilling with k reservations.

Every promised job has its place in the profile of free processors. When processors came back, or
are expected at another time, the promised jobs are placed anew one by one in the order of the
queue, so that none starts later than it was told (the compression of Mu'alem and Feitelson).
Otherwise only new jobs are placed. A promise that can no longer be kept (a job outlived its
estimate or grew) is made anew, and so are those behind it.

With k reservations jobs are looked at one by one until k promises are held; who of the others may
start now, the trees of the queue tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf

from scheduler.model.job import Job
from scheduler.model.orders import Facts, Reason
from scheduler.model.resources import Quantity
from scheduler.policies.backfill.balance import TEXT, Choose
from scheduler.state.profile import Availability
from scheduler.state.view import View


def schedule(
    reservations: int | None,
    name: str,
    choose: Choose | None,
    view: View,
    start: Callable[[Job, Reason], bool],
) -> None:
    """Start what may start now, and see to the promises.

    Parameters
    ----------
    reservations : how many waiting jobs hold a promise at most; None is all of them.
    name : of the policy, for reasons.
    choose : chooses, of the jobs that may start now, the next to start; None: the first.
    start : starts a job if there are acceptable processors, and tells whether it did.
    """
    profile = view.profile
    if profile is None:
        profile = Availability(view.now, view.idle, view.ends)
        _reserve_again(profile, _able(view, view.queue), view.reservations)
        waiting = _able(view, view.queue)
    elif view.unforeseen or reservations is not None:
        waiting = _able(view, view.queue)
    else:
        waiting = _able(view, _due_and_new(view))
    places = _Places(view, profile, start, name)
    if view.unforeseen:
        places.begin_compression()
    if choose is not None:
        ready = list(waiting)
        places.start_chosen(ready, choose)
        waiting = (job for job in ready if job.id in view.queue)
    room = inf if reservations is None else reservations
    held, promised, now = 0, view.reservations, view.now
    to_see, queue = len(promised), view.queue
    filed = queue.in_one_order and not queue.walks and not view.pooled
    for job in waiting:
        if held >= room and not to_see and filed:
            places.start_candidates()
            break
        at = promised.get(job.id)
        to_see -= at is not None
        if at is not None and job.needs <= places.peak:
            at = places.moved(job, at)
        if at is not None and at > now:
            held += 1
        else:
            held += places.place(job, promise=held < room)
    queue.file_all()
    places.end_compression()
    view.keep(profile)


class _Places:
    """Finds places in the profile, for one pass."""

    def __init__(
        self,
        view: View,
        profile: Availability,
        start: Callable[[Job, Reason], bool],
        name: str,
    ) -> None:
        self._view, self._profile, self._start, self._name = view, profile, start, name
        self._promised = view.reservations
        self._compressing = False
        self._chosen: Facts = {}  # what chose the job that is to start
        self._left = -inf  # end of the latest place that a job has left in this pass
        self._stuck: tuple[Quantity, float, float, float] | None = None  # see `moved`
        self.peak = profile.none  # most that is free where more may be free than there were

    def begin_compression(self) -> None:
        """Place promised jobs anew, too."""
        self._compressing = True
        self.peak = self._profile.peak(self._profile.gained)

    def end_compression(self) -> None:
        """Remember what jobs that were looked at early in this pass could not see yet."""
        if self._compressing:
            self._profile.gained = self._left

    def place(self, job: Job, *, promise: bool) -> bool:
        """Start a job, or let it have a promise if it may; tell whether it holds one now.

        One that was promised a start is placed anew.
        """
        at = self._promised.pop(job.id, None)
        now, needed, estimate_s = self._view.now, job.needs, job.estimate_s
        if at is not None:
            self._profile.lift(needed, at, estimate_s)
            self._stuck = None
            if at > now:  # `start_chosen` found it a place at once
                self._leave(at + estimate_s)
        if not promise and needed > self._view.idle:
            return False
        at = self._profile.earliest(needed, estimate_s, now)
        if at <= now:
            if self._starts(job):
                self._profile.reserve(needed, at, estimate_s)
            return False
        if promise:
            self._profile.reserve(needed, at, estimate_s)
            self._promised[job.id] = at
        return promise

    def start_candidates(self) -> None:
        """Start jobs that delay no promise, in order; those that hold one were seen to."""
        queue = self._view.queue
        queue.file_all()
        while (job := queue.candidate(self._profile.lasting())) is not None:
            if job.id not in self._promised:
                self.place(job, promise=False)
            if job.id in queue:
                queue.set_aside(job)

    def start_chosen(self, waiting: list[Job], choose: Choose) -> None:
        """Start jobs that delay no promise, as long as there are any, one by one as chosen."""
        ready = [job for job in waiting if self._ready(job)]
        while ready and (found := choose(self._view, ready)) is not None:
            job, self._chosen = found
            self.place(job, promise=False)
            ready = [other for other in ready if other is not job and self._ready(other)]
        self._chosen = {}

    def _ready(self, job: Job) -> bool:
        """Whether a job could start now, with all promises but its own kept where they are."""
        now, needed, estimate_s = self._view.now, job.needs, job.estimate_s
        if needed > self._view.idle:
            return False
        at = self._promised.get(job.id)
        if at is None:
            return self._profile.earliest(needed, estimate_s, now) <= now
        if at <= now or needed > self.peak:
            return at <= now
        return self._profile.earlier(needed, estimate_s, at) <= now

    def moved(self, job: Job, at: float) -> float:
        """Move a promise to the earliest time there is, and tell it.

        Where a job found no place that asked for less and was promised an earlier start, neither
        does this one; so of the last that found none is kept (needs, estimate, promised start,
        time before which there was none).
        """
        profile, needed, estimate_s = self._profile, job.needs, job.estimate_s
        stuck, none_until = self._stuck, -inf
        if stuck is not None and estimate_s >= stuck[1] and at >= stuck[2] and needed >= stuck[0]:
            none_until = stuck[3]
            if none_until >= profile.gained:
                return at
        earlier = profile.earlier(needed, estimate_s, at, none_until)
        if earlier < at:
            self._promised[job.id] = earlier
            more = profile.move(needed, estimate_s, at, earlier)
            if stuck is not None and more >= stuck[0]:
                self._stuck = None
            self._leave(at + estimate_s)
        else:
            self._stuck = needed, estimate_s, at, min(at, profile.gained)
        return earlier

    def _leave(self, end: float) -> None:
        """Note that a job has left a place that reached up to this time."""
        profile = self._profile
        self._left = max(self._left, end)
        profile.gained = max(profile.gained, self._left)
        self.peak = profile.peak(profile.gained)

    def _starts(self, job: Job) -> bool:
        view = self._view
        needed, free = view.told(job.needs), view.told(view.idle)
        facts: Facts = {"needed": needed, "walltime": job.estimate_s, "free": free}
        unit = "" if view.pooled else " processors"
        text = f"{{needed}} of {{free}} free{unit} for {{walltime}} s delay no reservation"
        if self._chosen:
            text, facts = f"{text}; {TEXT}", {**facts, **self._chosen}
        return self._start(job, Reason(self._name, text, facts))


def _able(view: View, jobs: Iterable[Job]) -> Iterator[Job]:
    """Jobs that this machine can run at all."""
    outfit = view.outfit
    return (job for job in jobs if job.needs <= outfit)


def _due_and_new(view: View) -> list[Job]:
    """Jobs promised to start by now, and those that came since the last pass, in order."""
    promised, now = view.reservations, view.now
    new = view.queue.arrived(now)
    if not promised or min(promised.values()) > now:
        return new
    numbers = {job.id for job in new} | {number for number, at in promised.items() if at <= now}
    return [job for job in view.queue if job.id in numbers]


def _reserve_again(
    profile: Availability, waiting: Iterable[Job], promised: dict[int, float]
) -> None:
    """Enter the promises in the order of the queue as far as they can be kept; drop the others."""
    kept: dict[int, float] = {}
    for job in waiting:
        if len(kept) == len(promised):
            break
        if job.id not in promised:
            continue
        at = max(promised[job.id], profile.now)
        needed, estimate_s = job.needs, job.estimate_s
        if profile.earliest(needed, estimate_s, at) != at:
            break
        profile.reserve(needed, at, estimate_s)
        kept[job.id] = at
    promised.clear()
    promised.update(kept)
