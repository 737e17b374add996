"""Expected releases: when allocated processors and resources are expected to become free."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterator
from math import inf
from typing import TypeAlias

from scheduler.model.resources import Quantity, excess

ExpectedRelease: TypeAlias = tuple[float, int, Quantity]  #: time (s), job number, quantity

BLOCK_LENGTH = 128
MOST = sys.maxsize  # above all job numbers


class Release:
    """What a job is expected to release at a time, s."""

    def __init__(self, time: float, job: int, quantity: Quantity) -> None:
        self.time = time
        self.job = job
        self.quantity = quantity


class ReleaseBlock:
    """Consecutive releases, sorted by time, then by job number, and the sum of their quantities."""

    def __init__(self, releases: list[Release], none: Quantity) -> None:
        self.releases = releases
        self.sum = sum([release.quantity for release in releases], none)

    def index(self, time: float, job: int) -> int:
        """Number of the releases before that of a job at a time (s)."""
        releases = self.releases
        first, behind = 0, len(releases)
        while first < behind:
            middle = (first + behind) >> 1
            other = releases[middle]
            if other.time < time or (other.time == time and other.job < job):
                first = middle + 1
            else:
                behind = middle
        return first

    def add(self, release: Release) -> None:
        """Insert a release."""
        self.releases.insert(self.index(release.time, release.job), release)
        self.sum += release.quantity

    def remove(self, release: Release) -> None:
        """Remove a release."""
        del self.releases[self.index(release.time, release.job)]
        self.sum -= release.quantity


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
        self._blocks = [ReleaseBlock([], none)]
        self._lasts: list[float] = []  # last time of each block but the last block
        self._first: dict[int, Release] = {}  # job number -> its first release
        self._second: dict[int, Release] = {}  # job number -> its other release

    def __iter__(self) -> Iterator[ExpectedRelease]:
        """Iterate over the releases, the soonest first."""
        for block in self._blocks:
            for release in block.releases:
                yield release.time, release.job, release.quantity

    def any_by(self, time: float) -> bool:
        """Whether a release is expected at or before this time."""
        releases = self._blocks[0].releases
        return bool(releases) and releases[0].time <= time

    def any_at(self, time: float) -> bool:
        """Whether a release is expected at exactly this time."""
        block = self._blocks[self._block_index(time)]
        i = block.index(time, -1)
        return i < len(block.releases) and block.releases[i].time == time

    def expect(self, job: int, *parts: tuple[float, Quantity]) -> None:
        """Replace the expected releases of a job by these one or two (time, quantity) parts."""
        self.forget(job)
        (time, quantity), *others = parts
        for other, further in others:
            if other == time:
                quantity = quantity + further
            else:
                self._second[job] = self._added(other, job, further)
        self.expect_first(job, time, quantity)

    def expect_first(self, job: int, time: float, quantity: Quantity) -> None:
        """Add the first release of a job that has none so far."""
        self._first[job] = self._added(time, job, quantity)

    def forget(self, job: int) -> None:
        """Remove the releases of a job, if it has any."""
        release = self._first.pop(job, None)
        if release is not None:
            self._remove(release)
            if self._second and job in self._second:
                self._remove(self._second.pop(job))

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
            for release in block.releases:
                time = release.time
                if time > at:
                    return at, free - needed
                free += release.quantity
                if at == inf and free >= needed:
                    at = time if time > now else now
        return at, excess(free, needed)

    def _block_index(self, time: float) -> int:
        """Index of the block of this time; releases of one time are always in one block."""
        return bisect_left(self._lasts, time) if self._lasts else 0

    def _added(self, time: float, job: int, quantity: Quantity) -> Release:
        """Add a release and return it."""
        release = Release(time, job, quantity)
        i = self._block_index(time)
        block = self._blocks[i]
        block.add(release)
        if len(block.releases) > self._block_length:
            self._split(i)
        return release

    def _remove(self, release: Release) -> None:
        i = self._block_index(release.time)
        block = self._blocks[i]
        block.remove(release)
        if not block.releases and self._lasts:
            del self._blocks[i]
            del self._lasts[min(i, len(self._lasts) - 1)]

    def _split(self, i: int) -> None:
        """Split a block between two different times next to its middle, if there are any."""
        whole = self._blocks[i]
        releases = whole.releases
        middle = releases[len(releases) // 2].time
        at = whole.index(middle, -1)
        if not at:
            at = whole.index(middle, MOST)
        if at == len(releases):
            return
        parts = releases[:at], releases[at:]
        self._blocks[i : i + 1] = [ReleaseBlock(part, self._none) for part in parts]
        self._lasts.insert(i, releases[at - 1].time)
