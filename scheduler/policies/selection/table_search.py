"""Searches of the reservation table (GUIM 6.2.2, 7.2, 7.3, 7.4).

Sets of processors are integers, see `scheduler.state.bitsets`.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf

from scheduler.state.bitsets import lowest_bits, set_of
from scheduler.state.reservation_table import Allocation, Request, ReservationTable


def first_fit(table: ReservationTable, request: Request) -> Allocation | None:
    """Find the earliest start, and the processors of the lowest numbers (6.2.2, first fit)."""
    needed, length_s = request.processors, request.length_s
    for begin, free in table.free(needed, length_s, request.after, request.latest):
        return _unimproved(table, request, begin, lowest_bits(free, needed))
    return None


def spread(table: ReservationTable, request: Request) -> Allocation | None:
    """Find the earliest start, and deal the processes to the nodes in turn (4.7.3)."""
    needed, length_s = request.processors, request.length_s
    for begin, free in table.free(needed, length_s, request.after, request.latest):
        here = [free & table.on_node(node) for node in table.nodes(free)]
        bits, left = 0, needed
        while left:
            for i in range(len(here)):
                if left and here[i]:
                    lowest = here[i] & -here[i]
                    here[i] ^= lowest
                    bits |= lowest
                    left -= 1
        return _unimproved(table, request, begin, bits)
    return None


def less_consume(
    table: ReservationTable, request: Request, threshold: float | None = None
) -> Allocation | None:
    """Replace processors of first fit by others on which the job is penalised less (7.2, 7.3).

    Parameters
    ----------
    threshold : largest accepted penalty factor; later starts are tried until there is one. If no
        start has one, the allocation of the least factor is returned. None: the best allocation at
        the start of first fit, whatever its factor.
    """
    needed, length_s = request.processors, request.length_s
    best: Improved | None = None
    accepted = 1.0 if threshold is None else threshold
    for begin, free in table.free(needed, length_s, request.after, request.latest):
        improved = improvements(table, request, begin, free, accepted)[-1]
        if threshold is None or improved.factor <= threshold:
            return improved.allocation()
        if best is None or improved.factor < best.factor:
            best = improved
    # A start that is limited may be improved by waiting.
    return best.allocation() if best is not None and request.latest == inf else None


def least_slowdown(
    table: ReservationTable, request: Request, thresholds: Sequence[float]
) -> Allocation | None:
    """Find the allocation of the least slowdown among those of several thresholds (7.4).

    That of each threshold is the one of `less_consume` without a latest start. A threshold that no
    start meets has none, unless no start meets any of them. All thresholds are searched together.
    Of equal slowdowns that with the lower penalty factor is taken.
    """
    needed, length_s = request.processors, request.length_s
    missing = list(thresholds)
    best: Improved | None = None
    least: Improved | None = None  # of the least factor, if no start meets any threshold
    for begin, free in table.free(needed, length_s, request.after):
        if least is None and begin > request.latest:
            return None
        if not missing or (best is not None and begin + length_s > best.score(length_s)[0]):
            break  # a later start has no less slowdown
        candidates = improvements(table, request, begin, free, min(missing))
        if least is None or candidates[-1].factor < least.factor:
            least = candidates[-1]
        for threshold in list(missing):
            for candidate in candidates:
                if candidate.factor <= threshold:
                    missing.remove(threshold)
                    if best is None or candidate.score(length_s) < best.score(length_s):
                        best = candidate
                    break
    best = least if best is None else best
    return None if best is None or best.begin > request.latest else best.allocation()


def _unimproved(table: ReservationTable, request: Request, begin: float, bits: int) -> Allocation:
    """Allocation with its penalty factor."""
    factor = 1.0
    if table.capacity is not None:
        counts = table.counts(bits).items()
        factor = max([table.factor(node, begin, request, count) for node, count in counts])
    return Allocation(set_of(bits), begin, factor)


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

    These are steps 4 to 6 of LessConsume (7.2). Each processor that is left, in ascending order,
    replaces one on the node of the highest factor if its own factor is lower. Factors count the
    processes of the job that are on the node together. The search ends with a factor of at most
    `accepted`, or when all processors were tried.

    Parameters
    ----------
    begin, free : start, s, and the processors that are free then for the length of the job, as
        bits.
    """
    bits = lowest_bits(free, request.processors)
    counts = table.counts(bits)
    #: (- factor, node, processes there); an entry with another number than `counts` is obsolete.
    entries = [
        (-table.factor(node, begin, request, count), node, count) for node, count in counts.items()
    ]
    heapify(entries)
    improved = [Improved(begin, -entries[0][0], bits)]
    others = free & ~bits
    for node in table.nodes(others):
        here = others & table.on_node(node)
        while here and improved[-1].factor > accepted:
            worst = entries[0][1]
            count = counts.get(node, 0) + 1
            factor = table.factor(node, begin, request, count)
            if node == worst or factor >= -entries[0][0]:
                break
            bit, left = here & -here, bits & table.on_node(worst)
            here ^= bit
            bits ^= bit | (left & -left)
            counts[node] = count
            heappush(entries, (-factor, node, count))
            counts[worst] -= 1
            if counts[worst]:
                factor = table.factor(worst, begin, request, counts[worst])
                heappush(entries, (-factor, worst, counts[worst]))
            while counts[entries[0][1]] != entries[0][2]:
                heappop(entries)
            improved.append(Improved(begin, -entries[0][0], bits))
    return improved
