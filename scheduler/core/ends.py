"""When processors that are held now are expected back, soonest first."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain
from math import inf
from typing import TypeAlias

End: TypeAlias = tuple[float, int, int]  #: time (s), job, processors

BLOCK = 128  # ends of a block at which it is split in two


class Ends:
    """Expected ends of allocations, sorted. A job has one, or two while a part of it leaves.

    They are kept in blocks, each with the processors in it, so that the time by which so many are
    back is found without walking through all the ends before it.
    """

    def __init__(self) -> None:
        self._blocks: list[list[End]] = [[]]
        self._lasts: list[End] = []  # last end of all blocks but the last
        self._sums = [0]
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

    def expect(self, job: int, *parts: tuple[float, int]) -> None:
        """Expect a job's processors back in (time, processors) parts, instead of as before."""
        self.forget(job)
        ends = self._of[job] = tuple((time, job, processors) for time, processors in parts)
        for end in ends:
            self._add(end)

    def expect_first(self, job: int, time: float, processors: int) -> None:
        """Expect the processors back of a job of which nothing was expected so far."""
        end = time, job, processors
        self._of[job] = (end,)
        if self._lasts or len(self._blocks[0]) >= BLOCK:
            self._add(end)
        else:
            insort(self._blocks[0], end)
            self._sums[0] += processors

    def forget(self, job: int) -> None:
        """Expect nothing of this job (any more)."""
        for end in self._of.pop(job, ()):
            i = bisect_left(self._lasts, end) if self._lasts else 0
            block = self._blocks[i]
            del block[bisect_left(block, end)]
            self._sums[i] -= end[2]
            if not block and self._lasts:
                del self._blocks[i], self._sums[i]
                del self._lasts[min(i, len(self._lasts) - 1)]

    def shadow(self, now: float, free: int, needed: int) -> tuple[float, int]:
        """Earliest time by which so many processors are free, and how many more there are then.

        Parameters
        ----------
        free : processors free now.

        Returns
        -------
        (seconds >= now, processors); inf, and what exceeds the need (not below 0), if there will
        never be as many.
        """
        at = now if free >= needed else inf
        for block, total in zip(self._blocks, self._sums, strict=True):
            if at == inf and free + total < needed:
                free += total
                continue
            for time, _, processors in block:
                if time > at:
                    return at, free - needed
                free += processors
                if at == inf and free >= needed:
                    at = time if time > now else now
        return at, max(0, free - needed)

    def _add(self, end: End) -> None:
        i = bisect_left(self._lasts, end) if self._lasts else 0
        block = self._blocks[i]
        insort(block, end)
        self._sums[i] += end[2]
        if len(block) > BLOCK:
            half = len(block) // 2
            self._blocks[i : i + 1] = [block[:half], block[half:]]
            self._lasts.insert(i, block[half - 1])
            upper = sum([processors for _, _, processors in block[half:]])
            self._sums[i : i + 1] = [self._sums[i] - upper, upper]
