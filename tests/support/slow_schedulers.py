"""Slow schedulers, written from the definitions: no code and no data structure is shared.

A schedule is computed instant by instant. At each instant (a submission or an end) every scheduler
looks at all jobs again; nothing is kept between instants but the start times and, in conservative
backfilling, the reserved starts. The ends and submissions of one instant come before its decisions.

Jobs are tuples (submitted, processors, estimate, run) of whole seconds with run <= estimate, in the
order of submission.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

SlowJob: TypeAlias = tuple[int, int, int, int]


def fcfs(jobs: Sequence[SlowJob], machine: int) -> list[int]:
    """Start jobs strictly in the order of their submission."""

    def decide(now: int, queue: list[int], start: dict[int, int]) -> set[int]:
        for job in queue:
            if jobs[job][1] > free_at(now, now, jobs, start, machine):
                break
            start[job] = now
        return set()

    return instant_by_instant(jobs, decide)


def easy(
    jobs: Sequence[SlowJob], machine: int, backfill_key: Callable[[SlowJob], int] | None = None
) -> list[int]:
    """EASY backfilling: a job may overtake others unless the first of the queue starts later.

    Parameters
    ----------
    backfill_key : order in which jobs behind the first are tried; None: that of the queue.
    """

    def decide(now: int, queue: list[int], start: dict[int, int]) -> set[int]:
        waiting = list(queue)
        while waiting and jobs[waiting[0]][1] <= free_at(now, now, jobs, start, machine):
            start[waiting.pop(0)] = now
        if not waiting:
            return set()
        head, others = waiting[0], waiting[1:]
        if backfill_key is not None:
            others.sort(key=lambda job: (backfill_key(jobs[job]), job))
        shadow = earliest(now, head, jobs, start, machine)
        for job in others:
            if jobs[job][1] > free_at(now, now, jobs, start, machine):
                continue
            start[job] = now
            if earliest(now, head, jobs, start, machine) > shadow:
                del start[job]
        return set()

    return instant_by_instant(jobs, decide)


def sjbf(jobs: Sequence[SlowJob], machine: int) -> list[int]:
    """EASY backfilling that tries the jobs with the shortest estimates first."""
    return easy(jobs, machine, lambda job: job[2])


def conservative(jobs: Sequence[SlowJob], machine: int) -> list[int]:
    """Conservative backfilling: every job has a reservation, no job delays an earlier one's.

    Reservations are made at submission. At each instant with an end they are compressed: in the
    order of the queue, each job leaves its reservation for the earliest start that delays no other.
    """
    reserved: dict[int, int] = {}

    def decide(now: int, queue: list[int], start: dict[int, int]) -> set[int]:
        ended = any(start[job] + jobs[job][3] == now for job in start)
        for job in queue:
            if job not in reserved or (ended and reserved[job] > now):
                others = start | {other: at for other, at in reserved.items() if other != job}
                found = earliest(now, job, jobs, others, machine)
                reserved[job] = min(found, reserved.get(job, found))
            if reserved[job] == now:
                start[job] = reserved.pop(job)
        return set(reserved.values())

    return instant_by_instant(jobs, decide)


def instant_by_instant(
    jobs: Sequence[SlowJob], decide: Callable[[int, list[int], dict[int, int]], set[int]]
) -> list[int]:
    """Start of each job.

    Parameters
    ----------
    decide : called as decide(now, queue, start) at each instant; it enters the jobs that start now
        into `start` and returns further times at which it must be called.
    """
    start: dict[int, int] = {}
    instants = {job[0] for job in jobs}
    while instants:
        now = min(instants)
        before = set(start)
        instants |= decide(
            now, [i for i, job in enumerate(jobs) if job[0] <= now and i not in start], start
        )
        instants |= {now + jobs[job][3] for job in set(start) - before}
        instants -= {instant for instant in instants if instant <= now}
    return [start[job] for job in range(len(jobs))]


def free_at(
    time: int, now: int, jobs: Sequence[SlowJob], start: dict[int, int], machine: int
) -> int:
    """Processors free at a time, as far as is known now: ends that came, else the estimates."""
    held = 0
    for job, at in start.items():
        _, processors, estimate, run = jobs[job]
        over = at <= now and at + run <= now
        if at <= time < at + estimate and not over:
            held += processors
    return machine - held


def earliest(
    now: int, job: int, jobs: Sequence[SlowJob], start: dict[int, int], machine: int
) -> int:
    """First time from now on at which a job would have its processors for its whole estimate."""
    _, processors, estimate, _ = jobs[job]
    others = {  # those that hold processors, or will
        other: at
        for other, at in start.items()
        if other != job and (at > now or at + jobs[other][3] > now)
    }
    changes = [at + shift for other, at in others.items() for shift in (0, jobs[other][2])]
    for at in sorted({now, *(time for time in changes if time > now)}):
        instants = [at, *(time for time in changes if at < time < at + estimate)]
        if all(free_at(t, now, jobs, others, machine) >= processors for t in instants):
            return at
    raise AssertionError("the machine is too small for the job")
