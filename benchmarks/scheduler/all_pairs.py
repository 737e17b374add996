"""Bodies that attract one another: a resizable program that computes, for `gain.py`.

    mpiexec -n 2 python benchmarks/scheduler/all_pairs.py --bodies 1000 --iterations 10

Each rank computes the forces on its part of the bodies by all of them, with one thread. At the end
rank 0 computes some of them again. With ``--rate`` a rank sleeps after it has computed, as if its
processor computed this many pairs a second.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import reshape

SOFTENING, STEP_S, CHUNK, CHECKED = 1e-2, 1e-4, 64, 5


def forces(of: NDArray[np.float64], by: NDArray[np.float64]) -> NDArray[np.float64]:
    """Forces on bodies at positions `of` (m, 3) by bodies at positions `by` (n, 3): (m, 3)."""
    result = np.empty_like(of)
    for first in range(0, len(of), CHUNK):
        apart = by[np.newaxis] - of[first : first + CHUNK, np.newaxis]
        squares = (apart**2).sum(axis=2) + SOFTENING
        result[first : first + CHUNK] = (apart / squares[:, :, np.newaxis] ** 1.5).sum(axis=1)
    return result


def gathered(
    part: NDArray[np.float64], n: int, comm: MPI.Comm, until: float | None
) -> NDArray[np.float64]:
    """Collective over comm. Return the forces on all n bodies, (n, 3), from those of each rank.

    With `until`, a time of `time.perf_counter`, a rank sleeps until then and while it waits for
    others: inside MPI it would occupy the core that computes for them.
    """
    if until is None:
        return np.concatenate(comm.allgather(part))
    time.sleep(max(0.0, until - time.perf_counter()))
    found, size = np.empty((n, 3)), comm.size
    counts = [3 * ((rank + 1) * n // size - rank * n // size) for rank in range(size)]
    gathering = comm.Iallgatherv(part, [found, counts])
    while not gathering.Test():
        time.sleep(0.0005)
    return found


def main() -> int:
    """Run the program; the exit code is 0 if the checked forces are right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bodies", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--rate", type=float)
    options = parser.parse_args()
    n = options.bodies
    start = np.random.default_rng(0).standard_normal((n, 3))
    with reshape.application() as app:
        positions = app.replicated("positions", start)
        for _ in app.iterations(options.iterations):
            rank, size = app.comm.rank, app.comm.size
            before = positions.local.copy()
            own = before[rank * n // size : (rank + 1) * n // size]
            began = time.perf_counter()
            part = forces(own, before)
            until = began + len(own) * n / options.rate if options.rate else None
            found = gathered(part, n, app.comm, until)
            positions.local[:] = before + STEP_S * found
        some = np.linspace(0, n - 1, CHECKED, dtype=int)
        verified = bool(np.allclose(forces(before[some], before), found[some]))
        app.report(verified=verified)
    return 0 if verified else 1


if __name__ == "__main__":
    sys.exit(main())
