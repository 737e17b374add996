"""Users' estimates of run times: few round values that most jobs share.

D. Tsafrir, Y. Etsion and D. G. Feitelson, "Modeling user runtime estimates" (JSSPP 2005). Constants
and rules are those of the authors' program at the Parallel Workloads Archive (``m_tsafrir05``:
``est_model.hh``, ``est_model.cc``), without hints of the user:

- a number of different estimates that grows with the number of jobs, linear between given points;
- the 20 most popular serve 89 % of the jobs, by an exponential law of their popularity ranks; a
  power law holds for the rest;
- the 20 are the maximum, times that all four logs behind the model have in common, and multiples of
  round times. The maximum is the most popular; the popularity of each other time is that in one of
  the four logs, chosen at random for each time;
- the rest follow a fractional law of their rank, in whole minutes, in random order of popularity.

As in the paper, no job exceeds its estimate: long jobs choose first among the estimates that
remain. This implementation differs in two points. The estimates are drawn instead of being
distributed in exact shares. Where the program gives up (more long jobs than long estimates), such a
job requests the maximum, or its run time if that is longer.
"""

from __future__ import annotations

from math import ceil

import msgspec
import numpy as np

from reshape.errors import check_ranges
from simulator.workload_models.drawn import Floats, Ints

HEAD = 20  # most popular estimates
MINUTE_S = 60
#: Times below this, multiples of 5 minutes, would be too few for the head.
LEAST_LONGEST_S = (HEAD - 1) * 5 * MINUTE_S + 1
#: (Number of jobs, number of different estimates).
DIFFERENT = ((0, 0), (20, 10), (200, 20), (1000, 35), (10000, 90), (70000, 340), (250000, 565))
#: Popular estimates that all four logs have, minutes.
COMMON = (5, 10, 15, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 720, 1080)
#: The head is filled up with the largest multiples of these, one after the other, minutes.
ROUND = (12000, 6000, 3000, 600, 300, 120, 60, 20, 10, 5)
#: Popularity ranks of the maximum and of the other 19, ascending, in SDSC SP2, CTC SP2, KTH SP2
#: (jobs of up to 4 h) and SDSC Blue Horizon.
POPULARITY = (
    (3, 1, 4, 17, 13, 7, 8, 18, 2, 6, 16, 10, 5, 15, 14, 19, 11, 12, 9, 20),
    (1, 3, 4, 2, 12, 9, 8, 18, 6, 7, 11, 20, 16, 5, 14, 13, 10, 15, 17, 19),
    (1, 4, 10, 14, 20, 2, 3, 7, 12, 6, 19, 5, 18, 16, 9, 17, 15, 13, 8, 11),
    (1, 6, 5, 3, 7, 2, 18, 19, 4, 11, 20, 9, 10, 14, 13, 16, 15, 17, 8, 12),
)
#: Share of the jobs with one of the 20 most popular estimates.
HEAD_SHARE = 0.89
#: a, b, c of the percentage a * exp(b * rank) + c of the ranks 2 to 20; a, b of the percentage
#: a * rank ** b of the others, before it is scaled to the share that the head leaves.
HEAD_LAW, TAIL_LAW = (14.0491, -0.177531, 0.462513), (795.6, -2.267)
#: p, q of the law of times, see `rest`.
TIMES_LAW = (12.1039, -0.6026)
#: How far an estimate of the rest may move where there is one already, seconds.
ASIDE = (0, 30, -30, 20, -20, 10, -10)


class TsafrirEstimates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model.

    Parameters
    ----------
    longest_s : largest estimate the machine allows, whole seconds.

    Raises
    ------
    ValueError : it is too short for the 20 most popular estimates.
    """

    longest_s: int = 64800

    def __post_init__(self) -> None:
        """Check the range."""
        check_ranges(self, longest_s=f">= {LEAST_LONGEST_S}")

    def different(self, jobs: int) -> int:
        """Number of different estimates of `jobs` jobs, including those of the head."""
        jobs_at, estimates_at = zip(*DIFFERENT, strict=True)
        return max(HEAD, round(float(np.interp(jobs, jobs_at, estimates_at))))

    def shares(self, different: int) -> Floats:
        """Shares of the jobs by popularity rank, (different,) float64, sum 1."""
        a, b, c = HEAD_LAW
        ranks = np.arange(1, different + 1, dtype=np.float64)
        percent = np.where(
            ranks <= HEAD, a * np.exp(b * ranks) + c, TAIL_LAW[0] * ranks ** TAIL_LAW[1]
        )
        percent[0] = 100 * HEAD_SHARE - percent[1:HEAD].sum()  # the remaining share
        if different > HEAD:
            percent[HEAD:] *= 100 * (1 - HEAD_SHARE) / percent[HEAD:].sum()
        return np.asarray(percent / percent.sum())

    def most_popular(self) -> list[int]:
        """The maximum, and 19 round times in ascending order, seconds."""
        common = [MINUTE_S * time for time in COMMON if MINUTE_S * time < self.longest_s]
        values = dict.fromkeys([self.longest_s, *common])
        for unit in (MINUTE_S * time for time in ROUND):
            largest = self.longest_s // unit * unit
            values |= dict.fromkeys(range(largest, 0, -unit))
        return [self.longest_s, *sorted([*values][1:HEAD])]

    def rest(self, different: int, taken: list[int]) -> list[int]:
        """Times of the other estimates: (a - 1) x / (a - x) of the longest, x their relative rank.

        Parameters
        ----------
        different : number of estimates; a is 1 + p * different ** q.
        taken : times that are in the head.

        Returns
        -------
        at most different - HEAD times, seconds
        """
        p, q = TIMES_LAW
        a = 1 + p * different**q
        x = np.arange(1, different - HEAD + 1) / max(1, different - HEAD)
        minutes = np.rint(self.longest_s / MINUTE_S * (a - 1) * x / (a - x)).astype(int)
        times: dict[int, None] = {}
        for time in (MINUTE_S * minutes).tolist():
            for moved in (time + aside for aside in ASIDE):
                if 0 < moved < self.longest_s and moved not in times and moved not in taken:
                    times[moved] = None
                    break
        return list(times)

    def popular(self, different: int, rng: np.random.Generator) -> Ints:
        """Different estimates, the most popular first, (n,) int64, seconds."""
        head = self.most_popular()
        ranked = [time for _, time in sorted(zip(popularity(rng), head, strict=True))]
        rest = rng.permutation(self.rest(different, head))
        return np.concatenate([ranked, rest]).astype(np.int64)

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


def popularity(rng: np.random.Generator) -> list[int]:
    """Draw popularity ranks for the maximum (always 1) and the other 19 of the head, ascending.

    Time by time, the ranks that it has in the four logs come into a pool; the more popular of two
    drawn from the pool is taken. One that no later time has in any log is taken when it is due.
    """
    last = {rank: max(log.index(rank) for log in POPULARITY) for rank in range(1, HEAD + 1)}
    ranks = [1]
    pool = [log[0] for log in POPULARITY]
    for position in range(1, HEAD):
        pool += [log[position] for log in POPULARITY]
        pool = [rank for rank in pool if rank not in ranks]
        due = [rank for rank in sorted(last) if last[rank] <= position and rank not in ranks]
        ranks.append(due[0] if due else min(rng.choice(pool, 2).tolist()))
    return ranks
