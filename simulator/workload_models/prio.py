"""The workload of PRIO section 4: resizable jobs of three sizes and three topologies."""

from __future__ import annotations

from math import inf

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.speedup import Prio
from reshape.topology import Topology
from scheduler.model.events import JobSpec
from scheduler.policies.queue_orders.aging import CLASSES
from simulator.engine.jobs import SimJob

#: Smallest values of the generator's parameters; its large jobs take 136 processors.
_LEAST = {
    "jobs": 0,
    "processors": 136,
    "mean_arrival_s": 0,
    "iterations": 1,
    "expand_step": 0,
    "expand_most": 1,
}


class PrioWorkload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Generator of the workload of PRIO section 4.

    120 jobs; a third each small, medium and large (35, 81, 136 processors, power-of-2 jobs 32, 64,
    128; 8, 20, 32 s an iteration; walltimes 156, 240, 324 s); 60 % arbitrary, 30 % nearly square,
    10 % power of 2 of each size, in exact shares and random order; Poisson arrivals; 7 iterations.
    The same seed gives the same jobs in the same order at the same times, whichever of them are
    resizable or of which class (experiments 4.3 and 4.4).

    Parameters
    ----------
    jobs, processors : how many jobs; processors of the machine.
    resizable : share of resizable jobs, the same of each size and topology (4.3 varies it).
    platinum : share of jobs of the user "platinum", likewise; the others' user is "gold".
    user_priorities : whether the user's class is the job's user-assigned priority (4.4).
    mean_arrival_s : mean time between two submissions.
    iterations : iterations of each job.
    speedup : speedup model of all jobs.
    expand_step : processors that an arbitrary job adds in an expansion, as a share of its starting
        size. The paper does not give it; the default is ours.
    expand_most : largest size of a job, in starting sizes, if that is less than the machine has.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    jobs: int = 120
    processors: int = 400
    resizable: float = 1.0
    platinum: float = 0.5
    user_priorities: bool = False
    mean_arrival_s: float = 32.0
    iterations: int = 7
    speedup: Prio = Prio()
    expand_step: float = 0.25
    expand_most: float = inf

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("resizable", "platinum"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be >= 0 and <= 1, got {getattr(self, name)}")
        for name, least in _LEAST.items():
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} must be >= {least}, got {getattr(self, name)}")
        for name in ("mean_arrival_s", "expand_step"):
            if getattr(self, name) == inf:
                raise ValueError(f"{name} must be finite")

    def generate(self, rng: np.random.Generator) -> list[SimJob]:
        """Draw a workload; the same generator state gives the same jobs."""
        types = _types(self.jobs, rng)
        arrivals = np.cumsum(rng.exponential(self.mean_arrival_s, self.jobs))
        resizable = _evenly(types, self.resizable, rng)
        platinum = _evenly(types, self.platinum, rng)
        drawn = zip(arrivals.tolist(), types.tolist(), resizable, platinum, strict=True)
        return [self._job(at, t // 3, t % 3, bool(r), bool(p)) for at, t, r, p in drawn]

    def _job(self, at: float, job_class: int, kind: int, resizable: bool, platinum: bool) -> SimJob:
        processors = ((35, 81, 136), (32, 64, 128))[kind == 2][job_class]
        step = max(1, round(self.expand_step * processors))
        most = int(min(self.processors, self.expand_most * processors))
        topologies = Topology(step=step), Topology("nearly-square"), Topology("power-of-2")
        user = "platinum" if platinum else "gold"
        spec = JobSpec(
            processors,
            (156.0, 240.0, 324.0)[job_class],
            most if resizable else None,
            topologies[kind],
            name=("small", "medium", "large")[job_class],
            user=user,
            priority=CLASSES[user] if self.user_priorities else 0.0,
        )
        run_s = self.iterations * (8.0, 20.0, 32.0)[job_class]
        return SimJob(at, spec, run_s, self.iterations, self.speedup)


#: Cumulative shares of the types: small, medium and large, of each 60, 30 and 10 % by topology.
_BOUNDS = np.cumsum(np.outer([1, 1, 1], [6, 3, 1])) / 30


def _types(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Type of each job, 3 * size + topology, each as often as its share says, in random order.

    Returns
    -------
    (count,) int64
    """
    bounds = np.round(_BOUNDS * count).astype(np.int64)
    return rng.permutation(np.searchsorted(bounds, np.arange(count), side="right"))


def _evenly(types: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose this share of the jobs at random, and of each type (to within one job).

    Returns
    -------
    (jobs,) bool
    """
    order = np.lexsort((rng.random(len(types)), types))
    counts = np.round(np.arange(len(types) + 1) * share)
    chosen = np.zeros(len(types), dtype=np.bool_)
    chosen[order] = np.diff(counts) > 0
    return chosen
