"""The 2-D process grid of a block-cyclic array, with communicators along its rows and columns."""

from __future__ import annotations

from mpi4py import MPI

from redistribution import BlockCyclic
from reshape.data.arrays import Array


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
