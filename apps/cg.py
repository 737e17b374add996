"""Conjugate gradients on a sparse matrix, resizable: ``mpiexec -n 4 python -m apps.cg --n 64``.

Solves A x = b, where A is the 5-point Laplacian of an n x n grid or a symmetric positive definite
matrix from a MatrixMarket file. Matrix and vectors are cut into the same block rows. At the end
rank 0 solves the system directly.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy.io import mminfo, mmread
from scipy.sparse import csr_array
from scipy.sparse.linalg import spsolve

import reshape
from apps.common import add_topology, conclude
from redistribution import Cuts
from reshape.app import Application
from reshape.data.arrays import Array
from reshape.data.sparse import Csr

Floats: TypeAlias = NDArray[np.float64]
TOLERANCE = 1e-6  # of the solution, relative to its largest element


def laplacian(rows: NDArray[np.int64], n: int) -> csr_array:
    """These rows of the 5-point Laplacian on an n x n grid, (len(rows), n * n)."""
    y, x = np.divmod(rows, n)
    columns = np.stack([rows - n, rows - 1, rows, rows + 1, rows + n], axis=1)
    inside = np.stack([y > 0, x > 0, rows >= 0, x < n - 1, y < n - 1], axis=1)
    values = np.broadcast_to([-1.0, -1.0, 4.0, -1.0, -1.0], columns.shape)
    begins = np.concatenate(([0], np.cumsum(inside.sum(axis=1))))
    return csr_array((values[inside], columns[inside], begins), shape=(len(rows), n * n))


def right_hand_side(rows: NDArray[np.int64]) -> Floats:
    """These elements of b, (len(rows),)."""
    return 1.0 + np.sin(rows)


def fill(comm: MPI.Intracomm, A: Csr, options: argparse.Namespace) -> None:
    """Collective over comm. Assemble A from the file, read by rank 0, or from the Laplacian."""
    if options.matrix:
        A.assemble(mmread(options.matrix) if comm.rank == 0 else None)
    else:
        first, last = Cuts.even(A.shape, comm.size).offsets[comm.rank : comm.rank + 2]
        A.assemble(laplacian(np.arange(first, last), options.n))


def dot(comm: MPI.Intracomm, u: Floats, v: Floats) -> float:
    """Collective over comm. Inner product of two distributed vectors."""
    return float(comm.allreduce(float(u @ v)))


def step(comm: MPI.Intracomm, A: Csr, x: Array, r: Array, p: Array, rho: float) -> float:
    """Collective over comm. One step of conjugate gradients.

    Parameters
    ----------
    rho : inner product (r, r) before the step.

    Returns
    -------
    (r, r) after the step.
    """
    whole = np.empty(A.shape[1])
    comm.Allgatherv(p.local, (whole, np.diff(A.layout.offsets)))
    q = A.local @ whole
    alpha = rho / dot(comm, p.local, q)
    x.local[:] += alpha * p.local
    r.local[:] -= alpha * q
    new = dot(comm, r.local, r.local)
    p.local[:] = r.local + new / rho * p.local
    return new


def errors(comm: MPI.Intracomm, x: Array, options: argparse.Namespace) -> tuple[float, float]:
    """Collective over comm. Relative residual, and deviation from SciPy's direct solution."""
    parts = comm.gather(x.local)
    residual = error = 0.0
    if parts is not None:
        solution, rows = np.concatenate(parts), np.arange(x.shape[0])
        A: Any = mmread(options.matrix) if options.matrix else laplacian(rows, options.n)
        b, A = right_hand_side(rows), csr_array(A).tocsc()
        exact = spsolve(A, b)
        residual = float(np.linalg.norm(b - A @ solution) / np.linalg.norm(b))
        error = float(np.abs(solution - exact).max() / np.abs(exact).max())
    residual, error = comm.bcast((residual, error))
    return residual, error


def solve(app: Application, size: int, options: argparse.Namespace) -> bool:
    """Collective over app.comm. Iterate to the tolerance and verify; rank 0 prints the result."""
    A = app.csr("A", (size, size), balance="entries")
    if app.is_fresh_start:
        fill(app.comm, A, options)
    x, r, p = (app.rows(name, (size,), like=A) for name in "xrp")  # x = 0, so r = b
    if app.is_fresh_start:
        r.local[:] = p.local[:] = right_hand_side(r.layout.global_indices(app.comm.rank)[0])
        rho = dot(app.comm, r.local, r.local)
        app.state.update(rho=rho, goal=rho * options.tolerance**2, steps=0)
    for _ in app.iterations(options.iterations):
        if app.state["rho"] <= app.state["goal"]:
            break
        app.state["rho"] = step(app.comm, A, x, r, p, app.state["rho"])
        app.state["steps"] += 1
    residual, error = errors(app.comm, x, options)
    verified = residual <= 10 * options.tolerance and error <= TOLERANCE
    steps = app.state["steps"]
    text = (
        f"cg: unknowns={size} steps={steps} processors={app.comm.size} "
        f"residual {residual:.1e} max error {error:.1e}"
    )
    return conclude(app, text, verified, residual=residual, max_error=error, steps=steps)


def main() -> int:
    """Run the program; the exit code is 0 if the result is verified."""
    parser = argparse.ArgumentParser(prog="python -m apps.cg", description=__doc__)
    parser.add_argument("--n", type=int, default=64, help="points along a side (64)")
    parser.add_argument("--matrix", help="MatrixMarket file to take instead")
    parser.add_argument("--iterations", type=int, default=1000, help="at most (1000)")
    parser.add_argument("--tolerance", type=float, default=1e-10, help="of the residual (1e-10)")
    add_topology(parser)
    options = parser.parse_args()
    if options.n < 1 or options.iterations < 0:
        parser.error("--n must be >= 1, --iterations >= 0")
    size = options.n**2
    if options.matrix:
        try:
            size, columns = mminfo(options.matrix)[:2]
        except (OSError, ValueError) as error:
            parser.error(f"--matrix {options.matrix}: {error}")
        if columns != size:
            parser.error(f"--matrix {options.matrix}: is {size} x {columns}, must be square")
    with reshape.application(topology=options.topology) as app:
        verified = solve(app, size, options)
    return 0 if verified else 1


if __name__ == "__main__":
    sys.exit(main())
