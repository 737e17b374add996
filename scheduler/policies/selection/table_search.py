"""Searches of the reservation table (GUIM 6.2.2, 7.2, 7.3)."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from scheduler.model.procset import ProcSet
from scheduler.state.reservation_table import Allocation, Bucket, Request, ReservationTable


def first_fit(table: ReservationTable, request: Request) -> Allocation | None:
    """Find the earliest start, and the processors of the lowest numbers (6.2.2, first fit)."""
    for begin, free in _starts(table, request):
        chosen = free[: request.processors]
        return Allocation(ProcSet.of(chosen), begin, _worst(table, request, begin, chosen))
    return None


def first_continuous_fit(table: ReservationTable, request: Request) -> Allocation | None:
    """Find the earliest start on processors of consecutive numbers (6.2.2)."""
    needed = request.processors
    for begin, free in _starts(table, request):
        for i in range(len(free) - needed + 1):
            if free[i + needed - 1] - free[i] == needed - 1:
                chosen = free[i : i + needed]
                return Allocation(ProcSet.of(chosen), begin, _worst(table, request, begin, chosen))
    return None


def spread(table: ReservationTable, request: Request) -> Allocation | None:
    """Find the earliest start, and deal the processes to the nodes in turn (4.7.3)."""
    for begin, free in _starts(table, request):
        by_node: dict[int, list[int]] = {}
        for processor in free:
            by_node.setdefault(table.node(processor), []).append(processor)
        turns = [
            (turn, processor) for here in by_node.values() for turn, processor in enumerate(here)
        ]
        turns.sort()
        chosen = [processor for _, processor in turns[: request.processors]]
        return Allocation(ProcSet.of(chosen), begin, _worst(table, request, begin, chosen))
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
    best: Allocation | None = None
    accepted = 1.0 if threshold is None else threshold
    for begin, free in _starts(table, request):
        found = _improved(table, request, begin, free, accepted)
        if threshold is None or found.factor <= threshold:
            return found if found.begin <= request.latest else None
        if best is None or found.factor < best.factor:
            best = found
    # What is found for a start that is limited may be improved by waiting.
    return best if request.latest == inf else None


def _starts(table: ReservationTable, request: Request) -> Iterator[tuple[float, list[int]]]:
    """Possible starts of a job, with the processors that are free for its length."""
    return table.free(request.processors, request.length_s, request.after, request.latest)


def _improved(
    table: ReservationTable, request: Request, at: float, free: list[int], accepted: float
) -> Allocation:
    """Steps 4 to 6 of LessConsume from the allocation of first fit on.

    A set that is valid replaces the last one unless its largest penalty is higher: a bucket that
    step 5 (a) adds may have any penalty.
    """
    needed, length_s = request.processors, request.length_s
    base = set(free[:needed])
    buckets = table.buckets(at, length_s)
    chosen = [bucket for bucket in buckets if bucket.processor in base]
    others = [bucket for bucket in buckets if bucket.processor not in base]
    known: dict[tuple[int, float], float] = {}

    def factor(bucket: Bucket) -> float:
        key = table.node(bucket.processor), bucket.begin
        found = known.get(key)
        if found is None:
            found = known[key] = table.factor(bucket.processor, bucket.begin, request)
        return found

    factors = [factor(bucket) for bucket in chosen]
    worst = max(factors)
    best = _allocation(chosen, worst)
    for bucket in others:
        if best.factor <= accepted:
            break
        penalty = factor(bucket)
        if len(chosen) == needed:
            if penalty >= worst:
                continue
            i = factors.index(worst)
            del chosen[i], factors[i]
        chosen.append(bucket)
        factors.append(penalty)
        begin = max([each.begin for each in chosen])
        sharing = [each.end >= begin + length_s for each in chosen]
        if not all(sharing):
            factors = [factors[i] for i in range(len(chosen)) if sharing[i]]
            chosen = [chosen[i] for i in range(len(chosen)) if sharing[i]]
        worst = max(factors)
        if len(chosen) == needed and worst <= best.factor:
            best = _allocation(chosen, worst)
    return best


def _allocation(chosen: list[Bucket], factor: float) -> Allocation:
    begin = max([bucket.begin for bucket in chosen])
    return Allocation(ProcSet.of([bucket.processor for bucket in chosen]), begin, factor)


def _worst(table: ReservationTable, request: Request, begin: float, chosen: list[int]) -> float:
    """Largest penalty factor of the processes."""
    if table.capacity is None:
        return 1.0
    one_each = {table.node(processor): processor for processor in chosen}
    return max([table.factor(processor, begin, request) for processor in one_each.values()])
