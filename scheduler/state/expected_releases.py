"""Expected releases: when allocated processors and resources are expected to become free."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from math import inf
from typing import TypeAlias

from scheduler.model.resources import Quantity, excess

ExpectedRelease: TypeAlias = tuple[float, int, Quantity]  #: time (s), job number, quantity

BLOCK_LENGTH = 128


class ReleaseBlock:
    """Consecutive releases, stored by column, and the sum of their quantities.

    They are sorted by time, then by job number. With the columns apart, most comparisons are
    between times alone.
    """

    def __init__(
        self, times: list[float], jobs: list[int], quantities: list[Quantity], none: Quantity
    ) -> None:
        self.times = times
        self.jobs = jobs
        self.quantities = quantities
        self.sum = sum(quantities, none)

    def index(self, time: float, job: int) -> int:
        """Index of the release of a job, or the index at which it is to be inserted."""
        times, jobs = self.times, self.jobs
        i = bisect_left(times, time)
        if i < len(times) and times[i] == time and jobs[i] < job:
            i = bisect_left(jobs, job, i, bisect_right(times, time, i))
        return i

    def add(self, time: float, job: int, quantity: Quantity) -> None:
        """Insert a release."""
        i = self.index(time, job)
        self.times.insert(i, time)
        self.jobs.insert(i, job)
        self.quantities.insert(i, quantity)
        self.sum += quantity

    def remove(self, time: float, job: int) -> None:
        """Remove a release."""
        i = self.index(time, job)
        self.sum -= self.quantities.pop(i)
        del self.times[i], self.jobs[i]


class ExpectedReleases:
    """Expected releases of all allocations, sorted by time.

    A job has one, or two while a part of it is leaving. They are kept in blocks, each with the sum
    of its quantities, so that `shadow` skips whole blocks.

    Parameters
    ----------
    none : quantity of nothing, of the kind that will be released.
    block_length : number of releases above which a block is split in two.
    """

    def __init__(self, none: Quantity = 0, block_length: int = BLOCK_LENGTH) -> None:
        self._none = none
        self._block_length = block_length
        self._blocks = [ReleaseBlock([], [], [], none)]
        self._lasts: list[float] = []  # last time of each block but the last block
        self._times: dict[int, tuple[float, ...]] = {}  # job number -> times of its releases

    def __iter__(self) -> Iterator[ExpectedRelease]:
        """Iterate over the releases, the soonest first."""
        for block in self._blocks:
            yield from zip(block.times, block.jobs, block.quantities, strict=True)

    def any_by(self, time: float) -> bool:
        """Whether a release is expected at or before this time."""
        times = self._blocks[0].times
        return bool(times) and times[0] <= time

    def any_at(self, time: float) -> bool:
        """Whether a release is expected at exactly this time."""
        times = self._blocks[self._block_index(time)].times
        i = bisect_left(times, time)
        return i < len(times) and times[i] == time

    def expect(self, job: int, *parts: tuple[float, Quantity]) -> None:
        """Replace the expected releases of a job by these (time, quantity) parts."""
        self.forget(job)
        quantities: dict[float, Quantity] = {}
        for time, quantity in parts:
            quantities[time] = quantities[time] + quantity if time in quantities else quantity
        self._times[job] = tuple(quantities)
        for time, quantity in quantities.items():
            self._add(time, job, quantity)

    def expect_first(self, job: int, time: float, quantity: Quantity) -> None:
        """Add the only release of a job that has none so far."""
        self._times[job] = (time,)
        self._add(time, job, quantity)

    def forget(self, job: int) -> None:
        """Remove the releases of a job, if it has any."""
        for time in self._times.pop(job, ()):
            i = self._block_index(time)
            block = self._blocks[i]
            block.remove(time, job)
            if not block.times and self._lasts:
                del self._blocks[i]
                del self._lasts[min(i, len(self._lasts) - 1)]

    def shadow(self, now: float, free: Quantity, needed: Quantity) -> tuple[float, Quantity]:
        """Earliest time by which `needed` is free, and what is left over then.

        Parameters
        ----------
        free : what is free now.

        Returns
        -------
        (seconds >= now, quantity); (inf, what exceeds `needed` of each resource) if it never is.
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

    def _block_index(self, time: float) -> int:
        """Index of the block of this time; releases of one time are always in one block."""
        return bisect_left(self._lasts, time) if self._lasts else 0

    def _add(self, time: float, job: int, quantity: Quantity) -> None:
        i = self._block_index(time)
        block = self._blocks[i]
        block.add(time, job, quantity)
        if len(block.times) > self._block_length:
            self._split(i)

    def _split(self, i: int) -> None:
        """Split a block between two different times next to its middle, if there are any."""
        whole = self._blocks[i]
        times, jobs, quantities = whole.times, whole.jobs, whole.quantities
        middle = times[len(times) // 2]
        at = bisect_left(times, middle) or bisect_right(times, middle)
        if at == len(times):
            return
        self._blocks[i : i + 1] = [
            ReleaseBlock(times[:at], jobs[:at], quantities[:at], self._none),
            ReleaseBlock(times[at:], jobs[at:], quantities[at:], self._none),
        ]
        self._lasts.insert(i, times[at - 1])
