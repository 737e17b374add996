"""Orders of the queue, and of the jobs that may pass its head."""

from __future__ import annotations

from math import isfinite
from typing import ClassVar

import msgspec

from scheduler.model.job import Job


class Fcfs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """First come, first served."""

    ages: ClassVar[bool] = False

    def key(self, job: Job, now: float) -> float:
        """Time of its coming to the queue; ties by job number."""
        return job.queued_at


class Sjf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shortest job first, by estimate."""

    ages: ClassVar[bool] = False

    def key(self, job: Job, now: float) -> tuple[float, float]:
        """Estimate, then the time of its coming."""
        return job.estimate_s, job.queued_at


class ByPriority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Highest priority of its submission first (PRIO 3.1's user-assigned priority)."""

    ages: ClassVar[bool] = False

    def key(self, job: Job, now: float) -> tuple[float, float]:
        """Priority, then the time of its coming."""
        return -job.spec.priority, job.queued_at


class Lxwf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Largest expansion and wait first: LXF&W of Chiang, Arpaci-Dusseau and Vernon (2002).

    The priority is the expansion factor that the job would have if it started now, (wait +
    estimate) / estimate, plus a small weight on the wait, by which long jobs do not starve.

    Parameters
    ----------
    weight_per_hour : that weight; the paper's is 0.02.

    Raises
    ------
    ValueError : it is negative or no number.
    """

    ages: ClassVar[bool] = True
    weight_per_hour: float = 0.02

    def __post_init__(self) -> None:
        """Check the weight."""
        if not (isfinite(self.weight_per_hour) and self.weight_per_hour >= 0):
            raise ValueError(f"weight_per_hour must be >= 0, got {self.weight_per_hour}")

    def key(self, job: Job, now: float) -> tuple[float, float]:
        """Priority, the largest first, then the time of its coming."""
        wait_s = now - job.queued_at
        expansion = wait_s / max(job.estimate_s, 1.0)
        return -(expansion + self.weight_per_hour * wait_s / 3600.0), job.queued_at
