"""Workload of the demo: rigid and resizable MPI programs with random arrivals, fixed by a seed.

If there are more virtual processors than cores, programs that compute cannot gain from more
processes. The computing applications are therefore small; they show that resizing works. Most jobs
are synthetic: they sleep according to a speedup model, and the comparison of times relies on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from reshape.topology import Topology

JOBS = 12
KINDS = ("synthetic", "rigid", "LU", "Jacobi")
#: Kinds that sleep according to a model and do not compute; every workload contains some.
SYNTHETIC = frozenset({"synthetic", "rigid"})
FEWEST_PROCESSORS = 4
#: Mean seconds between two submissions. Sizes grow with the machine, so the load depends on this
#: alone: jobs come somewhat faster than the machine can run them, and most request half of it or
#: more. Static scheduling makes them wait, although processors are idle.
GAP_S = 2.5
#: Shape of the gamma distribution of the gaps; 1 means Poisson arrivals.
GAP_SHAPE = 6.0
#: Speedup model of the synthetic jobs that are resizable.
SPEEDUP = "amdahl:serial=0.03"


class DemoJob(NamedTuple):
    """A job of the workload.

    Parameters
    ----------
    at_s : time of submission, in seconds from the start of the run.
    kind : one of `KINDS`.
    processors : requested size.
    min_processors, max_processors : smallest and largest size; None for a rigid job.
    walltime_s : walltime, about twice the run time on an idle machine without a resize.
    """

    at_s: float
    kind: str
    argv: list[str]
    processors: int
    min_processors: int | None
    max_processors: int | None
    topology: Topology | None
    walltime_s: float

    @property
    def static(self) -> DemoJob:
        """The same job if it keeps the size that it requests."""
        return self._replace(min_processors=None, max_processors=None, topology=None)


Make = Callable[[np.random.Generator, float, int], DemoJob]


def workload(
    processors: int, seed: int, jobs: int = JOBS, *, computing: bool = True
) -> list[DemoJob]:
    """Draw a workload; equal arguments give equal workloads.

    Parameters
    ----------
    processors : number of processors of the machine, >= `FEWEST_PROCESSORS`; sizes are
        proportional to it.
    seed : seed of the numpy Generator.
    jobs : number of jobs.
    computing : whether to include jobs that compute. Without them all run times follow models,
        so that the simulator can predict them.
    """
    rng = np.random.default_rng(seed)
    gaps = rng.gamma(GAP_SHAPE, GAP_S / GAP_SHAPE, jobs)
    gaps[0] = 0.0
    makers = [make for make in _CYCLE if computing or make not in _COMPUTING]
    kinds = [makers[i % len(makers)] for i in range(jobs)]
    rng.shuffle(kinds)
    # The first job starts on an idle machine; a long one has others behind it.
    first = kinds.index(_long)
    kinds[0], kinds[first] = kinds[first], kinds[0]
    arrivals = np.cumsum(gaps).round(2).tolist()
    return [make(rng, at, processors) for make, at in zip(kinds, arrivals, strict=True)]


def _long(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    return _synthetic(rng, at_s, processors, 3 * processors // 4, int(rng.integers(28, 35)))


def _short(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    return _synthetic(rng, at_s, processors, processors // 2, int(rng.integers(6, 11)))


def _synthetic(
    rng: np.random.Generator, at_s: float, processors: int, request: int, iterations: int
) -> DemoJob:
    seconds = _iteration_s(rng)
    return DemoJob(
        at_s,
        "synthetic",
        _program(
            "synthetic",
            iterations=iterations,
            seconds=seconds,
            start_size=request,
            speedup=SPEEDUP,
            mib=4,
        ),
        request,
        _least(processors),
        processors,
        Topology("arbitrary"),
        2 * iterations * seconds + 10,
    )


def _rigid(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    iterations, seconds = int(rng.integers(8, 17)), _iteration_s(rng)
    return DemoJob(
        at_s,
        "rigid",
        _program("synthetic", iterations=iterations, seconds=seconds, mib=4),
        processors // int(rng.choice([2, 4])),
        None,
        None,
        None,
        2 * iterations * seconds + 10,
    )


def _iteration_s(rng: np.random.Generator) -> float:
    """Draw the seconds of one iteration on the requested size."""
    return round(float(rng.uniform(0.4, 0.6)), 2)


def _least(processors: int) -> int:
    """Smallest size of the resizable jobs on a machine of so many processors."""
    return max(1, processors // 8)


def _lu(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    return DemoJob(
        at_s,
        "LU",
        _program("lu", n=int(rng.choice([384, 512])), block=32, repeat=12),
        max(1, processors // 4),
        _least(processors),
        processors // 2,
        Topology("nearly-square"),
        60.0,
    )


def _jacobi(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    return DemoJob(
        at_s,
        "Jacobi",
        _program("jacobi", n=int(rng.choice([384, 512])), iterations=100, sweeps=5),
        1 << (max(1, processors // 4).bit_length() - 1),
        _least(processors),
        processors // 2,
        Topology("power-of-2"),
        60.0,
    )


def _program(name: str, **options: float | str) -> list[str]:
    words = [
        word
        for key, value in options.items()
        for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    return ["python", "-m", f"apps.{name}", *words]


#: Used in turn, so that every workload contains jobs of all kinds.
_CYCLE: tuple[Make, ...] = (_long, _lu, _short, _rigid, _short, _jacobi, _short)
_COMPUTING = (_lu, _jacobi)
