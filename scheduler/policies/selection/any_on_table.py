"""Places on the reservation table for selections that only choose among free processors."""

from __future__ import annotations

from scheduler.model.network import Network
from scheduler.model.selection import Selection
from scheduler.model.space import Space
from scheduler.state.bitsets import bits_of, lowest_bits, set_of
from scheduler.state.reservation_table import Allocation, Request, ReservationTable


class AnyOnTable:
    """Lets a selection choose at the first time at which it accepts processors.

    For a selection that accepts any processors, a start now takes those that an exclusion keeps
    from later jobs before others, and a later start takes those that are used now before those that
    are free. So other jobs have as many processors as possible.

    Parameters
    ----------
    selection : processor selection.
    network : how the nodes are connected.
    """

    def __init__(self, selection: Selection, network: Network | None) -> None:
        self._selection, self._network = selection, network

    def place(self, table: ReservationTable, request: Request) -> Allocation | None:
        """Find processors and a start."""
        needed = request.processors
        times = table.free(needed, request.length_s, request.after, request.latest)
        for begin, free in times:
            if self._selection.anywhere:
                return Allocation(set_of(self._any(table, free, needed)), begin)
            found = self._select(free, needed)
            if found:
                return Allocation(set_of(found), begin)
        return None

    def _any(self, table: ReservationTable, free: int, needed: int) -> int:
        """Choose this many of the free processors, as bits."""
        used = free & ~table.free_bits
        if used:
            return _filled(lowest_bits(used, needed), free, needed)
        limited = lowest_bits(free & table.excluded_bits, needed)
        rest = needed - limited.bit_count()
        return limited | (self._select(free & ~limited, rest) if rest else 0)

    def _select(self, free: int, needed: int) -> int:
        """Processors that the selection chooses, as bits; 0 if it refuses."""
        found = self._selection.select(Space(set_of(free), self._network), needed)
        return 0 if found is None else bits_of(found) & free


def _filled(chosen: int, free: int, needed: int) -> int:
    """Chosen bits and the lowest others, so that there are enough."""
    missing = needed - chosen.bit_count()
    return chosen | lowest_bits(free & ~chosen, missing) if missing else chosen
