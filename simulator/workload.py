"""Workloads: what is submitted when, and how long it computes."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.speedup import Prio, Speedup
from reshape.topology import Topology
from scheduler.core.events import JobSpec

#: Smallest values of the generator's parameters; its large jobs take 136 processors.
_LEAST = {"jobs": 0, "processors": 136, "mean_arrival_s": 0, "iterations": 1, "expand_step": 0}


class SimJob(msgspec.Struct, frozen=True):
    """A job as the simulator runs it.

    Parameters
    ----------
    at : time of submission, seconds.
    spec : what the user asks for.
    iteration_s : time of an iteration on the starting size, seconds.
    iterations : how many; between any two stands a resize point.
    speedup : how the time depends on the size; None: it does not.
    data_bytes : data that moves at a resize.

    Raises
    ------
    ValueError : a negative time, or no iteration.
    """

    at: float
    spec: JobSpec
    iteration_s: float
    iterations: int = 1
    speedup: Speedup | None = None
    data_bytes: int = 0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not self.iteration_s >= 0:
            raise ValueError(f"iteration_s must be >= 0, got {self.iteration_s}")
        if self.iterations < 1:
            raise ValueError(f"iterations must be >= 1, got {self.iterations}")

    def time_s(self, size: int) -> float:
        """Time of an iteration on so many processors, seconds."""
        if self.speedup is None or size == self.spec.processors:
            return self.iteration_s
        return self.iteration_s / self.speedup.factor(self.spec.processors, size)


class PrioWorkload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Generator of the workload of PRIO section 4.

    120 jobs; a third each small, medium and large (35, 81, 136 processors, power-of-2 jobs 32, 64,
    128; 8, 20, 32 s an iteration; walltimes 156, 240, 324 s); 60 % arbitrary, 30 % nearly square,
    10 % power of 2, in exact shares and random order; Poisson arrivals; 7 iterations.

    Parameters
    ----------
    jobs, processors : how many jobs; processors of the machine, the largest size of any job.
    resizable : share of resizable jobs (experiment 4.3 varies it).
    mean_arrival_s : mean time between two submissions.
    iterations : iterations of each job.
    speedup : speedup model of all jobs.
    expand_step : what an arbitrary job adds in an expansion, as a share of its starting size. The
        paper does not say; this is ours.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    jobs: int = 120
    processors: int = 400
    resizable: float = 1.0
    mean_arrival_s: float = 32.0
    iterations: int = 7
    speedup: Prio = Prio()
    expand_step: float = 0.25

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 <= self.resizable <= 1:
            raise ValueError(f"resizable must be >= 0 and <= 1, got {self.resizable}")
        for name, least in _LEAST.items():
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} must be >= {least}, got {getattr(self, name)}")

    def generate(self, rng: np.random.Generator) -> list[SimJob]:
        """Draw a workload; the same generator state gives the same jobs."""
        classes = _shares(self.jobs, (1, 1, 1), rng)
        kinds = _shares(self.jobs, (6, 3, 1), rng)
        resizable = _shares(self.jobs, (self.resizable, 1 - self.resizable), rng) == 0
        arrivals = np.cumsum(rng.exponential(self.mean_arrival_s, self.jobs))
        drawn = zip(arrivals.tolist(), classes, kinds, resizable, strict=True)
        return [self._job(at, int(c), int(k), bool(grows)) for at, c, k, grows in drawn]

    def _job(self, at: float, job_class: int, kind: int, resizable: bool) -> SimJob:
        processors = ((35, 81, 136), (32, 64, 128))[kind == 2][job_class]
        step = max(1, round(self.expand_step * processors))
        topologies = Topology(step=step), Topology("nearly-square"), Topology("power-of-2")
        spec = JobSpec(
            processors,
            (156.0, 240.0, 324.0)[job_class],
            self.processors if resizable else None,
            topologies[kind],
            name=("small", "medium", "large")[job_class],
        )
        iteration_s = (8.0, 20.0, 32.0)[job_class]
        return SimJob(at, spec, iteration_s, self.iterations, self.speedup)


def _shares(count: int, weights: tuple[float, ...], rng: np.random.Generator) -> NDArray[np.int64]:
    """Each index as often as its share of the count says, in random order.

    Returns
    -------
    (count,) int64
    """
    bounds = np.round(np.cumsum(weights) / sum(weights) * count).astype(np.int64)
    return rng.permutation(np.searchsorted(bounds, np.arange(count), side="right"))
