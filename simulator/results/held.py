"""Which processors the jobs of a schedule held, and when; a job that could not run held none."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.model.procset import ProcSet
from simulator.results.metrics import Sizes
from simulator.results.schedule import Schedule


class HeldSpans(NamedTuple):
    """Spans of time in which a job held a number of processors; (m,) each.

    Parameters
    ----------
    job : int64, index of the job.
    begin, end : float64, seconds.
    processors : int64.
    """

    job: NDArray[np.int64]
    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    processors: NDArray[np.int64]


def held_sizes(schedule: Schedule) -> HeldSpans:
    """How many processors each job held, in the order of the jobs.

    These spans add up to the utilization. Of a schedule that was read from a jobs.csv they lack the
    groups that join.
    """
    if schedule.sizes is None and schedule.held is None:
        ran = np.flatnonzero(schedule.ran)
        started, ended = schedule.started[ran], schedule.ended[ran]
        return HeldSpans(ran, started, ended, schedule.jobs.processors[ran])
    spans = [
        (job, begin, then, size)
        for job, end in enumerate(schedule.ended.tolist())
        for (begin, size), (then, _) in pairwise([*_sizes_held(schedule, job + 1), (end, 0)])
        if size  # it is 0 between two runs of a redirected job
    ]
    table = np.array(spans, np.float64).reshape(-1, 4).T
    return HeldSpans(table[0].astype(np.int64), table[1], table[2], table[3].astype(np.int64))


def _sizes_held(schedule: Schedule, number: int) -> Sizes:
    if schedule.held is not None:
        return schedule.held.get(number, ())
    return (schedule.sizes or {}).get(number, ())


def held_places(
    schedule: Schedule, *, joining: bool = False
) -> list[tuple[int, float, float, ProcSet]]:
    """Job (its index), begin and end (s) of each span of time in which it held these processors.

    Individual processors must have been allocated.

    Parameters
    ----------
    joining : with those of groups that join, if they are known; else those on which it computes.
    """
    assert schedule.allocated is not None
    ran, ended = np.flatnonzero(schedule.ran).tolist(), schedule.ended.tolist()
    places = schedule.held_places if joining and schedule.held_places else schedule.places
    if places is None:
        started = schedule.started.tolist()
        return [(job, started[job], ended[job], schedule.allocated[job + 1]) for job in ran]
    return [
        (job, begin, then, held)
        for job in ran
        for (begin, held), (then, _) in pairwise([*places[job + 1], (ended[job], None)])
        if held
    ]


def least_processors(schedule: Schedule) -> int:
    """Least number of processors of a machine that ran these jobs.

    Without allocations it is the size of the largest job, a lower bound.
    """
    if schedule.allocated is None:
        return int(held_sizes(schedule).processors.max())
    return 1 + max(held.intervals[-1][1] for *_, held in held_places(schedule))
