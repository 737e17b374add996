"""Earliest place: when a selection that may refuse will accept processors for a job.

The expected releases are put, soonest first, into a copy of the machine's free space until the
selection accepts a choice. With exclusions, the choice must be free for the time of the
estimate, so the ends of exclusions are tried as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, pairwise
from math import inf, nan
from typing import Final

from scheduler.model.job import Job, JobState
from scheduler.model.machine import Machine
from scheduler.model.procset import ProcSet
from scheduler.model.space import NONE, Space
from scheduler.state.exclusions import Blocked
from scheduler.state.scheduler_state import SchedulerState

#: Stands for an instant at which no job releases anything; it is before all job numbers.
NO_JOB: Final = -1


class EarliestPlace:
    """Earliest time at which the selection accepts processors for a job, by the estimates.

    A malleable job needs those of the smallest size on which it may start.

    Attributes
    ----------
    at : time, s; inf if the selection refuses even when everything has been released.
    """

    def __init__(self, state: SchedulerState, job: Job) -> None:
        self._state, self._job, self._needed = state, job, job.start_least
        self._kept: ProcSet | None = None
        machine, now, kept = state.machine, state.now, list[Blocked]()
        #: Times at which more may be free (s), with the job that releases processors, if one does.
        changes: Iterable[tuple[float, int, float]] = chain(
            [(now, NO_JOB, now)],
            ((max(time, now), number, time) for time, number, _ in state.releases),
        )
        if state.excluding:
            kept = state.blocked_intervals(job.spec.reservation, job.spec.nodes)
            ends = [(end, NO_JOB, end) for _, _, end in kept if now < end < inf]
            changes = sorted([*changes, *ends])
        then, leaving, free = machine.space.copy(), set[int](), machine.free_count
        needed, is_counted = self._needed, job.spec.nodes is None and not kept
        estimate_s = job.estimate_on_s(needed)
        for (at, number, time), following in pairwise(chain(changes, [(nan, NO_JOB, nan)])):
            if number != NO_JOB:
                released = _released(machine, state.live[number], time, leaving)
                then.put(released)
                free += released.count()
            if free < needed or following[0] == at:
                continue
            if is_counted:  # to count what is free in a space takes longer than all the rest
                left, fits = then, state.selection.fits(then, needed)
            else:
                left = _without(then, kept, at, at + estimate_s)
                fits = state.has_place(job, left)
            if fits:
                self.at, self._then = at, left
                return
        self.at, self._then = inf, then

    @property
    def kept(self) -> ProcSet:
        """Processors that are free now and must be free at `at`."""
        if self.at == inf:
            return NONE
        if self._kept is None:
            state, now = self._state, self._state.machine.space
            nodes = self._job.spec.nodes
            if nodes is not None and nodes.block > 1:
                place = self._state.place(self._job, self._then)
                self._kept = NONE if place is None else place & now.free
                return self._kept
            if state.excluding and state.selection.anywhere:
                # Processors that are used now are as good for the job as those that are free.
                here = self._then.free & now.free
                missing = self._needed - (self._then.free.count() - here.count())
                self._kept = here.last(missing)
                return self._kept
            self._kept = state.selection.keep(self._then, now, self._needed)
        return self._kept

    def job_started(self, job: Job, *, in_time: bool) -> None:
        """Take a job into account that starts now: it ends by `at` or avoids the kept ones."""
        if not in_time:
            self._then.take(self._state.held(job))
        self._kept = None


def _released(machine: Machine, job: Job, time: float, leaving: set[int]) -> ProcSet:
    """Processors that a job releases at a time (s); `leaving` has jobs whose leaving counted."""
    groups, resize = job.own_groups, job.resize
    if len(groups) == 1:
        return machine.usable(*groups.values())
    numbers = list(groups)
    if job.state is JobState.CONTRACTING and resize is not None:
        if time == resize.at and job.id not in leaving:
            leaving.add(job.id)
            numbers = list(resize.leaving)
        else:
            numbers = [number for number in numbers if number not in resize.leaving]
    return machine.usable(ProcSet.union(groups[number] for number in numbers))


def _without(space: Space, kept: list[Blocked], start: float, until: float) -> Space:
    """Free processors that are not kept from a job from `start` to `until` (s)."""
    blocked = [held for held, begin, end in kept if begin < until and start < end]
    if not blocked:
        return space
    left = space.copy()
    left.take(left.free & ProcSet.union(blocked))
    return left
