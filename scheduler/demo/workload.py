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

JOBS = 12
KINDS = ("synthetic", "rigid", "LU", "Jacobi")
#: Those that wait as their model says and do not compute; every workload has some.
SYNTHETIC = frozenset({"synthetic", "rigid"})
FEWEST_PROCESSORS = 4
#: Mean seconds between two submissions. Sizes grow with the machine, so this alone sets the load:
#: static scheduling leaves about half of the processors idle, though jobs wait now and then.
GAP_S = 3.5
#: Shape of the gamma distribution of the gaps; 1 would be Poisson arrivals, larger is steadier.
STEADY = 6.0


class DemoJob(NamedTuple):
    """A job of the workload.

    Parameters
    ----------
    at_s : seconds from the start of the run to its submission.
    kind : one of `KINDS`.
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


def workload(
    processors: int, seed: int, jobs: int = JOBS, *, computing: bool = True
) -> list[DemoJob]:
    """Draw a workload; the same for the same arguments.

    Parameters
    ----------
    processors : of the machine, >= `FEWEST_PROCESSORS`; sizes grow with it.
    seed : of the numpy Generator.
    computing : with jobs that compute; without them all jobs wait as their models say, and the
        simulator can tell how long they take.
    """
    rng = np.random.default_rng(seed)
    gaps = rng.gamma(STEADY, GAP_S / STEADY, jobs)
    gaps[0] = 0.0
    deal = [make for make in _DEAL if computing or make not in _COMPUTING]
    kinds = [deal[i % len(deal)] for i in range(jobs)]
    rng.shuffle(kinds)
    # The first job meets an empty machine: let it be one that computes, and be seen to grow.
    first = next((i for i, make in enumerate(kinds) if make in _COMPUTING), 0)
    kinds[0], kinds[first] = kinds[first], kinds[0]
    arrivals = np.cumsum(gaps).round(2).tolist()
    return [make(rng, at, processors) for make, at in zip(kinds, arrivals, strict=True)]


def _synthetic(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    iterations, seconds = _iterations(rng)
    return DemoJob(
        at_s,
        "synthetic",
        _program("synthetic", iterations=iterations, seconds=seconds, alpha=0.9, mib=4),
        max(1, processors // 8),
        processors,
        Topology("arbitrary", step=max(1, processors // 4)),
        2 * iterations * seconds + 10,
    )


def _rigid(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    iterations, seconds = _iterations(rng)
    return DemoJob(
        at_s,
        "rigid",
        _program("synthetic", iterations=iterations, seconds=seconds, mib=4),
        processors // int(rng.choice([2, 4])),
        None,
        None,
        2 * iterations * seconds + 10,
    )


def _iterations(rng: np.random.Generator) -> tuple[int, float]:
    """Draw how many iterations a job has and how long each takes on its starting size."""
    return int(rng.integers(16, 24)), round(float(rng.uniform(0.5, 0.8)), 2)


def _lu(rng: np.random.Generator, at_s: float, processors: int) -> DemoJob:
    return DemoJob(
        at_s,
        "LU",
        _program("lu", n=int(rng.choice([384, 512])), block=32, repeat=12),
        max(1, processors // 4),
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
        processors // 2,
        Topology("power-of-2"),
        60.0,
    )


def _program(name: str, **options: float) -> list[str]:
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    return ["python", "-m", f"apps.{name}", *words]


#: Dealt out in turn, so that every workload has some of each.
_DEAL: tuple[Make, ...] = (_synthetic, _lu, _synthetic, _rigid, _synthetic, _jacobi, _synthetic)
_COMPUTING = (_lu, _jacobi)
