"""First contiguous: the first run of consecutive free processors that is long enough."""

from __future__ import annotations

import msgspec

from scheduler.model.procset import ProcSet
from scheduler.model.space import Space


class Contiguous(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Take consecutive numbers, the lowest there are; none will do but such.

    Nothing need be known of the network.
    """

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose the beginning of the first run of so many free processors."""
        more = processors - 1
        for first, last in space.free.intervals:
            if last - first >= more:
                return ProcSet.span(first, processors)
        return None
