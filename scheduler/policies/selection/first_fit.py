"""First fit: the free processors with the lowest numbers, on request in one interval."""

from __future__ import annotations

import msgspec

from scheduler.model.procset import ProcSet
from scheduler.model.selection import Selection
from scheduler.model.space import Space


class FirstFit(Selection, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Select the lowest free processors, contiguous or not (LOC section 3, "Non-contiguous")."""

    anywhere = True

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose this many free processors with the lowest numbers."""
        return space.free.first(processors)


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
