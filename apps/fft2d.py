"""2-D Fourier transform by rows, resizable: ``mpiexec -n 4 python -m apps.fft2d --n 512``.

Each process transforms its rows, an all-to-all exchange transposes the matrix, and each process
transforms its rows of the transpose, which are columns of the matrix. Iterations are forward and
inverse transforms in turn; between two of them the job may expand or contract. At the end rank 0
compares both the matrix and its spectrum with NumPy.
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
from redistribution import Cuts
from reshape.app import Application
from reshape.data.arrays import Array

Complexes: TypeAlias = NDArray[np.complex128]
TOLERANCE = 1e-13  # for one transform, relative to the largest element


def initial(rows: NDArray[np.int64], columns: int) -> Complexes:
    """These rows of the matrix at the start, (len(rows), columns)."""
    cols = np.arange(columns)
    return np.cos(np.outer(rows + 1, cols + 2)) + 1j * np.sin(np.outer(rows + 2, cols + 1))


def transpose(comm: MPI.Intracomm, part: Complexes, rows: int) -> Complexes:
    """Collective over comm. Transpose a matrix whose rows are cut evenly.

    Parameters
    ----------
    part : (own rows, columns), the rows of this process.
    rows : number of rows of the whole matrix.

    Returns
    -------
    (own columns, rows), the rows of the transpose of this process.
    """
    columns = part.shape[1]
    heights = np.diff(Cuts.even((rows,), comm.size).offsets)  # rows of each process
    widths = np.diff(Cuts.even((columns,), comm.size).offsets)  # columns of each process
    width = int(widths[comm.rank])
    send = np.ascontiguousarray(part.T)  # makes the elements for one process contiguous
    receive = np.empty(width * rows, part.dtype)
    comm.Alltoallv((send, widths * len(part)), (receive, heights * width))
    pieces = np.split(receive, width * np.cumsum(heights)[:-1])
    return np.hstack([p.reshape(width, h) for p, h in zip(pieces, heights, strict=True)])


def transform(comm: MPI.Intracomm, x: Array, inverse: bool) -> None:
    """Collective over comm. Replace x by its 2-D Fourier transform, or by the inverse one."""
    fft = np.fft.ifft if inverse else np.fft.fft
    rows, columns = x.shape
    columns_done = fft(transpose(comm, fft(x.local, axis=1), rows), axis=1)
    x.local[:] = transpose(comm, columns_done, columns)


def deviation(comm: MPI.Intracomm, x: Array, spectrum: bool) -> float:
    """Collective over comm. Largest error against the initial matrix, or its transform."""
    whole = x.gather()
    error = 0.0
    if whole is not None:
        rows, columns = x.shape
        expected = initial(np.arange(rows), columns)
        if spectrum:
            expected = np.fft.fft2(expected)
        error = float(np.abs(whole - expected).max() / np.abs(expected).max())
    return float(comm.bcast(error, root=0))


def solve(app: Application, options: argparse.Namespace) -> bool:
    """Collective over app.comm. Transform and verify; rank 0 prints the result."""
    rows, columns = options.n, options.columns
    x = app.rows("x", shape=(rows, columns), dtype=np.complex128)
    if app.is_fresh_start:
        x.local[:] = initial(x.layout.global_indices(app.comm.rank)[0], columns)
    for iteration in app.iterations(options.iterations):
        transform(app.comm, x, inverse=iteration % 2 == 1)
    spectrum = options.iterations % 2 == 1
    errors = [deviation(app.comm, x, spectrum)]
    transform(app.comm, x, inverse=spectrum)  # one more, to check both the matrix and its spectrum
    errors.append(deviation(app.comm, x, not spectrum))
    tolerance = TOLERANCE * (options.iterations + 1)
    verified = all(error <= tolerance for error in errors)
    worst = float(np.max(errors))  # unlike max, it propagates NaN
    text = (
        f"fft2d: {rows} x {columns} iterations={options.iterations} processors={app.comm.size} "
        f"max error {worst:.1e}"
    )
    return conclude(app, text, verified, max_error=worst)


def main() -> int:
    """Run the program; the exit code is 0 if the result is verified."""
    parser = argparse.ArgumentParser(prog="python -m apps.fft2d", description=__doc__)
    parser.add_argument("--n", type=int, default=512, help="rows (512)")
    parser.add_argument("--columns", type=int, help="columns; as many as rows")
    parser.add_argument("--iterations", type=int, default=40, help="transforms (40)")
    add_topology(parser)
    options = parser.parse_args()
    if options.columns is None:
        options.columns = options.n
    if min(options.n, options.columns) < 1 or options.iterations < 0:
        parser.error("--n and --columns must be >= 1, --iterations >= 0")
    with reshape.application(topology=options.topology) as app:
        verified = solve(app, options)
    return 0 if verified else 1


if __name__ == "__main__":
    sys.exit(main())
