"""Steps 4 to 6 of LessConsume: improve an allocation of first fit at its start (GUIM 7.2)."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from scheduler.state.bitsets import lowest_bits, set_of
from scheduler.state.reservation_table import Allocation, Request, ReservationTable


class Improved:
    """Allocation of a search: its start (s), its penalty factor, and its processors as bits."""

    def __init__(self, begin: float, factor: float, bits: int) -> None:
        self.begin = begin
        self.factor = factor
        self.bits = bits

    def score(self, length_s: float) -> tuple[float, float]:
        """End of a job of this run time with its penalties, s, and the factor; less is better."""
        return self.begin + self.factor * length_s, self.factor

    def allocation(self) -> Allocation:
        """Make the result of the search."""
        return Allocation(set_of(self.bits), self.begin, self.factor)


def improvements(
    table: ReservationTable, request: Request, begin: float, free: int, accepted: float
) -> list[Improved]:
    """Allocations from that of first fit on, each with no higher penalty factor.

    Each further processor, in ascending order, replaces one on the node of the highest factor if
    its own factor is lower. Factors count the processes of the job that are on the node together.
    The search ends with a factor of at most `accepted`, or when all processors were tried.

    Parameters
    ----------
    begin, free : start, s, and the processors that are free then for the length of the job, as
        bits.
    """
    chosen = lowest_bits(free, request.processors)
    counts = table.counts(chosen)
    #: (- factor, node, processes there); an entry with another number than `counts` is obsolete.
    entries = [
        (-table.factor(node, begin, request, count), node, count) for node, count in counts.items()
    ]
    heapify(entries)
    improved = [Improved(begin, -entries[0][0], chosen)]
    others = free & ~chosen
    for node in table.nodes(others):
        here = others & table.on_node(node)
        while here and improved[-1].factor > accepted:
            worst = entries[0][1]
            count = counts.get(node, 0) + 1
            factor = table.factor(node, begin, request, count)
            if node == worst or factor >= -entries[0][0]:
                break
            bit, left = here & -here, chosen & table.on_node(worst)
            here ^= bit
            chosen ^= bit | (left & -left)
            counts[node] = count
            heappush(entries, (-factor, node, count))
            counts[worst] -= 1
            if counts[worst]:
                factor = table.factor(worst, begin, request, counts[worst])
                heappush(entries, (-factor, worst, counts[worst]))
            while counts[entries[0][1]] != entries[0][2]:
                heappop(entries)
            improved.append(Improved(begin, -entries[0][0], chosen))
    return improved
