"""What several applications share: the end of a run, and the process grid of matrices."""

from __future__ import annotations

import argparse
from math import isfinite

from mpi4py import MPI

from redistribution import BlockCyclic
from reshape.app import Application
from reshape.data.arrays import Array


def add_topology(parser: argparse.ArgumentParser) -> None:
    """Add the option --topology."""
    parser.add_argument(
        "--topology", help="valid sizes of the job (default: those of its submission)"
    )


def conclude(app: Application, text: str, verified: bool, **facts: float) -> bool:
    """Report the facts of a result, and print a line with a text on rank 0.

    Facts that are not finite are reported as texts.

    Returns
    -------
    whether the result is verified.
    """
    texts = {name: value if isfinite(value) else str(value) for name, value in facts.items()}
    app.report(verified=verified, **texts)
    if app.comm.rank == 0:
        print(f"{text} {'verified' if verified else 'WRONG'}", flush=True)
    return verified


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
