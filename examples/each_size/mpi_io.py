"""All ranks write one file: ``mpiexec -n 3 python examples/each_size/mpi_io.py FILE``."""

import sys

import numpy as np
from mpi4py import MPI

import reshape

n, steps = 60, 40
with reshape.application() as app:
    u = app.rows("u", shape=(n,))
    if app.is_fresh_start:
        (where,) = u.layout.global_indices(app.comm.rank)
        u.local[:] = np.sin(where)

    @app.each_size
    def history(comm):
        file = MPI.File.Open(comm, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)
        (where,) = u.layout.global_indices(comm.rank)
        yield file, where[0]
        file.Close()  # all ranks of the old size together, before anyone leaves

    for step in app.iterations(steps):
        u.local *= 0.5
        file, first = history()
        file.Write_at_all((step * n + first) * u.local.itemsize, u.local)

    file, _ = history()
    file.Sync()  # makes the data of the other ranks visible
    app.comm.Barrier()
    file.Sync()
    if app.comm.rank == 0:
        row = np.empty(n)
        file.Read_at(0, row)
        print(f"{steps} steps of {n} points, largest at first {row.max():.6f}")
