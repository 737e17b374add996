"""An electromagnetic pulse on a staggered grid."""

import numpy as np
from mpi4py import MPI

import reshape

with reshape.application() as app:
    e, h = app.rows("e", (50,)), app.rows("h", (50,))
    for step in app.iterations(60):
        before, after = (
            MPI.PROC_NULL if rank is None else rank for rank in e.neighbours(app.comm.rank)
        )
        edge = np.zeros(1)
        app.comm.Sendrecv(e.local[:1].copy(), before, 0, edge, after, 0)
        h.local[:] += 0.5 * (np.append(e.local[1:], edge) - e.local)
        edge = np.zeros(1)
        app.comm.Sendrecv(h.local[-1:].copy(), after, 1, edge, before, 1)
        e.local[:] += 0.5 * (h.local - np.append(edge, h.local[:-1]))
        (own,) = e.layout.global_indices(app.comm.rank)
        e.local[own == 25] += np.exp(-(((step - 20) / 6) ** 2))
    e.save("e.npy")
