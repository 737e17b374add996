"""First contiguous: the first interval of consecutive free processors that is long enough."""

from __future__ import annotations

import msgspec

from scheduler.model.procset import ProcSet
from scheduler.model.selection import Selection
from scheduler.model.space import Space


class Contiguous(Selection, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Select the lowest interval of consecutive free processors; refuse if there is none.

    This selection does not use the network.
    """

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose the beginning of the first interval of at least this many free processors."""
        more = processors - 1
        for first, last in space.free.intervals:
            if last - first >= more:
                return ProcSet.span(first, processors)
        return None
