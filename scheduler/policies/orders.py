"""Orders of the queue."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from scheduler.core.state import Job


class Fcfs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """First come, first served."""

    ages: ClassVar[bool] = False

    def key(self, job: Job, now: float) -> float:
        """Time of submission; ties by job number."""
        return job.submitted_at
