"""Availability profile: free processors as a function of future time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from math import inf, nextafter
from typing import cast

from scheduler.model.resources import Quantity, highest
from scheduler.state.expected_releases import ExpectedRelease


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
