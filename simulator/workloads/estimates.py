"""Users' estimates of run times: few round values that most jobs share.

D. Tsafrir, Y. Etsion and D. G. Feitelson, "Modeling user runtime estimates" (JSSPP 2005), with the
constants of the authors' program (``est_model.hh`` at the Parallel Workloads Archive): of K
different estimates the 20 most popular serve 89 % of the jobs, an exponential law of popularity
ranks holds for them, a power law for the rest, and the times themselves follow a fractional law of
their rank. What we could not look up:

- the program's own number of estimates, a linear law; we take its alternative, a power law;
- which ranks of time are the popular ones if nobody says; ours are the round times nearest to the
  law's, in an order that the seed decides, with the maximum as the most popular.

As in the paper, no job outlives its estimate: the long ones choose first among those that remain.
"""

from __future__ import annotations

from math import ceil

import msgspec
import numpy as np

from simulator.workloads.drawn import Floats, Ints

HEAD = 20  # most popular estimates
ROUND_S = (3600, 1800, 900, 600, 300, 60, 1)  # the rounder, the more popular


class TsafrirEstimates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model.

    Parameters
    ----------
    longest_s : largest estimate the machine allows, whole seconds.
    head_share : share of the jobs with one of the 20 most popular estimates.
    head : a, b, c of the percentage a * exp(b * rank) + c of the ranks 2 to 20.
    tail : a, b of the percentage a * rank ** b of the ranks from 21 on.
    count : a, b of the number of different estimates, a * jobs ** b.
    times : p, q of the law of times, see `different_times`.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    longest_s: int = 64800
    head_share: float = 0.89
    head: tuple[float, float, float] = (14.0491, -0.177531, 0.462513)
    tail: tuple[float, float] = (795.6, -2.267)
    count: tuple[float, float] = (0.653566, 0.547761)
    times: tuple[float, float] = (12.1039, -0.6026)

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.longest_s < HEAD:
            raise ValueError(f"longest_s must be >= {HEAD}, got {self.longest_s}")
        if not 0 < self.head_share <= 1:
            raise ValueError(f"head_share must be > 0 and <= 1, got {self.head_share}")

    def different(self, jobs: int) -> int:
        """How many different estimates so many jobs have."""
        a, b = self.count
        return int(max(HEAD, min(round(a * jobs**b), self.longest_s)))

    def shares(self, different: int) -> Floats:
        """Shares of the jobs by popularity rank, (different,) float64, sum 1."""
        a, b, c = self.head
        ranks = np.arange(1, different + 1, dtype=np.float64)
        percent = np.where(
            ranks <= HEAD, a * np.exp(b * ranks) + c, self.tail[0] * ranks ** self.tail[1]
        )
        percent[0] = 100 * self.head_share - percent[1:HEAD].sum()  # what the others leave
        if different > HEAD:
            percent[HEAD:] *= 100 * (1 - self.head_share) / percent[HEAD:].sum()
        return np.asarray(percent / percent.sum())

    def different_times(self, different: int) -> Ints:
        """Different estimates, ascending: (a - 1) x / (a - x) of the longest, x the relative rank.

        Returns
        -------
        (at most different,) int64, seconds; a is 1 + p * different ** q
        """
        p, q = self.times
        a = 1 + p * different**q
        x = np.arange(1, different + 1) / different
        seconds = self.longest_s * (a - 1) * x / (a - x)
        return np.unique(np.clip(np.rint(seconds), 1, self.longest_s).astype(np.int64))

    def popular(self, different: int, rng: np.random.Generator) -> Ints:
        """Different estimates, the most popular first, (n,) int64, seconds."""
        times = self.different_times(different).tolist()
        step = max(1, len(times) // HEAD)
        round_times = {self.longest_s}
        for place in range(len(times) - 1 - step, -1, -step):
            if len(round_times) < HEAD:
                round_times.add(self._round_near(times, place))
        head = np.array(sorted(round_times - {self.longest_s}), dtype=np.int64)
        rest = np.array(sorted(set(times) - round_times), dtype=np.int64)
        longest = np.array([self.longest_s], dtype=np.int64)
        return np.concatenate([longest, rng.permutation(head), rng.permutation(rest)])

    def _round_near(self, times: list[int], place: int) -> int:
        """Roundest time near that of a rank: no farther than half the way to its neighbours."""
        time = times[place]
        near = max(1, (times[min(place + 1, len(times) - 1)] - times[max(place - 1, 0)]) // 2)
        for unit in ROUND_S:
            rounded = max(unit, round(time / unit) * unit)
            if abs(rounded - time) <= near and rounded <= self.longest_s:
                return rounded
        return time

    def generate(self, run: Floats, rng: np.random.Generator) -> Ints:
        """Estimates of jobs of these run times, none below the run time.

        Parameters
        ----------
        run : (n,) float64, seconds; those above `longest_s` get an estimate of their own.

        Returns
        -------
        (n,) int64, seconds
        """
        popular = self.popular(self.different(len(run)), rng)
        drawn = rng.choice(popular, len(run), p=self.shares(len(popular)))
        descending = np.sort(drawn)[::-1].tolist()
        estimates = np.empty(len(run), dtype=np.int64)
        pool: list[int] = []  # estimates that are long enough for the jobs still to come
        taken = 0
        picks = rng.random(len(run))
        for job in np.argsort(-run, kind="stable").tolist():
            while taken < len(descending) and descending[taken] >= run[job]:
                pool.append(descending[taken])
                taken += 1
            if not pool:  # no estimate is left that would do
                estimates[job] = max(self.longest_s, ceil(run[job]))
                continue
            pick = int(picks[job] * len(pool))
            pool[pick], pool[-1] = pool[-1], pool[pick]
            estimates[job] = pool.pop()
        return estimates
