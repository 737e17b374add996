"""Rank 0 writes an HDF5 file: ``mpiexec -n 3 python examples/each_size/hdf5_by_rank_0.py FILE``."""

import sys

import h5py
import numpy as np

import reshape

n, steps = 60, 40
with reshape.application() as app:
    u = app.rows("u", shape=(n,))
    if app.is_fresh_start:
        (where,) = u.layout.global_indices(app.comm.rank)
        u.local[:] = np.sin(where)

    @app.each_size
    def history(comm):
        if comm.rank > 0:
            yield None
        else:  # another process at each size
            with h5py.File(sys.argv[1], "a") as file:
                yield file.require_dataset("u", (steps, n), "f8")

    for step in app.iterations(steps):
        u.local *= 0.5
        whole, rows = u.gather(), history()
        if rows is not None:
            rows[step] = whole

    if app.comm.rank == 0:
        print(f"{steps} steps of {n} points, largest at first {history()[0].max():.6f}")
