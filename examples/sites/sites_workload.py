"""Sites of different size, speed and price, and the workload that the demonstration sends to them.

The jobs are rigid MPI programs of a few seconds, fixed by a seed. They sleep instead of computing,
and verify their data at the end (`apps.synthetic`). All sites share the processors of one machine,
so the length of an iteration is multiplied by the CPU factor of the site; the run is then as long
as on processors of that speed.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import msgspec
import numpy as np

#: Share of the processors of the largest site, CPU factor, and cost of a processor for a second.
#: The faster a site, the smaller and the more expensive it is.
_SITES = (
    (Fraction(1), 1.5, 1.0),
    (Fraction(1, 2), 1.0, 2.0),
    (Fraction(1, 4), 0.75, 4.0),
    (Fraction(1), 2.0, 0.5),
    (Fraction(1, 2), 1.25, 1.5),
    (Fraction(1, 4), 0.8, 3.0),
)
MOST_SITES = len(_SITES)
#: Kinds of jobs and their iterations; an iteration takes about half a second on CPU factor 1.
KINDS = {"short": 6, "long": 14}
#: Mean seconds between two submissions: jobs arrive faster than the first three sites run them, so
#: that some wait.
GAP_S = 0.5
#: Walltime divided by the run time on CPU factor 1; it covers the start of MPI on a busy machine.
MARGIN = 12


class DemoSite(msgspec.Struct, frozen=True):
    """A site of the demonstration.

    Parameters
    ----------
    processors : number of virtual processors.
    cpu_factor : factor of all run times.
    cost_per_unit : cost of a processor for a second.
    """

    name: str
    processors: int
    cpu_factor: float
    cost_per_unit: float


class SiteDemoJob(NamedTuple):
    """A job of the workload.

    Parameters
    ----------
    at_s : time of submission, in seconds from the start of the run.
    kind : one of `KINDS`.
    processors : size.
    iterations : number of iterations.
    seconds : length of an iteration on CPU factor 1.
    """

    at_s: float
    kind: str
    processors: int
    iterations: int
    seconds: float

    @property
    def walltime_s(self) -> float:
        """Walltime on CPU factor 1."""
        return MARGIN * self.iterations * self.seconds

    def argv(self, cpu_factor: float) -> list[str]:
        """Program and arguments on a site with this CPU factor."""
        seconds = f"{self.seconds * cpu_factor:.4g}"
        program = ["python", "-m", "apps.synthetic", "--mib", "1"]
        return [*program, "--iterations", str(self.iterations), "--seconds", seconds]


def demo_sites(count: int, processors: int) -> list[DemoSite]:
    """Describe the first `count` sites, named A, B and so on.

    Parameters
    ----------
    count : number of sites, 1 to `MOST_SITES`.
    processors : number of processors of the largest site.
    """
    return [
        DemoSite("ABCDEF"[i], max(1, int(processors * share)), cpu_factor, cost)
        for i, (share, cpu_factor, cost) in enumerate(_SITES[:count])
    ]


def sites_workload(processors: int, seed: int, jobs: int) -> list[SiteDemoJob]:
    """Draw a workload; equal arguments give equal workloads.

    Parameters
    ----------
    processors : number of processors of the largest site; jobs request an eighth, a quarter or half
        of them.
    seed : seed of the numpy Generator.
    jobs : number of jobs.
    """
    rng = np.random.default_rng(seed)
    at_s = np.cumsum(rng.exponential(GAP_S, jobs)).round(2)
    drawn = []
    for at in (at_s - at_s[0]).tolist():
        kind = str(rng.choice(list(KINDS)))
        size = max(1, processors // int(rng.choice([8, 4, 2])))
        seconds = round(float(rng.uniform(0.4, 0.6)), 2)
        drawn.append(SiteDemoJob(round(at, 2), kind, size, KINDS[kind], seconds))
    return drawn
