"""Where not any processors will do: when there will be a place for a job.

Functions of the core, in a file of their own. What ends is put into a copy of the machine's space,
soonest first, until the selection accepts a place.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from reshape.errors import ConfigError
from scheduler.core.machine import Machine, anywhere, fits, keep
from scheduler.core.procset import ProcSet
from scheduler.core.resources import processors_of
from scheduler.core.space import NONE
from scheduler.core.state import Job, JobState

if TYPE_CHECKING:
    from scheduler.core.core import Core
    from scheduler.policies.scenario import Scenario


def matter(machine: Machine, scenario: Scenario) -> bool:
    """Whether the selection may refuse although enough processors are free.

    Raises
    ------
    ConfigError : it needs a network that the machine has not, or the backfilling makes promises by
        numbers alone that it would break.
    """
    selection = scenario.selection
    if getattr(selection, "needs_network", False) and machine.space.network is None:
        raise ConfigError("it needs a machine with a network", field="selection")
    if machine.counted or anywhere(selection):
        return False
    if scenario.backfill.reservations not in (0, 1):
        raise ConfigError(
            f"backfilling with {scenario.backfill.name} promises numbers of processors, not places;"
            " contiguous selections go with 0 reservations (FCFS) or 1 (EASY)",
            field="selection",
        )
    return True


class Place:
    """Reservation of a place for a job: the earliest one, as far as expected ends tell.

    Attributes
    ----------
    at : seconds; inf if even all the ends do not make a place.
    """

    def __init__(self, core: Core, job: Job) -> None:
        self._core, self._needed = core, job.processors
        machine, needed = core.machine, self._needed
        selection = core.scenario.selection
        then, free, at = machine.space.copy(), machine.free_count, inf
        if free >= needed and fits(selection, then, needed):
            at = core.now
        leaving: set[int] = set()
        for time, number, quantity in core.ends:
            if time > at:
                break
            then.put(_returning(core, core.live[number], time, leaving))
            free += processors_of(quantity)
            if at == inf and free >= needed and fits(selection, then, needed):
                at = max(time, core.now)
        self.at, self._then = at, then
        self._kept: ProcSet | None = None

    @property
    def kept(self) -> ProcSet:
        """Those of the processors free now that must be free then."""
        if self.at == inf:
            return NONE
        if self._kept is None:
            core = self._core
            now = core.machine.space
            self._kept = keep(core.scenario.selection, self._then, now, self._needed)
        return self._kept

    def started(self, job: Job, *, in_time: bool) -> None:
        """Note that a job started now, which ends by then or stands outside of what is kept."""
        if not in_time:
            self._then.take(self._core.view.held(job))
        self._kept = None


def _returning(core: Core, job: Job, time: float, leaving: set[int]) -> ProcSet:
    """Processors of a job that come back at one of its expected ends.

    Parameters
    ----------
    leaving : jobs whose contraction has been counted; this one is added.
    """
    groups, resize = job.groups, job.resize
    if len(groups) == 1:
        return core.machine.coming(*groups.values())
    numbers = list(groups)
    if job.state is JobState.CONTRACTING and resize is not None:
        if time == resize.at and job.id not in leaving:
            leaving.add(job.id)
            numbers = list(resize.leaving)
        else:
            numbers = [number for number in numbers if number not in resize.leaving]
    return core.machine.coming(ProcSet.union(groups[number] for number in numbers))
