"""Whole nodes for a job that requests them, on the reservation table."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.state.bitsets import set_of
from scheduler.state.reservation_table import Allocation, Request, ReservationTable


def whole_nodes(
    table: ReservationTable, request: Request, nodes: Sequence[int]
) -> Allocation | None:
    """Find the earliest start on nodes of which all processors are free; the first of these.

    Parameters
    ----------
    nodes : bits of the processors of each node that the job may get, in the order of preference.
    """
    needed = request.processors
    for begin, free in table.free(needed, request.length_s, request.after, request.latest):
        chosen = 0
        for bits in nodes:
            if bits & free == bits:
                chosen |= bits
                if chosen.bit_count() == needed:
                    return Allocation(set_of(chosen), begin)
    return None
