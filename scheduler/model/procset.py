"""Sets of processor numbers, stored as intervals, so that the cost does not grow with the machine.

The text form is that of Batsim and evalys: ``0-3 7``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from scheduler.model.intervals import common, count, joined, lowest, minus, union


class ProcSet(msgspec.Struct, frozen=True, gc=False):
    """Immutable set of processor numbers.

    Parameters
    ----------
    intervals : inclusive (first, last) pairs, ascending, with a gap between any two. Make sets
        with `span`, `of` or `parse`, which keep this form.
    """

    intervals: tuple[tuple[int, int], ...] = ()

    @classmethod
    def span(cls, first: int, count: int) -> ProcSet:
        """`count` consecutive processors from `first` on."""
        return cls(((first, first + count - 1),)) if count > 0 else cls()

    @classmethod
    def of(cls, numbers: Iterable[int]) -> ProcSet:
        """Set of these numbers, in any order, repeated or not."""
        return cls(joined(sorted((number, number) for number in numbers)))

    @classmethod
    def union(cls, sets: Iterable[ProcSet]) -> ProcSet:
        """All numbers of these sets."""
        return cls(joined(sorted(chain.from_iterable(each.intervals for each in sets))))

    @classmethod
    def parse(cls, text: str) -> ProcSet:
        """Read ``0-3 7`` (blanks or commas between the intervals).

        Raises
        ------
        ValueError : a part is neither a number nor an ascending interval.
        """
        pairs = []
        for part in text.replace(",", " ").split():
            first, dash, last = part.partition("-")
            if not first.isdecimal() or (dash and not last.isdecimal()):
                raise ValueError(f"{part!r} in {text!r} is no interval of processors such as 0-3")
            pair = int(first), int(last or first)
            if pair[0] > pair[1]:
                raise ValueError(f"{part!r} in {text!r} descends; write {pair[1]}-{pair[0]}")
            pairs.append(pair)
        return cls(joined(sorted(pairs)))

    def __str__(self) -> str:
        """Text that `parse` reads back to an equal set."""
        return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in self.intervals)

    def count(self) -> int:
        """Count the processors."""
        return count(self.intervals)

    def __len__(self) -> int:
        """Count the processors."""
        return count(self.intervals)

    def __bool__(self) -> bool:
        """Whether the set is not empty."""
        return bool(self.intervals)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers, ascending."""
        for first, last in self.intervals:
            yield from range(first, last + 1)

    def __contains__(self, number: int) -> bool:
        """Whether this processor is in the set."""
        return any(first <= number <= last for first, last in self.intervals)

    def __or__(self, other: ProcSet) -> ProcSet:
        """Union."""
        return ProcSet(union(self.intervals, other.intervals))

    def __and__(self, other: ProcSet) -> ProcSet:
        """Intersection."""
        return ProcSet(common(self.intervals, other.intervals))

    def __sub__(self, other: ProcSet) -> ProcSet:
        """Difference."""
        return ProcSet(minus(self.intervals, other.intervals))

    def between(self, first: int, last: int) -> ProcSet:
        """Processors from `first` to `last`, found by bisection."""
        intervals = self.intervals
        i = bisect_left(intervals, (first + 1,))
        if i and intervals[i - 1][1] >= first:
            i -= 1
        j = bisect_left(intervals, (last + 1,), i)
        part = list(intervals[i:j])
        if part:
            part[0] = max(first, part[0][0]), part[0][1]
            part[-1] = part[-1][0], min(last, part[-1][1])
        return ProcSet(tuple(part))

    def last(self, count: int) -> ProcSet:
        """The `count` highest numbers, or all if there are fewer."""
        if count <= 0:
            return ProcSet()
        missing, intervals = count, self.intervals
        for i in range(len(intervals) - 1, -1, -1):
            first, last = intervals[i]
            missing -= last - first + 1
            if missing <= 0:
                return ProcSet(((first - missing, last), *intervals[i + 1 :]))
        return self

    def first(self, count: int) -> ProcSet:
        """The `count` lowest numbers.

        Raises
        ------
        ValueError : the set has fewer.
        """
        intervals = lowest(self.intervals, count)
        if intervals is None:
            raise ValueError(f"{str(self)!r} has {len(self)} processors, not {count}")
        return ProcSet(intervals)
