"""LU factorisation with partial pivoting, resizable: ``mpiexec -n 4 python -m apps.lu --n 1024``.

The factorisation is blocked and right-looking, on a block-cyclic matrix over a 2-D process grid. As
in ScaLAPACK's pdgetrf: factor a panel of block width, apply its row swaps to the other columns,
solve for the block row, update the trailing matrix. An iteration factors one panel; between two
iterations the grid may change. After each matrix rank 0 computes the residual
||PA - LU|| / (||A|| n eps) and that of scipy.linalg.lu.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import scipy.linalg
from mpi4py import MPI
from numpy.typing import NDArray

import reshape
from apps.common import add_topology, conclude
from redistribution import BlockCyclic
from reshape.app import Application
from reshape.data.arrays import Array

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
# A backward stable factorisation has a residual of the order of 1; this is the threshold of HPL.
MAX_RESIDUAL = 16.0


class ProcessGrid:
    """Collective over comm. The process grid of an array, as seen by one process.

    Parameters
    ----------
    comm : all processes of the grid.
    array : block-cyclic array over the grid.

    Attributes
    ----------
    comm : all processes of the grid.
    row, column : the processes of this process's row and column.
    rows, cols : global indices of the local rows and columns, (m_local,) and (n_local,) int64.
    block : rows, and columns, in a block.
    """

    def __init__(self, comm: MPI.Intracomm, array: Array) -> None:
        assert isinstance(array.layout, BlockCyclic)
        p, q = array.layout.coordinates(comm.rank)
        self.comm, self.row, self.column = comm, comm.Split(p, q), comm.Split(q, p)
        self.rows, self.cols = array.layout.global_indices(comm.rank)
        self.block = array.layout.block[0]

    def row_owner(self, index: int) -> int:
        """Rank in `column` that holds a global row."""
        return index // self.block % self.column.size

    def col_owner(self, index: int) -> int:
        """Rank in `row` that holds a global column."""
        return index // self.block % self.row.size


def factor_panel(grid: ProcessGrid, panel: Floats, lo: int) -> Integers:
    """Collective over grid.column. Factor columns lo, lo + 1, ... whose local rows are `panel`.

    Returns
    -------
    (width,) int64 : the row that each of these rows was swapped with.
    """
    width = panel.shape[1]
    pivots = np.empty(width, np.int64)
    # Each process contributes its largest candidate, the index and contents of that row, and row j.
    own, all_ = np.empty(2 + 2 * width), np.empty((grid.column.size, 2 + 2 * width))
    for k, j in enumerate(range(lo, lo + width)):
        here, below = np.searchsorted(grid.rows, (j, j + 1))
        own[0] = -1.0
        if here < len(panel):
            best = here + int(np.abs(panel[here:, k]).argmax())
            own[:2] = abs(panel[best, k]), grid.rows[best]
            own[2 : 2 + width] = panel[best]
        if here < below:
            own[2 + width :] = panel[here]
        grid.column.Allgather(own, all_)
        winner = all_[all_[:, 0].argmax()]
        pivot, pivot_row = int(winner[1]), winner[2 : 2 + width]
        if grid.row_owner(pivot) == grid.column.rank:
            panel[np.searchsorted(grid.rows, pivot)] = all_[grid.row_owner(j), 2 + width :]
        panel[here:below] = pivot_row
        panel[below:, k] /= pivot_row[k]
        panel[below:, k + 1 :] -= np.outer(panel[below:, k], pivot_row[k + 1 :])
        pivots[k] = pivot
    return pivots


def swap_rows(grid: ProcessGrid, local: Floats, lo: int, pivots: Integers, panel: slice) -> None:
    """Collective over grid.column. Apply a panel's swaps to all other local columns."""
    origin: dict[int, int] = {}
    for j, pivot in enumerate(pivots.tolist(), lo):
        origin[j], origin[pivot] = origin.get(pivot, pivot), origin.get(j, j)
    touched = np.array(sorted(origin))
    source = np.searchsorted(touched, [origin[row] for row in touched.tolist()])
    own = np.flatnonzero(touched // grid.block % grid.column.size == grid.column.rank)
    others = np.delete(np.arange(local.shape[1]), panel)
    where = np.ix_(np.searchsorted(grid.rows, touched[own]), others)
    rows = np.zeros((len(touched), len(others)))
    rows[own] = local[where]
    grid.column.Allreduce(
        MPI.IN_PLACE, rows, MPI.SUM
    )  # every row is on one process, 0 on the others
    local[where] = rows[source[own]]


def eliminate(grid: ProcessGrid, local: Floats, lo: int, hi: int) -> Integers:
    """Collective over the grid. Factor columns [lo, hi) and update the trailing matrix.

    Returns
    -------
    (hi - lo,) int64 : the row that each of these rows was swapped with.
    """
    own = slice(*np.searchsorted(grid.cols, (lo, hi)))
    panel, pivots = np.empty((len(grid.rows), hi - lo)), np.empty(hi - lo, np.int64)
    root = grid.col_owner(lo)
    if root == grid.row.rank:
        panel[:] = local[:, own]
        pivots = factor_panel(grid, panel, lo)
        local[:, own] = panel
    grid.row.Bcast(pivots, root)
    grid.row.Bcast(panel, root)
    swap_rows(grid, local, lo, pivots, own)
    top = slice(*np.searchsorted(grid.rows, (lo, hi)))
    right = int(np.searchsorted(grid.cols, hi))
    upper = np.empty((hi - lo, local.shape[1] - right))
    root = grid.row_owner(lo)
    if root == grid.column.rank and upper.size:
        lower = panel[top]
        upper[:] = scipy.linalg.solve_triangular(
            lower, local[top, right:], lower=True, unit_diagonal=True
        )
        local[top, right:] = upper
    grid.column.Bcast(upper, root)
    local[top.stop :, right:] -= panel[top.stop :] @ upper
    return pivots


def matrix(rows: Integers, n: int, seed: int) -> Floats:
    """These rows of the n x n matrix to factor, (len(rows), n), uniform in [-1, 1).

    They do not depend on the layout.
    """
    generators = (np.random.default_rng((seed, int(row))) for row in rows)
    return np.array([g.uniform(-1, 1, n) for g in generators]).reshape(len(rows), n)


def residual(a: Floats, permuted: Floats, lower: Floats, upper: Floats) -> float:
    """||PA - LU|| / (||A|| n eps) in the 1-norm."""
    n = len(a)
    error = np.linalg.norm(permuted - lower @ upper, 1)
    return float(error / (np.linalg.norm(a, 1) * n * np.finfo(float).eps))


def check(comm: MPI.Intracomm, a: Array, pivots: Integers, seed: int) -> tuple[float, float]:
    """Collective over comm. Residual of the factors in `a`, and of those of scipy.linalg.lu."""
    n = a.shape[0]
    whole = a.gather()
    residuals = np.zeros(2)
    if whole is not None:
        original = matrix(np.arange(n), n, seed)
        order = np.arange(n)
        for j, pivot in enumerate(pivots.tolist()):
            order[[j, pivot]] = order[[pivot, j]]
        lower = np.tril(whole, -1) + np.eye(n)
        p, reference_l, reference_u = scipy.linalg.lu(original)
        residuals[0] = residual(original, original[order], lower, np.triu(whole))
        residuals[1] = residual(original, p.T @ original, reference_l, reference_u)
    comm.Bcast(residuals, root=0)
    return float(residuals[0]), float(residuals[1])


def solve(app: Application, options: argparse.Namespace) -> bool:
    """Collective over app.comm. Factor and verify all matrices; rank 0 prints the result."""
    n, block = options.n, options.block
    a = app.block_cyclic("A", shape=(n, n), block=(block, block))
    pivots = app.replicated("pivots", np.zeros(n, np.int64))
    if app.is_fresh_start:
        app.state.update(residual=0.0, reference=0.0)
    panels = -(-n // block)

    @app.each_size
    def process_grid(comm: MPI.Intracomm) -> Iterator[ProcessGrid]:
        yield ProcessGrid(comm, a)

    for iteration in app.iterations(panels * options.repeat):
        seed, panel = divmod(iteration, panels)
        grid = process_grid()
        if panel == 0:
            a.local[:] = matrix(grid.rows, n, seed)[:, grid.cols]
        lo, hi = panel * block, min((panel + 1) * block, n)
        pivots.local[lo:hi] = eliminate(grid, a.local, lo, hi)
        if panel == panels - 1:
            own, reference = check(app.comm, a, pivots.local, seed)
            # np.maximum, unlike max, propagates NaN.
            app.state["residual"] = float(np.maximum(own, app.state["residual"]))
            app.state["reference"] = float(np.maximum(reference, app.state["reference"]))
    worst, reference = app.state["residual"], app.state["reference"]
    verified = bool(worst < MAX_RESIDUAL and worst <= 10 * reference)
    text = (
        f"lu: n={n} block={block} repeat={options.repeat} processors={app.comm.size} "
        f"residual {worst:.2e} (scipy {reference:.2e})"
    )
    return conclude(app, text, verified, residual=worst)


def main() -> int:
    """Run the program; the exit code is 0 if the result is verified."""
    parser = argparse.ArgumentParser(prog="python -m apps.lu", description=__doc__)
    parser.add_argument("--n", type=int, default=1024, help="rows and columns (1024)")
    parser.add_argument("--block", type=int, default=64, help="block size (64)")
    parser.add_argument("--repeat", type=int, default=1, help="matrices to factor (1)")
    add_topology(parser)
    options = parser.parse_args()
    if min(options.n, options.block, options.repeat) < 1:
        parser.error("--n, --block and --repeat must be >= 1")
    with reshape.application(topology=options.topology) as app:
        verified = solve(app, options)
    return 0 if verified else 1


if __name__ == "__main__":
    sys.exit(main())
