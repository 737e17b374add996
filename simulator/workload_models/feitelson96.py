"""Feitelson's workload model of 1996: discrete sizes, run times by size, repetitions.

D. G. Feitelson, "Packing schemes for gang scheduling" (JSSPP 1996), and the page of the model at
the Parallel Workloads Archive (``m_feitelson96``). The page says: six logs; a harmonic distribution
of sizes of order 1.5, "hand-tailored to further emphasize small sizes and powers of two"; run times
with a coefficient of variation above 1 that grow weakly with the size; repeated executions of the
same jobs. Its other numbers are in a program of which we found no public copy, so the
following are our choices, and parameters:

- the tailoring: a factor on powers of two that grows with the size, chosen after three of the six
  logs (NASA iPSC, SDSC Paragon, CTC SP2: 83 to 100 % of the jobs are of such sizes, and the large
  ones are far more frequent than the harmonic law has them);
- the run times: an exponential of mean 1 with probability 0.95 - 0.2 n/N, else one of mean 7, for
  size n of N: coefficients of variation from 1.7 to 1.8, means from 1.3 to 2.5. One unit of time is
  `unit_s`;
- the repetitions: harmonic of order 2.5.
"""

from __future__ import annotations

import msgspec
import numpy as np

from simulator.workload_models.drawn import DrawnJobs, Floats


class Feitelson96(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model.

    Parameters
    ----------
    processors : of the machine; the largest size.
    order : of the harmonic distribution of sizes.
    power_of_2, rise : the probability of a size n that is a power of two is multiplied by
        power_of_2 * n ** rise.
    short, long : means of the two exponentials, in units.
    p0, slope : probability of the first is p0 - slope * size / processors.
    unit_s : length of a unit, seconds.
    repeat_order : of the harmonic distribution of repetitions; 0: no job repeats.
    most_repeats : largest number of repetitions.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    processors: int = 128
    order: float = 1.5
    power_of_2: float = 2.0
    rise: float = 1.0
    short: float = 1.0
    long: float = 7.0
    p0: float = 0.95
    slope: float = 0.2
    unit_s: float = 600.0
    repeat_order: float = 2.5
    most_repeats: int = 1000

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("processors", "most_repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        for name in ("power_of_2", "short", "long", "unit_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)}")
        if not 0 <= self.p0 - self.slope <= 1 or not 0 <= self.p0 <= 1:
            raise ValueError(
                f"p0 and p0 - slope must be >= 0 and <= 1, got {self.p0}, {self.slope}"
            )
        if self.repeat_order < 0:
            raise ValueError(f"repeat_order must be >= 0, got {self.repeat_order}")

    def tailoring(self) -> Floats:
        """Factors on the harmonic probabilities of the sizes 1, 2, ...

        Returns
        -------
        (processors,) float64
        """
        sizes = np.arange(1, self.processors + 1)
        is_power = sizes & (sizes - 1) == 0
        return np.where(is_power, self.power_of_2 * sizes.astype(np.float64) ** self.rise, 1.0)

    def size_probabilities(self) -> Floats:
        """Probabilities of the sizes 1, 2, ..., (processors,) float64."""
        weights: Floats = self.tailoring() / np.arange(1, self.processors + 1) ** self.order
        return np.asarray(weights / weights.sum())

    def short_probability(self, size: Floats) -> Floats:
        """Probability of the first exponential, for each size."""
        return self.p0 - self.slope * size / self.processors

    def repeat_probabilities(self) -> Floats:
        """Probabilities of 1, 2, ... executions of a job."""
        if self.repeat_order == 0:
            return np.ones(1)
        weights: Floats = np.arange(1.0, self.most_repeats + 1) ** -self.repeat_order
        return np.asarray(weights / weights.sum())

    def generate(self, jobs: int, rng: np.random.Generator) -> DrawnJobs:
        """Draw this many jobs, repetitions one behind the other; no times of submission."""
        sizes = rng.choice(self.processors, jobs, p=self.size_probabilities()) + 1
        repeats = rng.choice(len(p := self.repeat_probabilities()), jobs, p=p) + 1
        first = rng.random(jobs) < self.short_probability(sizes.astype(np.float64))
        means = np.where(first, self.short, self.long) * self.unit_s
        run = rng.exponential(means)
        which = np.repeat(np.arange(jobs), repeats)[:jobs]
        return DrawnJobs(
            processors=sizes[which].astype(np.int64),
            run=run[which],
            executable=which.astype(np.int64) + 1,
        )
