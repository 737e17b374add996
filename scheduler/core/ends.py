"""When what is held now is expected back, soonest first."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain
from math import inf
from typing import TypeAlias

from scheduler.core.resources import Quantity, excess

End: TypeAlias = tuple[float, int, Quantity]  #: time (s), job, what comes back

BLOCK = 128  # ends of a block at which it is split in two


class Ends:
    """Expected ends of allocations, sorted. A job has one, or two while a part of it leaves.

    They are kept in blocks, each with the sum of what is in it, so that the time by which so much
    is back is found without walking through all the ends before it.

    Parameters
    ----------
    none : nothing, as a quantity of the kind that will be expected.
    """

    def __init__(self, none: Quantity = 0) -> None:
        self._none = none
        self._blocks: list[list[End]] = [[]]
        self._lasts: list[End] = []  # last end of all blocks but the last
        self._sums = [none]  # of blocks, if there are several
        self._of: dict[int, tuple[End, ...]] = {}

    def __iter__(self) -> Iterator[End]:
        """Go through the ends, soonest first."""
        return chain.from_iterable(self._blocks)

    def any_by(self, time: float) -> bool:
        """Whether anything is expected back by this time."""
        block = self._blocks[0]
        return bool(block) and block[0][0] <= time

    def any_at(self, time: float) -> bool:
        """Whether anything is expected back at this very time."""
        i = bisect_left(self._lasts, (time,)) if self._lasts else 0
        for block in self._blocks[i : i + 2]:  # what bounded the first may have gone
            j = bisect_left(block, (time,))
            if j < len(block):
                return block[j][0] == time
        return False

    def expect(self, job: int, *parts: tuple[float, Quantity]) -> None:
        """Expect what a job holds back in (time, quantity) parts, instead of as before."""
        self.forget(job)
        at: dict[float, Quantity] = {}
        for time, quantity in parts:
            at[time] = at[time] + quantity if time in at else quantity
        ends = self._of[job] = tuple((time, job, quantity) for time, quantity in at.items())
        for end in ends:
            self._add(end)

    def expect_first(self, job: int, time: float, quantity: Quantity) -> None:
        """Expect back what a job holds of which nothing was expected so far."""
        end = time, job, quantity
        self._of[job] = (end,)
        if self._lasts or len(self._blocks[0]) >= BLOCK:
            self._add(end)
        else:
            insort(self._blocks[0], end)

    def forget(self, job: int) -> None:
        """Expect nothing of this job (any more)."""
        for end in self._of.pop(job, ()):
            if not self._lasts:
                block = self._blocks[0]
                del block[bisect_left(block, end)]
                continue
            i = bisect_left(self._lasts, end)
            block = self._blocks[i]
            del block[bisect_left(block, end)]
            self._sums[i] -= end[2]
            if not block:
                del self._blocks[i], self._sums[i]
                del self._lasts[min(i, len(self._lasts) - 1)]

    def shadow(self, now: float, free: Quantity, needed: Quantity) -> tuple[float, Quantity]:
        """Earliest time by which so much is free, and what is left over then.

        Parameters
        ----------
        free : what is free now.

        Returns
        -------
        (seconds >= now, quantity); inf, and what exceeds the need, if there will never be as much.
        """
        at = now if free >= needed else inf
        several = bool(self._lasts)
        for i, block in enumerate(self._blocks):
            if several and at == inf and free + self._sums[i] < needed:
                free += self._sums[i]
                continue
            for time, _, quantity in block:
                if time > at:
                    return at, free - needed
                free += quantity
                if at == inf and free >= needed:
                    at = time if time > now else now
        return at, excess(free, needed)

    def _add(self, end: End) -> None:
        if not self._lasts:
            i, block = 0, self._blocks[0]
            insort(block, end)
        else:
            i = bisect_left(self._lasts, end)
            block = self._blocks[i]
            insort(block, end)
            self._sums[i] += end[2]
        if len(block) > BLOCK:
            half = len(block) // 2
            halves = [block[:half], block[half:]]
            self._blocks[i : i + 1] = halves
            self._lasts.insert(i, block[half - 1])
            self._sums[i : i + 1] = [sum([e[2] for e in part], self._none) for part in halves]
