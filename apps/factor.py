"""Steps of a block-cyclic, right-looking LU factorisation with partial pivoting on a 2-D grid.

As in ScaLAPACK's pdgetrf: factor a panel of block width, apply its row swaps to the other columns,
solve for the block row, update what is below and right of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from mpi4py import MPI
from numpy.typing import NDArray

from redistribution import BlockCyclic
from reshape.data.arrays import Array

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass
class Grid:
    """Today's process grid as one process sees it; `rows` and `cols` are its global indices."""

    column: MPI.Comm
    row: MPI.Comm
    rows: Integers
    cols: Integers
    block: int

    def row_owner(self, index: int) -> int:
        """Rank in `column` that holds a global row."""
        return index // self.block % self.column.size

    def col_owner(self, index: int) -> int:
        """Rank in `row` that holds a global column."""
        return index // self.block % self.row.size


@contextmanager
def grid_of(comm: MPI.Intracomm, a: Array) -> Iterator[Grid]:
    """Collective over comm. Row and column communicators, freed before the size can change."""
    assert isinstance(a.layout, BlockCyclic)
    p, q = a.layout.coordinates(comm.rank)
    column, row = comm.Split(q, p), comm.Split(p, q)
    rows, cols = a.layout.global_indices(comm.rank)
    try:
        yield Grid(column, row, rows, cols, a.layout.block[0])
    finally:
        column.Free()
        row.Free()


def factor_panel(grid: Grid, panel: Floats, lo: int) -> Integers:
    """Collective over grid.column. Factor columns lo, lo + 1, ... whose local rows are `panel`.

    Returns
    -------
    (width,) int64: the row that each of these rows was swapped with.
    """
    width = panel.shape[1]
    pivots = np.empty(width, np.int64)
    # From each process: its largest candidate, that row's index and contents, and row j's.
    mine, all_ = np.empty(2 + 2 * width), np.empty((grid.column.size, 2 + 2 * width))
    for k, j in enumerate(range(lo, lo + width)):
        here, below = np.searchsorted(grid.rows, (j, j + 1))
        mine[0] = -1.0
        if here < len(panel):
            best = here + int(np.abs(panel[here:, k]).argmax())
            mine[:2] = abs(panel[best, k]), grid.rows[best]
            mine[2 : 2 + width] = panel[best]
        if here < below:
            mine[2 + width :] = panel[here]
        grid.column.Allgather(mine, all_)
        winner = all_[all_[:, 0].argmax()]
        pivot, pivot_row = int(winner[1]), winner[2 : 2 + width]
        if grid.row_owner(pivot) == grid.column.rank:
            panel[np.searchsorted(grid.rows, pivot)] = all_[grid.row_owner(j), 2 + width :]
        panel[here:below] = pivot_row
        panel[below:, k] /= pivot_row[k]
        panel[below:, k + 1 :] -= np.outer(panel[below:, k], pivot_row[k + 1 :])
        pivots[k] = pivot
    return pivots


def swap_rows(grid: Grid, local: Floats, lo: int, pivots: Integers, panel: slice) -> None:
    """Collective over grid.column. Apply a panel's swaps to all other local columns."""
    came_from: dict[int, int] = {}
    for j, pivot in enumerate(pivots.tolist(), lo):
        came_from[j], came_from[pivot] = came_from.get(pivot, pivot), came_from.get(j, j)
    touched = np.array(sorted(came_from))
    source = np.searchsorted(touched, [came_from[row] for row in touched.tolist()])
    mine = np.flatnonzero(touched // grid.block % grid.column.size == grid.column.rank)
    others = np.delete(np.arange(local.shape[1]), panel)
    where = np.ix_(np.searchsorted(grid.rows, touched[mine]), others)
    rows = np.zeros((len(touched), len(others)))
    rows[mine] = local[where]
    grid.column.Allreduce(MPI.IN_PLACE, rows, MPI.SUM)  # one process has each row, the others 0
    local[where] = rows[source[mine]]


def eliminate(grid: Grid, local: Floats, lo: int, hi: int) -> Integers:
    """Collective over the grid. Factor columns [lo, hi) and update what is below and right."""
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
