"""Earliest place: when a selection that may refuse will accept processors for a job.

The expected releases are put one by one, soonest first, into a copy of the machine's free space
until the selection accepts a choice.
"""

from __future__ import annotations

from math import inf

from scheduler.model.job import Job, JobState
from scheduler.model.machine import Machine, fits, keep
from scheduler.model.procset import ProcSet
from scheduler.model.resources import processors_of
from scheduler.model.space import NONE
from scheduler.state.scheduler_state import SchedulerState


class EarliestPlace:
    """Earliest time at which the selection accepts processors for a job, by the estimates.

    Attributes
    ----------
    at : time, s; inf if the selection refuses even when everything has been released.
    """

    def __init__(self, state: SchedulerState, job: Job) -> None:
        self._state, self._needed = state, job.processors
        machine, selection, needed = state.machine, state.selection, self._needed
        then, free, at = machine.space.copy(), machine.free_count, inf
        if free >= needed and fits(selection, then, needed):
            at = state.now
        leaving: set[int] = set()
        for time, number, quantity in state.releases:
            if time > at:
                break
            then.put(_released(machine, state.live[number], time, leaving))
            free += processors_of(quantity)
            if at == inf and free >= needed and fits(selection, then, needed):
                at = max(time, state.now)
        self.at, self._then = at, then
        self._kept: ProcSet | None = None

    @property
    def kept(self) -> ProcSet:
        """Processors that are free now and must be free at `at`."""
        if self.at == inf:
            return NONE
        if self._kept is None:
            now = self._state.machine.space
            self._kept = keep(self._state.selection, self._then, now, self._needed)
        return self._kept

    def job_started(self, job: Job, *, in_time: bool) -> None:
        """Take a job into account that starts now: it ends by `at` or avoids the kept ones."""
        if not in_time:
            self._then.take(self._state.held(job))
        self._kept = None


def _released(machine: Machine, job: Job, time: float, leaving: set[int]) -> ProcSet:
    """Processors that a job releases at one of its expected releases.

    Parameters
    ----------
    leaving : jobs whose contraction has been counted; the function adds this one.
    """
    groups, resize = job.groups, job.resize
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
