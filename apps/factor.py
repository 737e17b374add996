"""Steps of a block-cyclic, right-looking LU factorisation with partial pivoting on a 2-D grid.

As in ScaLAPACK's pdgetrf: factor a panel of block width, apply its row swaps to the other columns,
solve for the block row, update the trailing matrix.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import scipy.linalg
from mpi4py import MPI
from numpy.typing import NDArray

from apps.process_grid import ProcessGrid

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]


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
