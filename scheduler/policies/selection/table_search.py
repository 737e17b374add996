"""Searches of the reservation table (GUIM 6.2.2, 7.2, 7.3, 7.4).

Sets of processors are integers, see `scheduler.state.bitsets`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from scheduler.policies.selection.improvements import Improved, Improvements
from scheduler.state.bitsets import first_run, lowest_bits, set_of
from scheduler.state.reservation_table import Allocation, Request, ReservationTable


def first_fit(table: ReservationTable, request: Request) -> Allocation | None:
    """Find the earliest start, and the processors of the lowest numbers (6.2.2, first fit)."""
    needed, length_s = request.processors, request.length_s
    for begin, free in table.free(needed, length_s, request.after, request.latest):
        return _unimproved(table, request, begin, lowest_bits(free, needed))
    return None


def first_continuous_fit(table: ReservationTable, request: Request) -> Allocation | None:
    """Find the earliest start on processors of consecutive numbers (6.2.2)."""
    needed, length_s = request.processors, request.length_s
    for begin, free in table.free(needed, length_s, request.after, request.latest):
        chosen = first_run(free, needed)
        if chosen:
            return _unimproved(table, request, begin, chosen)
    return None


def spread(table: ReservationTable, request: Request) -> Allocation | None:
    """Find the earliest start, and deal the processes to the nodes in turn (4.7.3)."""
    needed, length_s = request.processors, request.length_s
    for begin, free in table.free(needed, length_s, request.after, request.latest):
        here = [free & table.on_node(node) for node in table.nodes(free)]
        chosen, left = 0, needed
        while left:
            for i in range(len(here)):
                if left and here[i]:
                    lowest = here[i] & -here[i]
                    here[i] ^= lowest
                    chosen |= lowest
                    left -= 1
        return _unimproved(table, request, begin, chosen)
    return None


def less_consume(
    table: ReservationTable, request: Request, threshold: float | None = None
) -> Allocation | None:
    """Improve first fit: replace the buckets of the highest penalties (7.2, 7.3).

    Parameters
    ----------
    threshold : largest accepted penalty factor; later starts are tried until there is one. If no
        start has one, the allocation of the least factor is returned. None: the best that the
        buckets of first fit lead to, whatever its factor.
    """
    search = Improvements(table, request)
    best: Improved | None = None
    accepted = 1.0 if threshold is None else threshold
    for i in search.starts():
        found = search.improve(i, accepted)[-1]
        if threshold is None or found.factor <= threshold:
            return found.allocation() if found.begin <= request.latest else None
        if best is None or found.factor < best.factor:
            best = found
    # What is found for a start that is limited may be improved by waiting.
    return best.allocation() if best is not None and request.latest == inf else None


def least_slowdown(
    table: ReservationTable, request: Request, thresholds: Sequence[float]
) -> Allocation | None:
    """Find the allocation of the least slowdown among those of several thresholds (7.4).

    That of each threshold is the one of `less_consume` without a latest start. All thresholds are
    searched together: with a smaller one, the improvements of a start take longer.
    """
    length_s = request.length_s
    search = Improvements(table, request._replace(latest=inf))
    found: list[Improved | None] = [None] * len(thresholds)
    missing = list(range(len(thresholds)))
    least: Improved | None = None  # of the least factor, for thresholds that no start meets
    score, is_first = inf, True
    for i in search.starts():
        begin = search.sweep[i][0]
        if is_first and begin > request.latest:
            return None
        is_first = False
        if not missing or (begin + length_s > score and search.meets_all):
            least = None  # a later start meets the missing thresholds, and has no less slowdown
            break
        improved = search.improve(i, min([thresholds[k] for k in missing]))
        if least is None or improved[-1].factor < least.factor:
            least = improved[-1]
        for k in missing:
            for each in improved:
                if each.factor <= thresholds[k]:
                    found[k] = each
                    score = min(score, each.penalised_end(length_s))
                    break
        missing = [k for k in missing if found[k] is None]
    best: Improved | None = None
    for k in range(len(thresholds)):
        chosen = least if found[k] is None else found[k]
        if chosen is not None and (
            best is None or chosen.penalised_end(length_s) < best.penalised_end(length_s)
        ):
            best = chosen
    return None if best is None or best.begin > request.latest else best.allocation()


def _unimproved(table: ReservationTable, request: Request, begin: float, chosen: int) -> Allocation:
    """Allocation with its penalty factor."""
    factor = 1.0
    if table.capacity is not None:
        factor = max([table.factor(node, begin, request) for node in table.nodes(chosen)])
    return Allocation(set_of(chosen), begin, factor)
