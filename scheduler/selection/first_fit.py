"""First fit: the free processors of the lowest numbers."""

from __future__ import annotations

import msgspec

from scheduler.core.procset import ProcSet


class FirstFit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Take the lowest numbers, contiguous or not."""

    def select(self, free: ProcSet, processors: int) -> ProcSet | None:
        """Choose so many of the free processors."""
        return free.first(processors)
