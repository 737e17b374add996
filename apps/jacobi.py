"""2-D heat conduction by Jacobi sweeps, resizable: ``mpiexec -n 2 python -m apps.jacobi --n 512``.

The plate is cut into block rows. Each sweep exchanges one row with either neighbour and replaces
every inner point by the mean of its four neighbours. At the end rank 0 repeats all sweeps serially.
"""

from __future__ import annotations

import argparse
import sys
from typing import TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import reshape
from apps.common import add_topology, conclude
from reshape.app import Application
from reshape.data.arrays import Array

Floats: TypeAlias = NDArray[np.float64]
TOLERANCE = 1e-12  # temperatures are within [-1, 1]


def initial(rows: NDArray[np.int64], n: int) -> Floats:
    """Initial temperatures in these rows of the n x n plate, (len(rows), n)."""
    return np.outer(np.cos(3.0 * rows / n), np.sin(1.0 + 5.0 * np.arange(n) / n))


def relax(padded: Floats) -> Floats:
    """Mean of the four neighbours of each inner point of (m + 2, n): (m, n - 2)."""
    vertical = padded[:-2, 1:-1] + padded[2:, 1:-1]
    return 0.25 * (vertical + (padded[1:-1, :-2] + padded[1:-1, 2:]))


def sweep(comm: MPI.Intracomm, u: Array) -> None:
    """Collective over comm. One Jacobi sweep; the temperatures of the boundary are fixed."""
    n, local = u.shape[0], u.local
    if not local.size:  # with more ranks than rows, the last ranks have no rows
        return
    above, below = (MPI.PROC_NULL if r is None else r for r in u.neighbours(comm.rank))
    padded = np.empty((len(local) + 2, n))
    padded[1:-1] = local
    comm.Sendrecv(local[0], above, 0, padded[-1], below, 0)
    comm.Sendrecv(local[-1], below, 1, padded[0], above, 1)
    first, last = int(above == MPI.PROC_NULL), len(local) - int(below == MPI.PROC_NULL)
    if first < last:
        local[first:last, 1:-1] = relax(padded[first : last + 2])


def error_of(comm: MPI.Intracomm, u: Array, sweeps: int) -> float:
    """Collective over comm. Largest deviation from the same sweeps done serially by rank 0."""
    whole = u.gather()
    error = 0.0
    if whole is not None:
        n = u.shape[0]
        serial = initial(np.arange(n), n)
        for _ in range(sweeps):
            serial[1:-1, 1:-1] = relax(serial)
        error = float(np.abs(whole - serial).max())
    return float(comm.bcast(error, root=0))


def solve(app: Application, n: int, iterations: int, sweeps: int) -> bool:
    """Collective over app.comm. Sweep and verify; rank 0 prints the result."""
    u = app.rows("u", shape=(n, n))
    if app.is_fresh_start:
        u.local[:] = initial(u.layout.global_indices(app.comm.rank)[0], n)
    for _ in app.iterations(iterations):
        for _ in range(sweeps):
            sweep(app.comm, u)
    error = error_of(app.comm, u, iterations * sweeps)
    verified = error <= TOLERANCE
    text = f"jacobi: n={n} iterations={iterations} processors={app.comm.size} max error {error:.1e}"
    return conclude(app, text, verified, max_error=error)


def main() -> int:
    """Run the program; the exit code is 0 if the result is verified."""
    parser = argparse.ArgumentParser(prog="python -m apps.jacobi", description=__doc__)
    parser.add_argument("--n", type=int, default=512, help="points along a side (512)")
    parser.add_argument("--iterations", type=int, default=40, help="iterations (40)")
    parser.add_argument("--sweeps", type=int, default=1, help="sweeps in an iteration (1)")
    add_topology(parser)
    parser.add_argument(
        "--checkpoint",
        metavar="EVERY",
        help="iterations between checkpoints, or a time (10min)",
    )
    options = parser.parse_args()
    if options.n < 3 or options.iterations < 0 or options.sweeps < 1:
        parser.error("--n must be >= 3, --iterations >= 0, --sweeps >= 1")
    with reshape.application(topology=options.topology) as app:
        if options.checkpoint is not None:
            every = options.checkpoint
            app.checkpoint(every=int(every) if every.isdecimal() else every)
        verified = solve(app, options.n, options.iterations, options.sweeps)
    return 0 if verified else 1


if __name__ == "__main__":
    sys.exit(main())
