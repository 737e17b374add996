"""What is free over time, as the expected ends of what runs and the reservations foretell it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from math import inf, nextafter
from typing import cast

from scheduler.model.resources import Quantity, highest
from scheduler.state.expected_ends import End


class Availability:
    """Step function of time: how many processors, or how much of each resource, will be free.

    Parameters
    ----------
    now : time at which it begins, seconds.
    free : what is free now.
    ends : (time, job, quantity) of what will come back, ascending in time. What should be back
        by now but is not is expected a moment later.

    Attributes
    ----------
    none : nothing, as a quantity of this kind.
    times, frees : `frees[i]` is free from `times[i]` up to `times[i + 1]`, the last
        for ever.
    gained : time before which there may be more free than when the reservations were placed.
    """

    def __init__(self, now: float, free: Quantity, ends: Iterable[End] = ()) -> None:
        self.now = now
        self.gained = inf
        self.times = [now]
        self.frees = [free]
        self.none = free - free
        soon = nextafter(now, inf)
        for time, _, processors in ends:
            time = max(time, soon)
            if time == self.times[-1]:
                self.frees[-1] += processors
            else:
                self.times.append(time)
                self.frees.append(self.frees[-1] + processors)

    def earliest(self, needed: Quantity, duration: float, after: float) -> float:
        """First time >= `after` from which so much is free for the whole duration.

        Returns
        -------
        seconds; inf if there will never be as much.
        """
        times, frees = self.times, self.frees
        start = after if after > self.now else self.now
        i, steps = bisect_right(times, start) - 1, len(times)
        while True:
            for i in range(i, steps):  # noqa: B020 - goes on where it stood
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
        """How long so many processors stay free from now on: (processors, s), ascending in them."""
        times, frees = self.times, cast("list[int]", self.frees)
        low, found = frees[0], list[tuple[int, float]]()
        for i, free in enumerate(frees):
            if free < low:
                found.append((low, times[i] - self.now))
                low = free
        found.append((low, inf))
        found.reverse()
        return found

    def earlier(self, needed: Quantity, duration: float, than: float, since: float = -inf) -> float:
        """First time before `than` to which a reservation made for `than` could be moved.

        It is one before `gained`, since nothing has changed behind that.

        What it holds itself is there for it, too; so it is enough that the others leave as much
        up to the end of its duration or up to `than`, whichever comes first.

        Parameters
        ----------
        since : there is known to be none before.

        Returns
        -------
        seconds; `than` if there is none.
        """
        times, frees, now = self.times, self.frees, self.now
        i, steps = bisect_right(times, since) - 1 if since > now else 0, len(times)
        last = bisect_left(times, than if than < self.gained else self.gained)
        while True:
            for i in range(i, last):  # noqa: B020 - goes on where it stood
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
        """Move a reservation to an earlier time, which `earlier` found.

        Returns
        -------
        most that is free now, of each resource, at any time at which there is more than before.
        """
        end, ends = start + duration, to + duration
        left = start if start > ends else ends  # in between nothing changes
        self._change(needed, left, end)
        self._change(-needed, to, start if start < ends else ends)
        first, last = bisect_right(self.times, left) - 1, bisect_left(self.times, end)
        return highest(self.frees[first:last]) if left < end and first < last else self.none

    def peak(self, until: float) -> Quantity:
        """Most that is free, of each resource, at any time before `until`."""
        return highest(self.frees[: max(1, bisect_left(self.times, until))])

    def advance(self, now: float) -> None:
        """Let time pass: forget what was before."""
        self.now = now
        i = bisect_right(self.times, now) - 1
        if i > 0:
            del self.times[:i], self.frees[:i]

    def reserve(self, needed: Quantity, start: float, duration: float) -> None:
        """Take something out for a while; `earliest` said that it is there."""
        self._change(-needed, start, start + duration)

    def lift(self, needed: Quantity, start: float, duration: float) -> None:
        """Take a reservation back."""
        self._change(needed, start, start + duration)

    def _change(self, change: Quantity, start: float, end: float) -> None:
        if end <= start:
            return
        first, last, none = self._cut(start), self._cut(end), self.none
        times, frees = self.times, self.frees
        frees[first:last] = changed = [free + change for free in frees[first:last]]
        for free in changed:
            assert free >= none, f"{-change} reserved at {start} is not free"
        for i in (last, first):  # steps that are none any more
            if 0 < i < len(times) and frees[i] == frees[i - 1]:
                del times[i], frees[i]

    def _cut(self, time: float) -> int:
        """Index of the step that begins at this time, made if there is none."""
        if time == inf:
            return len(self.times)
        i = bisect_left(self.times, time)
        if i == len(self.times) or self.times[i] != time:
            self.times.insert(i, time)
            self.frees.insert(i, self.frees[i - 1])
        return i
