"""Target sizes: how the processors of a machine are divided between the jobs that can use them.

Every running job keeps at least the smallest size to which it can contract. What these floors leave
is divided evenly: all jobs get the same number of processors, except that none gets fewer than its
floor or more than it can use. An even division shortens most where the time of a job falls with
its size at the same rate for all jobs; it needs no measurement that a young job does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from scheduler.model.job import Job, JobState

COMPLETING: Final = JobState.COMPLETING


class Targets:
    """Target sizes of running jobs and of jobs that are about to start.

    Attributes
    ----------
    floor : processors that all these jobs hold at least.
    sizes : job number -> target size; jobs that cannot be resized have their present one.
    waiting : processors that jobs which are about to start need at least.
    """

    def __init__(self) -> None:
        self.floor = 0
        self.waiting = 0
        self.sizes: dict[int, int] = {}


def held_by(job: Job) -> int:
    """Processors that a running job has, or will have when its resize is done."""
    resize = job.resize
    return job.size if resize is None else resize.new


def floor_of(job: Job) -> int:
    """Smallest size to which a running job can contract."""
    size = held_by(job)
    if not job.resizable or job.state is COMPLETING or size <= job.least:
        return size
    least = job.contracts_to(job.least)
    return size if least is None or least > size else least


def useful_most(job: Job) -> int:
    """Largest size that a job can use: its largest one, or its sweet spot."""
    spot = None if job.recorded_history is None else job.history.sweet_spot
    return job.most if spot is None or spot > job.most else spot


def floors(live: Iterable[Job]) -> int:
    """Processors that running jobs hold at least."""
    total = 0
    for job in live:
        total += floor_of(job)
    return total


def divide(live: Iterable[Job], begun: Sequence[Job], processors: int) -> Targets:
    """Divide processors between running jobs and jobs that are about to start.

    Parameters
    ----------
    live : jobs that hold processors.
    begun : queued jobs for which there is room beside the floors of the others.
    processors : of the machine.
    """
    targets, ranges = Targets(), list[tuple[int, int, int]]()
    left = processors
    for job in live:
        size, least = held_by(job), floor_of(job)
        targets.floor += least
        most = useful_most(job) if job.resizable and job.state is not COMPLETING else size
        if most <= least:
            targets.sizes[job.id] = least
            left -= least
        else:
            ranges.append((least, most, job.id))
    for job in begun:
        least = job.start_least
        targets.floor += least
        targets.waiting += least
        ranges.append((least, max(least, job.most), job.id))
    level = _level(ranges, left)
    for least, most, number in ranges:
        size = level if level < most else most
        targets.sizes[number] = size if size > least else least
        left -= targets.sizes[number]
    for least, most, number in ranges:  # what a whole level more would exceed
        if left <= 0:
            break
        if least <= level < most:
            targets.sizes[number] += 1
            left -= 1
    return targets


def _level(ranges: list[tuple[int, int, int]], processors: int) -> int:
    """Largest number of processors that every job may have, within its range."""
    low, high = 0, 0
    for _, most, _ in ranges:
        if most > high:
            high = most
    while low < high:
        middle = (low + high + 1) // 2
        needed = 0
        for least, most, _ in ranges:
            size = middle if middle < most else most
            needed += size if size > least else least
        if needed <= processors:
            low = middle
        else:
            high = middle - 1
    return low
