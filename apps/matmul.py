"""Matrix product C = A B by SUMMA, resizable: ``mpiexec -n 4 python -m apps.matmul --n 1024``.

The matrices are block-cyclic over a 2-D process grid. A panel of A is broadcast along the rows of
the grid, the corresponding panel of B along its columns, and every process adds their product to
its part of C (van de Geijn and Watts, SUMMA, 1997). An iteration multiplies one panel (or several);
between two iterations the grid may change. Each process compares its part of each C with NumPy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import reshape
from apps.common import ProcessGrid, add_topology, conclude
from reshape.app import Application
from reshape.data.arrays import Array

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
TOLERANCE = 1e-12  # relative to the largest element


def matrix(wave: np.ufunc, rows: Integers, cols: Integers, seed: int) -> Floats:
    """Elements of A (`wave` np.cos) or B (np.sin) in these rows and columns."""
    return np.asarray(wave(seed + np.outer(rows + 1, cols + 2)))


def broadcast(comm: MPI.Comm, own: Floats, root: int, shape: tuple[int, int]) -> Floats:
    """Collective over comm. The matrix of `root`, which has this shape, on all processes."""
    panel = np.ascontiguousarray(own) if comm.rank == root else np.empty(shape)
    comm.Bcast(panel, root)
    return panel


def add_panel(grid: ProcessGrid, a: Array, b: Array, c: Array, panel: int, block: int) -> None:
    """Collective over the grid. Add a block column of A times the same block row of B to C."""
    lo, hi = panel * block, min((panel + 1) * block, a.shape[0])
    rows, cols = (slice(*np.searchsorted(own, (lo, hi))) for own in (grid.rows, grid.cols))
    left = broadcast(grid.row, a.local[:, cols], grid.col_owner(lo), (len(grid.rows), hi - lo))
    right = broadcast(grid.column, b.local[rows], grid.row_owner(lo), (hi - lo, len(grid.cols)))
    c.local[:] += left @ right


def error_of(comm: MPI.Intracomm, c: Array, seed: int) -> float:
    """Collective over comm. Largest deviation of C from NumPy's product, relative to max |C|."""
    rows, cols = c.layout.global_indices(comm.rank)
    inner = np.arange(c.shape[0])
    expected = matrix(np.cos, rows, inner, seed) @ matrix(np.sin, inner, cols, seed)
    worst = np.array([np.abs(x).max(initial=0) for x in (c.local - expected, expected)])
    worst = np.nan_to_num(worst, nan=np.inf)  # MPI.MAX may lose a NaN
    comm.Allreduce(MPI.IN_PLACE, worst, MPI.MAX)
    return float(worst[0] / worst[1])


def solve(app: Application, options: argparse.Namespace) -> bool:
    """Collective over app.comm. Compute and verify all products; rank 0 prints the result."""
    n, block = options.n, options.block
    a, b, c = (app.block_cyclic(name, (n, n), (block, block)) for name in "ABC")
    app.state["error"] = 0.0
    panels = -(-n // block)
    steps = -(-panels // options.panels_per_iteration)

    @app.each_size
    def process_grid(comm: MPI.Intracomm) -> Iterator[ProcessGrid]:
        yield ProcessGrid(comm, c)

    for iteration in app.iterations(steps * options.repeat):
        seed, step = divmod(iteration, steps)
        grid = process_grid()
        if step == 0:
            a.local[:] = matrix(np.cos, grid.rows, grid.cols, seed)
            b.local[:] = matrix(np.sin, grid.rows, grid.cols, seed)
            c.local[:] = 0
        first = step * options.panels_per_iteration
        for panel in range(first, min(first + options.panels_per_iteration, panels)):
            add_panel(grid, a, b, c, panel, block)
        if step == steps - 1:
            app.state["error"] = max(app.state["error"], error_of(app.comm, c, seed))
    error = app.state["error"]
    verified = bool(error <= TOLERANCE)
    text = (
        f"matmul: n={n} block={block} repeat={options.repeat} processors={app.comm.size} "
        f"max error {error:.1e}"
    )
    return conclude(app, text, verified, max_error=error)


def main() -> int:
    """Run the program; the exit code is 0 if the result is verified."""
    parser = argparse.ArgumentParser(prog="python -m apps.matmul", description=__doc__)
    parser.add_argument("--n", type=int, default=1024, help="rows and columns (1024)")
    parser.add_argument("--block", type=int, default=64, help="block size (64)")
    parser.add_argument("--panels-per-iteration", type=int, default=1, help="panels (1)")
    parser.add_argument("--repeat", type=int, default=1, help="products to compute (1)")
    add_topology(parser)
    options = parser.parse_args()
    if min(options.n, options.block, options.panels_per_iteration, options.repeat) < 1:
        parser.error("--n, --block, --panels-per-iteration and --repeat must be >= 1")
    with reshape.application(topology=options.topology) as app:
        verified = solve(app, options)
    return 0 if verified else 1


if __name__ == "__main__":
    sys.exit(main())
