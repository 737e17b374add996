"""When what is held now is expected back, soonest first."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from math import inf
from typing import TypeAlias

from scheduler.model.resources import Quantity, excess

End: TypeAlias = tuple[float, int, Quantity]  #: time (s), job, what comes back

BLOCK = 128  # ends of a block at which it is split in two


class Block:
    """Some ends in a row, column by column, and the sum of what comes back.

    They are sorted by time, those of one time by job: so mostly times alone are compared.
    """

    def __init__(
        self, times: list[float], jobs: list[int], quantities: list[Quantity], none: Quantity
    ) -> None:
        self.times = times
        self.jobs = jobs
        self.quantities = quantities
        self.sum = sum(quantities, none)

    def place(self, time: float, job: int) -> int:
        """Where the end of a job stands, or belongs."""
        times, jobs = self.times, self.jobs
        i = bisect_left(times, time)
        if i < len(times) and times[i] == time and jobs[i] < job:
            i = bisect_left(jobs, job, i, bisect_right(times, time, i))
        return i

    def add(self, time: float, job: int, quantity: Quantity) -> None:
        """Put an end where it belongs."""
        i = self.place(time, job)
        self.times.insert(i, time)
        self.jobs.insert(i, job)
        self.quantities.insert(i, quantity)
        self.sum += quantity

    def remove(self, time: float, job: int) -> None:
        """Take an end out."""
        i = self.place(time, job)
        self.sum -= self.quantities.pop(i)
        del self.times[i], self.jobs[i]


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
        self._blocks = [Block([], [], [], none)]
        self._lasts: list[float] = []  # times up to which the blocks reach, all but the last
        self._of: dict[int, tuple[float, ...]] = {}  # job -> times

    def __iter__(self) -> Iterator[End]:
        """Go through the ends, soonest first."""
        for block in self._blocks:
            yield from zip(block.times, block.jobs, block.quantities, strict=True)

    def any_by(self, time: float) -> bool:
        """Whether anything is expected back by this time."""
        times = self._blocks[0].times
        return bool(times) and times[0] <= time

    def any_at(self, time: float) -> bool:
        """Whether anything is expected back at this very time."""
        times = self._blocks[self._block(time)].times
        i = bisect_left(times, time)
        return i < len(times) and times[i] == time

    def expect(self, job: int, *parts: tuple[float, Quantity]) -> None:
        """Expect what a job holds back in (time, quantity) parts, instead of as before."""
        self.forget(job)
        at: dict[float, Quantity] = {}
        for time, quantity in parts:
            at[time] = at[time] + quantity if time in at else quantity
        self._of[job] = tuple(at)
        for time, quantity in at.items():
            self._add(time, job, quantity)

    def expect_first(self, job: int, time: float, quantity: Quantity) -> None:
        """Expect back what a job holds of which nothing was expected so far."""
        self._of[job] = (time,)
        self._add(time, job, quantity)

    def forget(self, job: int) -> None:
        """Expect nothing of this job (any more)."""
        for time in self._of.pop(job, ()):
            i = self._block(time)
            block = self._blocks[i]
            block.remove(time, job)
            if not block.times and self._lasts:
                del self._blocks[i]
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
        for block in self._blocks:
            if at == inf and free + block.sum < needed:
                free += block.sum
                continue
            for i, time in enumerate(block.times):
                if time > at:
                    return at, free - needed
                free += block.quantities[i]
                if at == inf and free >= needed:
                    at = time if time > now else now
        return at, excess(free, needed)

    def _block(self, time: float) -> int:
        """Which block has the ends of this time: all of them stand in one."""
        return bisect_left(self._lasts, time) if self._lasts else 0

    def _add(self, time: float, job: int, quantity: Quantity) -> None:
        i = self._block(time)
        block = self._blocks[i]
        block.add(time, job, quantity)
        if len(block.times) > BLOCK:
            self._split(i)

    def _split(self, i: int) -> None:
        """Split a block in two, where the time changes next to its middle, if it does."""
        whole = self._blocks[i]
        times, jobs, quantities = whole.times, whole.jobs, whole.quantities
        middle = times[len(times) // 2]
        at = bisect_left(times, middle) or bisect_right(times, middle)
        if at == len(times):
            return
        self._blocks[i : i + 1] = [
            Block(times[:at], jobs[:at], quantities[:at], self._none),
            Block(times[at:], jobs[at:], quantities[at:], self._none),
        ]
        self._lasts.insert(i, times[at - 1])
