"""Performance profiler: the measured speed of a job on the configurations it ran on.

PRIO (Sudarsan and Ribbens, Priority scheduling for resizable applications) section 2: it
"maintains lists of the various processor sizes each application has run on and the performance of
the application at each of those sizes"; section 3.2 draws the rest from them: the benefit of the
last expansion, the sweet spot, the expand potential and the time of the next resize point; and
section 2 adds "the redistribution time for mapping the distributed data", from which that of a
planned resize is predicted.

Noise makes iterations slower, not faster: caches are cold after a start or resize, another program
runs on the node. So first iterations are recorded separately and compared with first iterations,
and of several times the lower median is used, which slow outliers do not change. `malleable` judges
an expansion by the fastest iterations: in its first seconds other groups start on the same nodes,
and most iterations are disturbed.
"""

from __future__ import annotations

from functools import lru_cache
from math import fsum, inf, log
from operator import mul

from reshape.speedup import speedup_by
from reshape.wire.messages import ResizeTimes
from scheduler.model.orders import Continue
from scheduler.text.formats import counted

KEPT = 32  # iteration times of a size, costs, visits: a long job must not grow the scheduler
#: Iterations on a size after which an expansion to it is judged; the first has cold caches.
JUDGED = 3
#: Iterations, and s, for which the first sweet spot of a job is kept at least if it is forgotten.
FIRST_RETRY, FIRST_RETRY_S = 8, 30.0
#: Longest pause after a resize that failed, s.
MOST_PAUSE_S = 3600.0


class Timing:
    """Iteration times on one size, s: the first after each start or resize, and the later ones."""

    def __init__(self) -> None:
        self.first: list[float] = []
        self.later: list[float] = []

    def add(self, iteration_s: float, first: bool) -> None:
        """Add a measurement; only the latest `KEPT` are kept."""
        times = self.first if first else self.later
        times.append(iteration_s)
        if len(times) > KEPT:
            del times[0]

    def keeps_median(self, median_s: float) -> bool:
        """Whether the lower median of the later iterations stays if it is measured once more."""
        return len(self.later) < KEPT or self.later[0] == median_s

    def keeps_fastest(self, count: int) -> bool:
        """Whether the fastest of the latest later iterations surely stays with one more of them."""
        later = self.later
        return len(later) <= count or later[-count - 1] >= later[-1]

    @property
    def typical_s(self) -> float:
        """Lower median, s; of first iterations (cold caches) only if there are no others."""
        return lower_median(self.later or self.first)


class Moves:
    """Measured costs of the latest `KEPT` resizes, of one job or of all jobs.

    Attributes
    ----------
    fixed_s : time of a pause that does not depend on the data: close, join, plan and resume, s.
    byte_s : time of the move per byte of the job's data, s.
    """

    def __init__(self) -> None:
        self.fixed_s: list[float] = []
        self.byte_s: list[float] = []

    def add(self, times: ResizeTimes, data_bytes: int) -> None:
        """Add a resize of a job with this many bytes of data (0: not known)."""
        self.fixed_s.append(times.close_s + times.join_s + times.plan_s + times.resume_s)
        del self.fixed_s[:-KEPT]
        if data_bytes > 0:
            self.byte_s.append(times.move_s / data_bytes)
            del self.byte_s[:-KEPT]

    def pause_s(self, data_bytes: int) -> float | None:
        """Expected pause of a resize that moves this many bytes, s; None without measurements."""
        if not self.fixed_s or (data_bytes > 0 and not self.byte_s):
            return None
        return median(self.fixed_s) + data_bytes * median(self.byte_s or [0.0])


class Failures:
    """Expansions, or contractions, of a job that have failed in succession.

    Attributes
    ----------
    count : how many they are.
    at, why : time (s) and reason of the last one.
    given_up : whether no further one is tried.
    """

    def __init__(self) -> None:
        self.count = 0
        self.at = -inf
        self.why = ""
        self.given_up = False

    @property
    def retry_at(self) -> float:
        """Time (s) before which no other one is tried: 2**count s after the last, from the second.

        The cause of a single failure is often gone, such as a lost node.
        """
        return self.at + min(2.0 ** min(self.count, 32), MOST_PAUSE_S) if self.count > 1 else -inf


class History:
    """Performance history of one job; `scheduler.state.records` tells what of it is stored.

    Parameters
    ----------
    performance : performance model of the job, as `reshape.speedup.named` reads it; "": none, so
        that the profiler fits one to the measurements.

    Attributes
    ----------
    visits : the latest `KEPT` configurations in the order visited.
    start : size of the starting configuration; 0: it has none yet.
    visited : size -> place of its latest visit among all visits; the start has place 0.
    came_from : size -> size from which the job last expanded to it.
    points : resize points seen so far.
    settled : iterations measured since the job came to its present configuration.
    next_point_at : expected time of the next resize point, seconds: the last one, or the resize
        after it, plus the iteration time expected on the present size.
    sweet_spot : size beyond which an expansion brought nothing, once found (PRIO 3.2).
    forgotten_at : time (s) from which on the sweet spot is forgotten; inf: never.
    spots : sweet spots found up to now that are forgotten.
    failures : size -> `points` when a resize to it last failed.
    failed_expansions, failed_contractions : those since the last one that was committed.
    data_bytes : data of the job that a resize moves, over all its processes; 0 if not known.
    moves : measured costs of its resizes.
    lasting : version of the state, and an answer at a resize point that holds while neither this
        version nor what was computed from the iteration times changes; None: there is none.
    """

    def __init__(self, performance: str = "") -> None:
        self.visits: list[int] = []
        self.start = 0
        self.visited: dict[int, int] = {}
        self.came_from: dict[int, int] = {}
        self.points = 0
        self.settled = 0
        self.next_point_at = -inf
        self.sweet_spot: int | None = None
        self.forgotten_at = inf
        self.spots = 0
        self.failures: dict[int, int] = {}
        self.failed_expansions = Failures()
        self.failed_contractions = Failures()
        self.data_bytes = 0
        self.moves = Moves()
        self.performance = performance
        self.lasting: tuple[int, Continue] | None = None
        self._timings: dict[int, Timing] = {}
        self._typical_s: dict[int, float] = {}
        self._predicted_s: dict[int, float] = {}  # on other sizes, since the last measurement
        self._potential: float | None = None
        self._potential_window = -1  # for which `_potential` is valid; -1: none

    def configured(self, size: int, at: float) -> None:
        """Record the present size after a start, a restart or a resize."""
        if not self.visits or self.visits[-1] != size:
            if self.visits and size > self.visits[-1]:
                self.failed_expansions = Failures()
            elif self.visits:
                self.failed_contractions = Failures()
            self.visit(size)
        self.settled = 0
        self._look_ahead(at)

    def visit(self, size: int) -> None:
        """Add a configuration to those that the job ran on."""
        visits = self.visits
        if not visits:
            self.start = size
        elif size > visits[-1]:
            self.came_from[size] = visits[-1]
        self.visited[size] = self.visited[visits[-1]] + 1 if visits else 0
        visits.append(size)
        del visits[:-KEPT]

    def record(self, iteration_s: float, at: float) -> None:
        """Record an iteration time that was measured on the present configuration."""
        if self.record_same(iteration_s, at):
            return
        size = self.visits[-1]
        timing = self._timings.get(size)
        if timing is None:
            timing = self._timings[size] = Timing()
        timing.add(iteration_s, first=self.settled == 0)
        self._typical_s[size] = timing.typical_s
        self._predicted_s.clear()
        self.lasting = None
        self._look_ahead(at)
        self.settled += 1
        self.points += 1
        if at >= self.forgotten_at:
            self._forget_sweet_spot()

    def record_same(self, iteration_s: float, at: float) -> bool:
        """Record an iteration time if that leaves all expected times, and the verdict, as they are.

        Returns
        -------
        False: it would change them, and nothing is recorded.
        """
        size = self.visits[-1]
        timing = self._timings.get(size)
        if timing is None or self.settled < JUDGED or not timing.later:
            return False
        if at >= self.forgotten_at:
            return False
        if self._typical_s[size] != iteration_s or not timing.keeps_median(iteration_s):
            return False
        before = self._timings.get(self.came_from.get(size, 0))
        if before is not None and not before.keeps_fastest(len(timing.later)):
            return False
        timing.add(iteration_s, first=False)
        self.next_point_at = at + iteration_s
        self.settled += 1
        self.points += 1
        return True

    def found_sweet_spot(self, size: int, now: float, *, retry: bool) -> None:
        """Record the sweet spot at a time (s); with `retry`, for a while, twice as long each time.

        So a measurement that something disturbed does not hold for the rest of the run, and the
        number of trials grows only with the logarithm of the time. A trial starts processes, so
        that the while is long beside that where iterations are short.
        """
        self.sweet_spot, self.forgotten_at = size, inf
        if retry:
            kept_s = max(FIRST_RETRY_S, FIRST_RETRY * self._typical_s.get(self.visits[-1], 0.0))
            self.forgotten_at = now + kept_s * 2**self.spots
            self.spots += 1

    def _forget_sweet_spot(self) -> None:
        """Forget the sweet spot, and the times on larger sizes, which are to be measured anew."""
        spot, self.sweet_spot, self.forgotten_at = self.sweet_spot, None, inf
        if spot is not None:
            for size in [size for size in self._timings if size > spot and size != self.visits[-1]]:
                del self._timings[size], self._typical_s[size]
        self._predicted_s.clear()

    def failed(self, size: int, at: float, why: str) -> None:
        """Record that a resize to this size failed."""
        self.failures[size] = self.points
        failures = self.failures_towards(size)
        failures.count, failures.at, failures.why = failures.count + 1, at, why

    def failures_towards(self, size: int) -> Failures:
        """Failed resizes in the direction of this size."""
        return self.failed_expansions if size > self.visits[-1] else self.failed_contractions

    def failures_text(self) -> str:
        """Describe the resizes that have failed in succession; empty if there are none."""
        kinds = (("expansion", self.failed_expansions), ("contraction", self.failed_contractions))
        texts = []
        for kind, failures in kinds:
            if failures.count:
                end = ", and no other is tried" if failures.given_up else ""
                number = counted(failures.count, kind)
                texts.append(f"{number} failed in succession{end}; the last: {failures.why}")
        return "; ".join(texts)

    def time_s(self, size: int) -> float | None:
        """Typical iteration time on a size it ran on, s; None if it was not measured."""
        return self._typical_s.get(size)

    @property
    def measured(self) -> int:
        """Number of sizes on which iterations were measured."""
        return len(self._typical_s)

    def expanded_from(self) -> int | None:
        """Size from which the job last expanded to its present one; None if it did not."""
        return self.came_from.get(self.visits[-1])

    def contractions(self) -> list[int]:
        """Sizes below the present one on which the job already ran, the largest first (PRIO 2).

        There are none if contractions were given up.
        """
        if self.failed_contractions.given_up:
            return []
        present = self.visits[-1]
        return sorted([size for size in self.visited if size < present], reverse=True)

    def benefited(self, min_benefit: float = 0.0) -> bool | None:
        """Whether the expansion to the present size shortened the iterations.

        Parameters
        ----------
        min_benefit : fraction of the perfect gain that the gain must exceed. The gain is the ratio
            of the old to the new iteration time minus one; the perfect gain is the ratio of the new
            to the old size minus one. So 0 is any improvement (PRIO 3.3), 1 a linear speedup.

        Returns
        -------
        None if the job never expanded to this size or was not measured on both sizes yet.
        """
        before = self.expanded_from()
        if before is None:
            return None
        present = self.visits[-1]
        if before not in self._timings or present not in self._timings:
            return None
        old_s, new_s = self.comparable_s(before, present)
        if new_s <= 0:
            return None
        gain, perfect = old_s / new_s - 1, present / before - 1
        return gain > min_benefit * perfect

    def is_judged(self, size: int) -> bool:
        """Whether enough iterations were measured on a size to tell whether it is worth it."""
        timing = self._timings.get(size)
        return timing is not None and len(timing.first) + len(timing.later) >= JUDGED

    def fastest_s(self, one: int, other: int) -> tuple[float, float] | None:
        """Fastest of the latest iterations on two sizes, s; None if one was not measured.

        They are all of `other`, and as many of `one` at most: the more iterations there are, the
        faster is the fastest of them. First iterations are compared with first ones only.
        """
        first, second = self._timings.get(one), self._timings.get(other)
        if first is None or second is None:
            return None
        if first.later and second.later:
            return min(first.later[-len(second.later) :]), min(second.later)
        return min(first.first[-len(second.first) :]), min(second.first)

    def expand_potential(self, window: int) -> float | None:
        """Slope of the speedup curve at the present size: speedup gained per further processor.

        PRIO 3.2: known only after `window` (`remap_window_size`) resizes; a polynomial (a line
        through two sizes, a parabola through more) is fitted to the speedup on the configurations
        that the last `window` resizes joined. The speedup is over the starting size. With a
        performance model it is the model's gain by the next processor, and always known.

        Returns
        -------
        None while it is not known.
        """
        if self._potential_window != window:
            self._potential, self._potential_window = self._slope(window), window
        return self._potential

    def _slope(self, window: int) -> float | None:
        if self.performance and self.visits:
            start, size = self.start, self.visits[-1]
            present, larger = (speedup_by(self.performance, start, n) for n in (size, size + 1))
            if present is not None and larger is not None:
                return larger - present
        resizes = self.visited[self.visits[-1]] if self.visits else 0
        if resizes < max(window, 1):
            return None
        typical_s, sizes = self._typical_s, list[int]()
        for size, place in self.visited.items():
            if place >= resizes - window and size in typical_s:
                sizes.append(size)
        sizes.sort()
        base_s = typical_s.get(self.start)
        if base_s is None or len(sizes) < 2:
            return None
        speedups = [base_s / typical_s[size] for size in sizes]
        weights = slope_weights(tuple(sizes), self.visits[-1])
        return fsum(map(mul, weights, speedups))

    def predict_s(self, size: int) -> float | None:
        """Expected iteration time on a size, s; None before the first measurement.

        It is the measured time on a size that the job ran on. For other sizes it follows from the
        time on the nearest measured size (on a log scale): by the performance model if the job has
        one, else by a power law. The exponent is the median of the
        exponents between that size and the next three, so that one bad measurement has little
        influence; first iterations are compared with first iterations only. With one measured size
        only, scaling is taken as perfect.
        """
        measured_s = self._typical_s.get(size)
        if measured_s is not None or not self._typical_s:
            return measured_s
        predicted = self._predicted_s.get(size)
        if predicted is None:
            predicted = self._predicted_s[size] = self._extrapolated_s(size)
        return predicted

    def _extrapolated_s(self, size: int) -> float:
        """Expected iteration time on a size that the job did not run on, s."""
        nearest = sorted([(abs(log(size / other)), other) for other in self._typical_s])[:4]
        near = nearest[0][1]
        if self.performance:
            start = self.start
            at_near, at_size = (speedup_by(self.performance, start, n) for n in (near, size))
            if at_near is not None and at_size is not None:
                return self._typical_s[near] * at_near / at_size
        slopes = []
        for _, other in nearest[1:]:
            near_s, other_s = self.comparable_s(near, other)
            if near_s > 0 and other_s > 0:
                slopes.append(log(near_s / other_s) / log(other / near))
        exponent = median(slopes) if slopes else 1.0
        return float(self._typical_s[near] * (near / size) ** exponent)

    def comparable_s(self, one: int, other: int) -> tuple[float, float]:
        """Iteration times on two measured sizes, s, for the comparison of the sizes.

        They are of later iterations if both sizes have some, else of first iterations: with its
        cold caches, a first iteration on one size is slow beside a later one on the other.
        """
        first, second = self._timings[one], self._timings[other]
        if not (first.later and second.later) and first.first and second.first:
            return lower_median(first.first), lower_median(second.first)
        return self._typical_s[one], self._typical_s[other]

    def predict_pause_s(self, everybody: Moves) -> float | None:
        """Expected pause of a planned resize, s; None without measurements.

        Parameters
        ----------
        everybody : costs of the resizes of all jobs, used if the job has none of its own.
        """
        pause_s = self.moves.pause_s(self.data_bytes)
        return everybody.pause_s(self.data_bytes) if pause_s is None else pause_s

    def _look_ahead(self, at: float) -> None:
        """Update the expected next resize point; forget the potential."""
        self._potential_window = -1
        iteration_s = self.predict_s(self.visits[-1])
        self.next_point_at = -inf if iteration_s is None else at + iteration_s


def lower_median(values: list[float]) -> float:
    """Median, of an even number of values the lower one of the two in the middle."""
    return sorted(values)[(len(values) - 1) // 2]


def median(values: list[float]) -> float:
    """Median, of an even number of values the mean of the two in the middle.

    `statistics.median` and `median_low` give the same; their checks take 0.06 of the processor time
    of a simulation of resizable jobs.
    """
    ascending, half = sorted(values), len(values) // 2
    return ascending[half] if len(values) % 2 else (ascending[half - 1] + ascending[half]) / 2


@lru_cache(maxsize=1024)
def slope_weights(sizes: tuple[int, ...], at: int) -> tuple[float, ...]:
    """Weights whose product sum with values at `sizes` is the slope of the fitted curve at `at`.

    The curve is a line through two values and the least-squares parabola through more. The normal
    equations are solved in integers, so that the same measurements give the same slope, bit for
    bit, on every processor; the result of a numerical library depends on its vector instructions.

    Parameters
    ----------
    sizes : at least two different ones.
    at : where the slope is taken.
    """
    offsets = [size - at for size in sizes]
    if len(sizes) == 2:
        step = sizes[1] - sizes[0]
        return -1 / step, 1 / step
    s0, s1, s2, s3, s4 = (sum(offset**power for offset in offsets) for power in range(5))
    # Second row of the inverse of [[s0, s1, s2], [s1, s2, s3], [s2, s3, s4]].
    row = (s2 * s3 - s1 * s4, s0 * s4 - s2 * s2, s1 * s2 - s0 * s3)
    determinant = s0 * (s2 * s4 - s3 * s3) - s1 * (s1 * s4 - s2 * s3) + s2 * (s1 * s3 - s2 * s2)
    return tuple((row[0] + row[1] * u + row[2] * u * u) / determinant for u in offsets)
