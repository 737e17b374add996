"""The demo's workload: real MPI programs, some rigid, that come over time; one seed, one workload.

With more virtual processors than cores a program that computes cannot gain from more processes. So
the computing applications are small, and show that resizing is real and right. The synthetic ones
wait, as their speedup model says; they carry the comparison of times, and there are more of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from reshape.topology import Topology

JOBS = 14
FEWEST_PROCESSORS = 4
#: Mean seconds between two submissions ; the larger the machine, the larger the jobs.
GAP_S = 2.3
#: A machine without work for long shows nothing.
LONGEST_GAP_S = 5.0


class DemoJob(NamedTuple):
    """A job of the workload.

    Parameters
    ----------
    at_s : seconds from the start of the run to its submission.
    kind : what the legend calls it.
    processors, max_processors : `max_processors` is None for a rigid job.
    walltime_s : estimate, about twice what it takes on an idle machine without a resize.
    """

    at_s: float
    kind: str
    argv: list[str]
    processors: int
    max_processors: int | None
    topology: Topology | None
    walltime_s: float


Make = Callable[[np.random.Generator, float, int], DemoJob]


def workload(processors: int, seed: int, jobs: int = JOBS) -> list[DemoJob]:
    """Draw a workload; the same for the same arguments.

    Parameters
    ----------
    processors : of the machine, >= `FEWEST_PROCESSORS`; sizes grow with it.
    seed : of the numpy Generator.
    """
    rng = np.random.default_rng(seed)
    gaps = np.minimum(rng.exponential(GAP_S, jobs), LONGEST_GAP_S)
    gaps[0] = 0.0
    kinds = [_KINDS[i % len(_KINDS)] for i in range(jobs)]
    rng.shuffle(kinds)
    arrivals = np.cumsum(gaps).round(2).tolist()
    return [make(rng, at, processors) for make, at in zip(kinds, arrivals, strict=True)]


def _synthetic(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    start = max(1, processors // 4)
    iterations, seconds = int(rng.integers(8, 13)), float(rng.uniform(1.0, 1.5))
    return DemoJob(
        at_s,
        "synthetic",
        _program("synthetic", iterations=iterations, seconds=round(seconds, 2), alpha=0.8, mib=4),
        start,
        processors,
        Topology("arbitrary", step=max(1, processors // 8) * 2),
        2 * iterations * seconds + 10,
    )


def _rigid(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    iterations, seconds = int(rng.integers(6, 11)), float(rng.uniform(0.8, 1.2))
    return DemoJob(
        at_s,
        "rigid",
        _program("synthetic", iterations=iterations, seconds=round(seconds, 2), mib=4),
        int(rng.choice([max(1, processors // 4), processors // 2])),
        None,
        None,
        2 * iterations * seconds + 10,
    )


def _lu(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    return DemoJob(
        at_s,
        "LU",
        _program("lu", n=int(rng.choice([384, 512])), block=32, repeat=4),
        max(1, processors // 4),
        processors,
        Topology("nearly-square"),
        60.0,
    )


def _jacobi(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    return DemoJob(
        at_s,
        "Jacobi",
        _program("jacobi", n=int(rng.choice([384, 512])), iterations=60, sweeps=5),
        1 << (max(1, processors // 4).bit_length() - 1),
        processors // 2,
        Topology("power-of-2"),
        60.0,
    )


def _program(name: str, **options: float) -> list[str]:
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    return ["python", "-m", f"apps.{name}", *words]


#: Dealt out in turn, so that every workload has some of each.
_KINDS: tuple[Make, ...] = (_synthetic, _lu, _synthetic, _rigid, _synthetic, _jacobi, _synthetic)
