"""Set operations on sorted inclusive intervals of processor numbers.

Intervals are (first, last) pairs, ascending, with a gap between any two.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TypeAlias

Pair: TypeAlias = tuple[int, int]
Intervals: TypeAlias = tuple[Pair, ...]


def count(a: Intervals) -> int:
    """Number of processors in the intervals."""
    total = 0
    for first, last in a:
        total += last - first + 1
    return total


def joined(pairs: list[Pair]) -> Intervals:
    """Merge sorted pairs that touch or overlap."""
    done: list[Pair] = []
    for first, last in pairs:
        if done and first <= done[-1][1] + 1:
            if last > done[-1][1]:
                done[-1] = done[-1][0], last
        else:
            done.append((first, last))
    return tuple(done)


def union(a: Intervals, b: Intervals) -> Intervals:
    """Union."""
    if not b:
        return a
    if not a:
        return b
    if len(b) * 8 > len(a):
        return joined(sorted(a + b))
    merged = list(a)
    for first, last in b:
        _put(merged, first, last)
    return tuple(merged)


def common(a: Intervals, b: Intervals) -> Intervals:
    """Intersection."""
    intersection: list[Pair] = []
    i = j = 0
    while i < len(a) and j < len(b):
        first, last = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if first <= last:
            intersection.append((first, last))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(intersection)


def minus(a: Intervals, gone: Intervals) -> Intervals:
    """Difference."""
    n = len(gone)
    if n and gone[:-1] == a[: n - 1] and n <= len(a):
        first, last = a[n - 1]
        if gone[-1][0] == first and gone[-1][1] <= last:  # first fit takes from the beginning
            part = ((gone[-1][1] + 1, last),) if gone[-1][1] < last else ()
            return part + a[n:]
    rest: list[Pair] = []
    j = 0
    for first, last in a:
        while j < n and gone[j][1] < first:
            j += 1
        k = j
        while k < n and gone[k][0] <= last:
            if first < gone[k][0]:
                rest.append((first, gone[k][0] - 1))
            first = gone[k][1] + 1
            k += 1
        if first <= last:
            rest.append((first, last))
    return tuple(rest)


def lowest(a: Intervals, number: int) -> Intervals | None:
    """The `number` lowest numbers; None if there are fewer."""
    if number <= 0:
        return ()
    missing = number
    for i, (first, last) in enumerate(a):
        missing -= last - first + 1
        if missing <= 0:
            return (*a[:i], (first, last + missing))
    return None


def _put(intervals: list[Pair], first: int, last: int) -> None:
    """Merge one interval into sorted ones, in place."""
    i = bisect_left(intervals, (first, first))
    if i and intervals[i - 1][1] >= first - 1:
        i -= 1
        first = intervals[i][0]
    j = i
    while j < len(intervals) and intervals[j][0] <= last + 1:
        last = max(last, intervals[j][1])
        j += 1
    intervals[i:j] = [(first, last)]
