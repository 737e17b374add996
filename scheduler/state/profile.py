"""Expected releases, and the availability profile that follows: free processors over future time.

A pass that needs only the first time at which enough is free asks the expected releases; one that
reserves processors for several jobs makes a profile of them.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from math import inf, nextafter
from typing import TypeAlias, cast

from scheduler.model.resources import Quantity, excess, highest

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


def longest_until(end: float, now: float) -> float:
    """Bound of the lengths of jobs that start now and end by a time; all in s.

    It is for searches. Whether a job ends in time is decided by ``now + length <= end``, as the
    rounded sum can be `end` when the length exceeds the rounded difference.
    """
    return nextafter(end, inf) - now


class Availability:
    """Step function of time: the free processors, or the free amount of each resource.

    Parameters
    ----------
    now : time at which the profile begins, s.
    free : quantity that is free now.
    releases : expected releases, ascending in time. Overdue ones are expected immediately after
        `now`.

    Attributes
    ----------
    none : quantity of nothing.
    times, frees : `frees[i]` is free from `times[i]` to `times[i + 1]`, the last one forever.
    more_free_until : time (s) before which more may be free than when reservations were made.
    """

    def __init__(
        self, now: float, free: Quantity, releases: Iterable[ExpectedRelease] = ()
    ) -> None:
        self.now = now
        self.more_free_until = inf
        self.times = [now]
        self.frees = [free]
        self.none = free - free
        soon = nextafter(now, inf)
        for time, _, quantity in releases:
            time = max(time, soon)
            if time == self.times[-1]:
                self.frees[-1] += quantity
            else:
                self.times.append(time)
                self.frees.append(self.frees[-1] + quantity)

    def earliest(self, needed: Quantity, duration: float, after: float) -> float:
        """First time >= `after` from which `needed` is free for `duration` (s).

        Returns
        -------
        seconds; inf if there is no such time.
        """
        times, frees = self.times, self.frees
        start = after if after > self.now else self.now
        i, steps = bisect_right(times, start) - 1, len(times)
        while True:
            for i in range(i, steps):  # noqa: B020 - continues at the present index
                if frees[i] >= needed:
                    break
            else:
                return inf
            if times[i] > start:
                start = times[i]
            end = start + duration
            i += 1
            while i < steps and times[i] < end and frees[i] >= needed:
                i += 1
            if i == steps or times[i] >= end:
                return start

    def lasting(self) -> list[tuple[int, float]]:
        """How long processors stay free from now on: (processors, s), ascending in processors.

        The lengths are bounds; see `longest_until`.
        """
        times, frees = self.times, cast("list[int]", self.frees)
        low, limits = frees[0], list[tuple[int, float]]()
        for i, free in enumerate(frees):
            if free < low:
                limits.append((low, longest_until(times[i], self.now)))
                low = free
        limits.append((low, inf))
        limits.reverse()
        return limits

    def earlier(self, needed: Quantity, duration: float, than: float, since: float = -inf) -> float:
        """First time before `than` to which a reservation made for `than` can be moved.

        Only times before `more_free_until` are tried; the profile is unchanged after it. The
        reservation may use its own processors, so `needed` must be free only until its new end or
        until `than`, whichever comes first.

        Parameters
        ----------
        since : time (s) before which the reservation is known not to fit.

        Returns
        -------
        seconds; `than` if there is no such time.
        """
        times, frees, now = self.times, self.frees, self.now
        i, steps = bisect_right(times, since) - 1 if since > now else 0, len(times)
        last = bisect_left(times, than if than < self.more_free_until else self.more_free_until)
        if isinstance(needed, int):
            return _earlier(self, needed, duration, than, i, last)
        while True:
            for i in range(i, last):  # noqa: B020 - continues at the present index
                if frees[i] >= needed:
                    break
            else:
                return than
            begin = times[i] if times[i] > now else now
            end = begin + duration
            if end > than:
                end = than
            i += 1
            while i < steps and times[i] < end and frees[i] >= needed:
                i += 1
            if i == steps or times[i] >= end:
                return begin

    def move(self, needed: Quantity, duration: float, start: float, to: float) -> Quantity:
        """Move a reservation from `start` to an earlier time that `earlier` returned.

        Returns
        -------
        largest amount of each resource that is free at any time of what the reservation has left.
        """
        end, ends = start + duration, to + duration
        left = start if start > ends else ends  # nothing changes in between
        self._change(needed, left, end)
        self._change(-needed, to, start if start < ends else ends)
        first, last = bisect_right(self.times, left) - 1, bisect_left(self.times, end)
        return highest(self.frees[first:last]) if left < end and first < last else self.none

    def peak(self, until: float) -> Quantity:
        """Largest amount of each resource that is free at any time before `until` (s)."""
        return highest(self.frees[: max(1, bisect_left(self.times, until))])

    def advance(self, now: float) -> None:
        """Drop the part of the profile before `now`."""
        self.now = now
        i = bisect_right(self.times, now) - 1
        if i > 0:
            del self.times[:i], self.frees[:i]

    def reserve(self, needed: Quantity, start: float, duration: float) -> None:
        """Reserve a quantity that `earliest` found to be free from `start` for `duration` (s)."""
        self._change(-needed, start, start + duration)

    def cancel(self, needed: Quantity, start: float, duration: float) -> None:
        """Cancel a reservation."""
        self._change(needed, start, start + duration)

    def _change(self, change: Quantity, start: float, end: float) -> None:
        if end <= start:
            return
        first, last, none = self._cut(start), self._cut(end), self.none
        times, frees = self.times, self.frees
        frees[first:last] = changed = [free + change for free in frees[first:last]]
        for free in changed:
            assert free >= none, f"{-change} reserved at {start} is not free"
        for i in (last, first):  # merge steps of equal height
            if 0 < i < len(times) and frees[i] == frees[i - 1]:
                del times[i], frees[i]

    def _cut(self, time: float) -> int:
        """Index of the step that begins at this time; the step is inserted if it is missing."""
        if time == inf:
            return len(self.times)
        i = bisect_left(self.times, time)
        if i == len(self.times) or self.times[i] != time:
            self.times.insert(i, time)
            self.frees.insert(i, self.frees[i - 1])
        return i


def _earlier(
    profile: Availability, needed: int, duration: float, than: float, i: int, last: int
) -> float:
    """Search of `Availability.earlier` for a number of processors, in steps `i` to `last` - 1.

    Compiled arithmetic with numbers is several times faster than with a general `Quantity`.
    """
    times, now, steps = profile.times, profile.now, len(profile.times)
    frees = cast("list[int]", profile.frees)
    while i < last:
        if frees[i] < needed:
            i += 1
            continue
        begin = times[i] if times[i] > now else now
        end = begin + duration
        if end > than:
            end = than
        i += 1
        while i < steps and times[i] < end and frees[i] >= needed:
            i += 1
        if i == steps or times[i] >= end:
            return begin
    return than
