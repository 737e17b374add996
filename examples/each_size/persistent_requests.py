"""Persistent requests: ``mpiexec -n 3 python examples/each_size/persistent_requests.py``."""

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
    def halo(comm):
        left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
        w = np.empty(len(u.local) + 2)  # the rod is a ring
        requests = [
            comm.Recv_init(w[:1], left, tag=1),
            comm.Recv_init(w[-1:], right, tag=2),
            comm.Send_init(w[-2:-1], right, tag=1),
            comm.Send_init(w[1:2], left, tag=2),
        ]
        yield w, requests
        for request in requests:
            request.Free()

    for _ in app.iterations(steps):
        w, requests = halo()
        w[1:-1] = u.local
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)
        u.local += 0.25 * (w[:-2] - 2 * w[1:-1] + w[2:])

    whole = u.gather()
    if app.comm.rank == 0:
        print(f"largest {whole.max():.6f} at {whole.argmax()}, heat {whole.sum():.6f}")
