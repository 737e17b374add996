"""Priorities that queued and running jobs can be compared by (PRIO 3.1).

A larger number is more urgent. Queue orders that rank jobs by a priority implement `Prioritised`;
the priority of a running job depends on the part of its walltime that is left.
"""

from __future__ import annotations

from math import isfinite
from typing import Protocol, runtime_checkable

from scheduler.model.job import Job


@runtime_checkable
class Prioritised(Protocol):
    """Queue order that gives queued jobs a priority comparable with `running_priority`."""

    def priority(self, job: Job, now: float) -> float:
        """Priority of a queued job at time `now` (s); larger is more urgent."""


def running_priority(job: Job, now: float) -> float:
    """Priority of a running job: ``(100 - pct_time_left) + user`` (PRIO 3.1).

    "An application that is closer to finishing its execution will be assigned a higher priority."
    An overdue job has 0 % of its time left; a job without a walltime limit always has 100 %.
    """
    walltime_s, started_at = job.walltime_s, job.started_at
    if started_at is None or not isfinite(walltime_s):
        return job.spec.priority
    left_s = walltime_s - (now - started_at)
    if left_s < 0.0:  # policies call this for every running job: faster than `min` and `max`
        left_s = 0.0
    elif left_s > walltime_s:
        left_s = walltime_s
    return 100.0 - 100.0 * left_s / walltime_s + job.spec.priority
