"""Neighbours read the ends of a rod: ``mpiexec -n 3 python examples/each_size/window.py``."""

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
    def window(comm):
        win = MPI.Win.Create(u.local, u.local.itemsize, comm=comm)  # a resize replaces this memory
        left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
        (last,) = u.layout.local_shape(left)
        yield win, left, last - 1, right
        win.Free()

    for _ in app.iterations(steps):
        win, left, last, right = window()
        w = np.empty(len(u.local) + 2)  # the rod is a ring
        w[1:-1] = u.local
        win.Fence()
        win.Get(w[:1], left, last)
        win.Get(w[-1:], right, 0)
        win.Fence()
        u.local += 0.25 * (w[:-2] - 2 * w[1:-1] + w[2:])

    whole = u.gather()
    if app.comm.rank == 0:
        print(f"largest {whole.max():.6f} at {whole.argmax()}, heat {whole.sum():.6f}")
