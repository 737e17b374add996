"""Queue orders by arrival, estimate, user priority and expansion factor."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reshape.errors import check_ranges
from scheduler.model.interfaces import QueueOrder
from scheduler.model.job import Job
from scheduler.model.job_view import original
from scheduler.policies.queue_orders.compiled_keys import lxwf_key, lxwf_keys


class Fcfs(QueueOrder, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """First come, first served."""

    ages = False

    def key(self, job: Job, now: float) -> float:
        """Time at which the job came to the queue; ties are broken by job number."""
        return job.queued_at


class Sjf(QueueOrder, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shortest job first, by estimate."""

    ages = False

    def key(self, job: Job, now: float) -> tuple[float, float]:
        """Estimate, then the time at which the job came to the queue."""
        return job.estimate_s, job.queued_at


class ByPriority(QueueOrder, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Highest user-assigned priority first (PRIO 3.1)."""

    ages = False

    def key(self, job: Job, now: float) -> tuple[float, float]:
        """Priority, highest first, then the time at which the job came to the queue."""
        return -job.spec.priority, job.queued_at


class Lxwf(QueueOrder, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Largest expansion factor and wait first: LXF&W of Chiang, Arpaci-Dusseau and Vernon (2002).

    The priority is the expansion factor that the job would have if it started now, (wait +
    estimate) / estimate, plus the weighted wait, which prevents long jobs from starving.

    Parameters
    ----------
    weight_per_hour : weight of the wait; 0.02 in the paper.

    Raises
    ------
    ValueError : the weight is negative or not finite.
    """

    ages = True
    keeps_alike = True
    weight_per_hour: float = 0.02

    def __post_init__(self) -> None:
        """Check the weight."""
        check_ranges(self, weight_per_hour=">= 0 and finite")

    def key(self, job: Job, now: float) -> tuple[float, float]:
        """Priority, largest first, then the time at which the job came to the queue."""
        return lxwf_key(job if isinstance(job, Job) else original(job), now, self.weight_per_hour)

    def keys(self, jobs: Iterable[Job], now: float) -> list[tuple[float, float]]:
        """Keys of several jobs, in compiled code."""
        if type(self) is not Lxwf:  # a subclass may have another key
            return super().keys(jobs, now)
        return lxwf_keys(jobs, now, self.weight_per_hour)
