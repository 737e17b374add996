"""The 2-D process grid of a block-cyclic array, with communicators along its rows and columns."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redistribution import BlockCyclic
from reshape.data.arrays import Array

Integers: TypeAlias = NDArray[np.int64]


class ProcessGrid:
    """The process grid of the present size, as seen by one process.

    Attributes
    ----------
    comm : all processes of the grid.
    row, column : the processes of this process's row and column.
    rows, cols : global indices of the local rows and columns, (m_local,) and (n_local,) int64.
    block : rows, and columns, in a block.
    """

    def __init__(self) -> None:
        self.comm = self.row = self.column = MPI.COMM_NULL
        self.rows = self.cols = np.empty(0, np.int64)
        self.block = 1

    def update(self, comm: MPI.Intracomm, array: Array) -> None:
        """Collective over comm. Split comm by the grid of `array`, if comm has changed."""
        if comm is self.comm:
            return
        self.close()
        assert isinstance(array.layout, BlockCyclic)
        p, q = array.layout.coordinates(comm.rank)
        self.comm, self.row, self.column = comm, comm.Split(p, q), comm.Split(q, p)
        self.rows, self.cols = array.layout.global_indices(comm.rank)
        self.block = array.layout.block[0]

    def close(self) -> None:
        """Collective over row and column, leaving processes included. Free both."""
        if self.comm is not MPI.COMM_NULL:
            self.row.Free()
            self.column.Free()
            self.comm = MPI.COMM_NULL

    def row_owner(self, index: int) -> int:
        """Rank in `column` that holds a global row."""
        return index // self.block % self.column.size

    def col_owner(self, index: int) -> int:
        """Rank in `row` that holds a global column."""
        return index // self.block % self.row.size
