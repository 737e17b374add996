"""Queue orders, and priorities that queued and running jobs can be compared by (PRIO 3.1).

A larger number is more urgent. Queue orders that rank jobs by a priority implement `Prioritised`;
the priority of a running job depends on the part of its walltime that is left.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Protocol, runtime_checkable

from scheduler.model.job import Job


class QueueOrder:
    """Order of the queue: the base of a class with typed parameters, `ages` and `key`.

    Its members say what the core may assume of an order. A subclass redefines those in which it
    differs::

        class LargestFirst(QueueOrder, msgspec.Struct, frozen=True):
            ages = False

            def key(self, job: Job, now: float) -> int:
                return -job.processors

    Attributes
    ----------
    refresh_s : time that must pass before an order that ages is applied again, s.
    keeps_alike : whether two jobs of the same processors, estimate, walltime and user's priority
        never change their order.
    """

    __slots__ = ()

    refresh_s: float = 0.0
    keeps_alike: bool = False

    @property
    def ages(self) -> bool:
        """Whether keys change while a job waits, so that each pass sorts the queue again."""
        raise NotImplementedError(f"{type(self).__name__} does not state ages")

    def key(self, job: Job, now: float) -> Any:
        """Sort key at a time (s), ascending; equal keys are ordered by job number."""
        raise NotImplementedError(f"{type(self).__name__} has no method key")


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
