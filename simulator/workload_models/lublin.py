"""The model of Lublin and Feitelson: rigid jobs of a parallel supercomputer.

U. Lublin and D. G. Feitelson, "The workload on parallel supercomputers: modeling the
characteristics of rigid jobs", J. Parallel Distrib. Comput. 63 (11), 2003; parameters and rules are
those of the authors' program at the Parallel Workloads Archive (``m_lublin99.c``) for all jobs
together (batch and interactive), compared with it line by line.

- Size: serial with some probability, else 2 ** u for a two-stage uniform u, rounded to a whole u
  (a power of two) with another probability.
- Run time: its natural logarithm is hyper-gamma; the larger the job, the likelier the second gamma,
  that of the long run times. Above exp(12) s it is drawn again.
- Arrivals: the logarithms of the times between them are gamma (above exp(13) s drawn again), in a
  time that passes the faster the more jobs come at that hour: the hours' shares follow a gamma,
  too, in half hours from 5:30 on.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2

import msgspec
import numpy as np

from simulator.workload_models.drawn import DrawnJobs, Floats, Ints

BUCKETS = 48  # half hours of a day
BUCKET_S = 1800.0
FIRST = 11  # half hour in which the day of the model begins
LONGEST_RUN, LONGEST_PAUSE = 12.0, 13.0  # logarithms of seconds


class Lublin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model.

    Parameters
    ----------
    processors : of the machine; the largest job has as many.
    serial, power_of_2 : probabilities of one processor, and of a power of two.
    low, middle, first : the two-stage uniform: log2 of the smallest parallel size, of the size
        where the stages meet (None: 2.5 below that of the machine), probability of the first.
    a1, b1, a2, b2 : shapes and scales of the two gammas of the run time.
    pa, pb : probability of the first gamma is pa * size + pb, at least 0 and at most 1.
    a_pause, b_pause : gamma of the times between arrivals.
    a_hour, b_hour : gamma of the daily cycle, in half hours.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    processors: int = 128
    serial: float = 0.244
    power_of_2: float = 0.576
    low: float = 0.8
    middle: float | None = None
    first: float = 0.86
    a1: float = 4.2
    b1: float = 0.94
    a2: float = 312.0
    b2: float = 0.03
    pa: float = -0.0054
    pb: float = 0.78
    a_pause: float = 10.2303 * 1.0225  # rush hours to all hours
    b_pause: float = 0.4871
    a_hour: float = 8.1737
    b_hour: float = 3.9631

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.processors < 2:
            raise ValueError(f"processors must be >= 2, got {self.processors}")
        for name in ("a1", "b1", "a2", "b2", "a_pause", "b_pause", "a_hour", "b_hour"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)}")
        for name in ("serial", "power_of_2", "first"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be >= 0 and <= 1, got {getattr(self, name)}")
        if not self.low <= self.stages[1] <= self.stages[2]:
            raise ValueError(f"low must be <= {self.stages[1]:g}, got {self.low:g}")

    @property
    def stages(self) -> tuple[float, float, float]:
        """Bounds of the two uniforms, as logarithms to the base 2."""
        high = log2(self.processors)
        middle = max(self.low, high - 2.5) if self.middle is None else self.middle
        return self.low, middle, high

    def generate(self, jobs: int, rng: np.random.Generator) -> DrawnJobs:
        """Draw this many jobs."""
        processors = self.sizes(jobs, rng)
        return DrawnJobs(processors, self.run_times(processors, rng), self.arrivals(jobs, rng))

    def sizes(self, jobs: int, rng: np.random.Generator) -> Ints:
        """Processors of this many jobs, (jobs,) int64."""
        kind = rng.random(jobs)
        low, middle, high = self.stages
        first = rng.random(jobs) <= self.first
        bounds = np.where(first, low, middle), np.where(first, middle, high)
        exponent = bounds[0] + rng.random(jobs) * (bounds[1] - bounds[0])
        exponent = np.where(kind <= self.serial + self.power_of_2, np.rint(exponent), exponent)
        parallel = np.minimum(np.floor(2**exponent + 0.5), self.processors)
        return np.where(kind <= self.serial, 1, parallel).astype(np.int64)

    def first_probability(self, processors: Ints) -> Floats:
        """Probability of the first gamma of the run time, for each size."""
        return np.clip(self.pa * processors + self.pb, 0.0, 1.0)

    def run_times(self, processors: Ints, rng: np.random.Generator) -> Floats:
        """Run times of jobs of these sizes, (n,) float64, seconds."""

        def logarithm(which: Ints) -> Floats:
            first = rng.random(len(which)) <= self.first_probability(processors[which])
            shape = np.where(first, self.a1, self.a2)
            return rng.gamma(shape, np.where(first, self.b1, self.b2))

        return np.exp(_redrawn(len(processors), logarithm, LONGEST_RUN))

    def pauses(self, jobs: int, rng: np.random.Generator) -> Floats:
        """Times between arrivals if all hours were alike, (jobs,) float64, seconds."""

        def logarithm(which: Ints) -> Floats:
            return rng.gamma(self.a_pause, self.b_pause, len(which))

        return np.exp(_redrawn(jobs, logarithm, LONGEST_PAUSE))

    def hours(self) -> Floats:
        """How much more than on average arrives in each half hour from midnight on.

        Returns
        -------
        (48,) float64, of mean 1
        """
        from scipy.special import gammainc  # late: it makes commands slow to start

        buckets = np.arange(FIRST, FIRST + BUCKETS)
        upper = gammainc(self.a_hour, (buckets + 0.5) / self.b_hour)
        shares = upper - gammainc(self.a_hour, (buckets - 0.5) / self.b_hour)
        weights = np.empty(BUCKETS)
        weights[(buckets - 1) % BUCKETS] = shares
        return np.asarray(weights / weights.mean())

    def arrivals(self, jobs: int, rng: np.random.Generator) -> Floats:
        """Times of submission from midnight on, (jobs,) float64, seconds, ascending."""
        passed = np.cumsum(self.pauses(jobs, rng)) / BUCKET_S
        days, within = np.divmod(passed, BUCKETS)
        clock = np.concatenate([[0.0], np.cumsum(self.hours())])
        at = np.interp(within, clock, np.arange(BUCKETS + 1.0))
        return np.asarray((days * BUCKETS + at) * BUCKET_S)


def _redrawn(count: int, draw: Callable[[Ints], Floats], most: float) -> Floats:
    """Draw, and again what is above `most`."""
    values = draw(which := np.arange(count))
    while len(which := np.flatnonzero(values > most)):
        values[which] = draw(which)
    return values
