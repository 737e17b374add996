"""Free processors over time, as the expected ends of what runs and the reservations foretell it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from math import inf, nextafter


class Availability:
    """Step function of time: how many processors will be free.

    Parameters
    ----------
    now : time at which it begins, seconds.
    free : processors free now.
    ends : (time, job, processors) of what will come back, ascending in time. What should be back
        by now but is not is expected a moment later.

    Attributes
    ----------
    times, frees : `frees[i]` processors are free from `times[i]` up to `times[i + 1]`, the last
        for ever.
    gained : time before which there may be more free than when the reservations were placed.
    """

    def __init__(self, now: float, free: int, ends: Iterable[tuple[float, int, int]] = ()) -> None:
        self.now = now
        self.gained = inf
        self.times = [now]
        self.frees = [free]
        soon = nextafter(now, inf)
        for time, _, processors in ends:
            time = max(time, soon)
            if time == self.times[-1]:
                self.frees[-1] += processors
            else:
                self.times.append(time)
                self.frees.append(self.frees[-1] + processors)

    def free_at(self, time: float) -> int:
        """Processors free at a time >= now."""
        return self.frees[bisect_right(self.times, time) - 1]

    def earliest(self, processors: int, duration: float, after: float) -> float:
        """First time >= `after` from which so many processors are free for the whole duration.

        Returns
        -------
        seconds; inf if there will never be as many.
        """
        start = max(after, self.now)
        i = bisect_right(self.times, start) - 1
        while i < len(self.times):
            if self.frees[i] < processors:
                i += 1
                continue
            start = max(start, self.times[i])
            end = start + duration
            j = i + 1
            while j < len(self.times) and self.times[j] < end and self.frees[j] >= processors:
                j += 1
            if j == len(self.times) or self.times[j] >= end:
                return start
            i = j
        return inf

    def earlier(self, processors: int, duration: float, than: float) -> float:
        """First time before `than` to which a reservation made for `than` could be moved.

        It is one before `gained`, since nothing has changed behind that.

        What it holds itself is there for it, too; so it is enough that the others leave as many
        processors up to the end of its duration or up to `than`, whichever comes first.

        Returns
        -------
        seconds; `than` if there is none.
        """
        times, frees, now = self.times, self.frees, self.now
        i, steps, last = 0, len(times), bisect_left(times, min(self.gained, than))
        while True:
            for i in range(i, last):  # noqa: B020 - goes on where it stood
                if frees[i] >= processors:
                    break
            else:
                return than
            begin = times[i] if times[i] > now else now
            end = begin + duration
            if end > than:
                end = than
            i += 1
            while i < steps and times[i] < end and frees[i] >= processors:
                i += 1
            if i == steps or times[i] >= end:
                return begin

    def peak(self, until: float) -> int:
        """Most processors that are free at any time before `until`."""
        return max(self.frees[: max(1, bisect_left(self.times, until))])

    def advance(self, now: float) -> None:
        """Let time pass: forget what was before."""
        self.now = now
        i = bisect_right(self.times, now) - 1
        if i > 0:
            del self.times[:i], self.frees[:i]

    def reserve(self, processors: int, start: float, duration: float) -> None:
        """Take processors out for a while; `earliest` said that they are there."""
        self._change(-processors, start, duration)

    def lift(self, processors: int, start: float, duration: float) -> None:
        """Take a reservation back."""
        self._change(processors, start, duration)

    def _change(self, processors: int, start: float, duration: float) -> None:
        if duration <= 0 or start == inf:
            return
        first, last = self._cut(start), self._cut(start + duration)
        for i in range(first, last):
            self.frees[i] += processors
            assert self.frees[i] >= 0, f"{-processors} processors reserved at {start} are not free"
        for i in (last, first):  # steps that are none any more
            if 0 < i < len(self.times) and self.frees[i] == self.frees[i - 1]:
                del self.times[i], self.frees[i]

    def _cut(self, time: float) -> int:
        """Index of the step that begins at this time, made if there is none."""
        if time == inf:
            return len(self.times)
        i = bisect_left(self.times, time)
        if i == len(self.times) or self.times[i] != time:
            self.times.insert(i, time)
            self.frees.insert(i, self.frees[i - 1])
        return i
