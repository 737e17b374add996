"""The performance profiler: what is known of a job's speed on the configurations it ran on.

PRIO (Sudarsan and Ribbens, Priority scheduling for resizable applications) section 2: it
"maintains lists of the various processor sizes each application has run on and the performance of
the application at each of those sizes"; section 3.2 draws the rest from them: the benefit of the
last expansion, the sweet spot, the expand potential and the time of the next resize point.
"""

from __future__ import annotations

from math import inf, log
from statistics import median

import msgspec

KEPT = 32  # iteration times kept per size: a long job must not grow the scheduler


class Timing(msgspec.Struct, eq=False):
    """Iteration times on one size, seconds: the first after each start or resize kept apart."""

    first: list[float] = []
    later: list[float] = []

    def add(self, iteration_s: float, first: bool) -> None:
        """Take in one measurement, the oldest of too many dropped."""
        times = self.first if first else self.later
        times.append(iteration_s)
        del times[:-KEPT]

    @property
    def typical_s(self) -> float:
        """Median; first iterations (cold caches, first touch) count only if there is no other."""
        return median(self.later or self.first)


class History(msgspec.Struct, eq=False):
    """Performance history of one job.

    Parameters
    ----------
    visits : configurations in the order visited, the starting one first.
    points : resize points seen so far.
    settled : iterations measured on the present configuration since the job came to it.
    next_point_at : expected time of the next resize point, seconds: the last one, or the resize
        after it, plus the iteration time expected on the present size.
    sweet_spot : size beyond which an expansion brought nothing, once found (PRIO 3.2).
    failures : size -> `points` when an expansion to it last failed.
    """

    visits: list[int] = []
    points: int = 0
    settled: int = 0
    next_point_at: float = -inf
    sweet_spot: int | None = None
    failures: dict[int, int] = {}
    _timings: dict[int, Timing] = {}
    _typical_s: dict[int, float] = {}
    _potential: float | None = None
    _potential_window: int = -1  # for which `_potential` holds; -1: to be worked out anew

    def configured(self, size: int, at: float) -> None:
        """Note that the job now runs on this many processors: started, restarted or resized."""
        if not self.visits or self.visits[-1] != size:
            self.visits.append(size)
        self.settled = 0
        self._look_ahead(at)

    def record(self, iteration_s: float, at: float) -> None:
        """Take in the iteration time measured at a resize point on the present configuration."""
        size = self.visits[-1]
        timing = self._timings.setdefault(size, Timing())
        timing.add(iteration_s, first=self.settled == 0)
        self._typical_s[size] = timing.typical_s
        self.settled += 1
        self.points += 1
        self._look_ahead(at)

    def failed(self, size: int) -> None:
        """Note that a resize to this size failed."""
        self.failures[size] = self.points

    def time_s(self, size: int) -> float | None:
        """Typical iteration time on a size it ran on, seconds; None if never measured."""
        return self._typical_s.get(size)

    def expanded_from(self) -> int | None:
        """Size from which the job last expanded to its present one; None if it never did."""
        present = self.visits[-1]
        for before, after in zip(self.visits[-2::-1], self.visits[:0:-1], strict=True):
            if after == present and before < present:
                return before
        return None

    def contractions(self) -> list[int]:
        """Sizes below the present one on which it already ran, the largest first (PRIO 2)."""
        present = self.visits[-1]
        return sorted({size for size in self.visits if size < present}, reverse=True)

    def benefited(self, min_benefit: float = 0.0) -> bool | None:
        """Whether the expansion to the present size shortened the iterations.

        Parameters
        ----------
        min_benefit : the part of a perfect gain it must exceed. A gain is how many times faster
            minus one, and perfect is as many times faster as there are more processors; so 0 is
            any improvement (PRIO 3.3) and 1 a linear speedup.

        Returns
        -------
        None if there is nothing to judge: never expanded to this size, or not yet measured on both.
        """
        before = self.expanded_from()
        if before is None:
            return None
        old_s, new_s = self.time_s(before), self.time_s(self.visits[-1])
        if old_s is None or new_s is None or new_s <= 0:
            return None
        gain, perfect = old_s / new_s - 1, self.visits[-1] / before - 1
        return gain > min_benefit * perfect

    def expand_potential(self, window: int) -> float | None:
        """Slope of the speedup curve at the present size: speedup gained per further processor.

        PRIO 3.2: known only after `window` (`remap_window_size`) resizes; a polynomial (a line
        through two sizes, a parabola through more) is fitted to the speedup on the configurations
        that the last `window` resizes joined. The speedup is over the starting size.

        Returns
        -------
        None while it is not known.
        """
        if self._potential_window != window:
            self._potential, self._potential_window = self._slope(window), window
        return self._potential

    def _slope(self, window: int) -> float | None:
        if len(self.visits) - 1 < max(window, 1):
            return None
        sizes = sorted(set(self.visits[-window - 1 :]) & self._typical_s.keys())
        base_s = self._typical_s.get(self.visits[0])
        if base_s is None or len(sizes) < 2:
            return None
        import numpy as np  # here: `import scheduler.core` stays light without it

        speedups = [base_s / self._typical_s[size] for size in sizes]
        curve = np.polyfit(sizes, speedups, min(2, len(sizes) - 1))
        return float(np.polyval(np.polyder(curve), self.visits[-1]))

    def predict_s(self, size: int) -> float | None:
        """Expected iteration time on a size, seconds; None before the first measurement.

        On a size it ran on: what was measured. Elsewhere: a power law through the two measured
        sizes that lie nearest (on a log scale); perfect scaling if there is one only.
        """
        known = self.time_s(size)
        if known is not None or not self._typical_s:
            return known
        near = sorted(self._typical_s, key=lambda other: (abs(log(size / other)), other))[:2]
        exponent = 1.0
        if len(near) == 2 and min(self._typical_s[other] for other in near) > 0:
            ratio = log(self._typical_s[near[0]] / self._typical_s[near[1]])
            exponent = -ratio / log(near[0] / near[1])
        return float(self._typical_s[near[0]] * (near[0] / size) ** exponent)

    def next_resize_point(self, now: float) -> float:
        """Expected time of the next resize point, seconds, not before `now`.

        `now` itself if nothing was measured yet: the job may come at any moment.
        """
        return max(now, self.next_point_at)

    def _look_ahead(self, at: float) -> None:
        """What follows from the past is another now; the potential is worked out when asked for."""
        self._potential_window = -1
        iteration_s = self.predict_s(self.visits[-1])
        self.next_point_at = -inf if iteration_s is None else at + iteration_s
