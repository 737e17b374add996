"""Where not any processors will do: when there will be a place for a job.

What ends is put into a copy of the machine's space, soonest first, until the selection accepts a
place.
"""

from __future__ import annotations

from math import inf

from scheduler.model.job import Job, JobState
from scheduler.model.machine import Machine, Selection, fits, keep
from scheduler.model.procset import ProcSet
from scheduler.model.resources import processors_of
from scheduler.model.space import NONE
from scheduler.state.scheduler_state import SchedulerState


class Place:
    """Reservation of a place for a job: the earliest one, as far as expected ends tell.

    Attributes
    ----------
    at : seconds; inf if even all the ends do not make a place.
    """

    def __init__(self, ledger: SchedulerState, selection: Selection, job: Job) -> None:
        self._ledger, self._selection, self._needed = ledger, selection, job.processors
        machine, needed = ledger.machine, self._needed
        then, free, at = machine.space.copy(), machine.free_count, inf
        if free >= needed and fits(selection, then, needed):
            at = ledger.now
        leaving: set[int] = set()
        for time, number, quantity in ledger.ends:
            if time > at:
                break
            then.put(_returning(machine, ledger.live[number], time, leaving))
            free += processors_of(quantity)
            if at == inf and free >= needed and fits(selection, then, needed):
                at = max(time, ledger.now)
        self.at, self._then = at, then
        self._kept: ProcSet | None = None

    @property
    def kept(self) -> ProcSet:
        """Those of the processors free now that must be free then."""
        if self.at == inf:
            return NONE
        if self._kept is None:
            now = self._ledger.machine.space
            self._kept = keep(self._selection, self._then, now, self._needed)
        return self._kept

    def started(self, job: Job, *, in_time: bool) -> None:
        """Note that a job started now, which ends by then or stands outside of what is kept."""
        if not in_time:
            self._then.take(self._ledger.held(job))
        self._kept = None


def _returning(machine: Machine, job: Job, time: float, leaving: set[int]) -> ProcSet:
    """Processors of a job that come back at one of its expected ends.

    Parameters
    ----------
    leaving : jobs whose contraction has been counted; this one is added.
    """
    groups, resize = job.groups, job.resize
    if len(groups) == 1:
        return machine.coming(*groups.values())
    numbers = list(groups)
    if job.state is JobState.CONTRACTING and resize is not None:
        if time == resize.at and job.id not in leaving:
            leaving.add(job.id)
            numbers = list(resize.leaving)
        else:
            numbers = [number for number in numbers if number not in resize.leaving]
    return machine.coming(ProcSet.union(groups[number] for number in numbers))
