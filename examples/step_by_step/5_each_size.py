"""Heat in a rod: what depends on the size is in one place, and the steps are an argument."""

import sys

import numpy as np
from mpi4py import MPI

import reshape

n, steps = 1000, int(sys.argv[1]) if len(sys.argv) > 1 else 200
with reshape.application() as app:
    rod = app.rows("rod", shape=(n,))
    if app.is_fresh_start:
        (where,) = rod.layout.global_indices(app.comm.rank)
        rod.local[:] = np.exp(-(((where - n / 2) / 20) ** 2))
        app.state["hottest"] = []
        if app.comm.rank == 0:
            print(f"a rod of {n} points")

    @app.each_size
    def line(comm):
        cart = comm.Create_cart([comm.size])
        left, right = cart.Shift(0, 1)
        yield cart, left, right

    for step in app.iterations(steps):
        (comm, left, right), u = line(), rod.local
        if step % (steps // 4) == 0:
            app.state["hottest"].append(comm.allreduce(u.max(), MPI.MAX))
        padded = np.pad(u, 1, mode="edge")  # no heat leaves at the ends
        comm.Sendrecv(u[:1], left, 0, padded[-1:], right, 0)
        comm.Sendrecv(u[-1:], right, 0, padded[:1], left, 0)
        u += 0.25 * (padded[:-2] - 2 * u + padded[2:])

    heat = app.comm.allreduce(rod.local.sum())
    app.report(heat=heat)
    if app.comm.rank == 0:
        for i, value in enumerate(app.state["hottest"]):
            print(f"step {steps // 4 * i:3}: {value:.6f} at the hottest")
        print(f"step {steps}: heat {heat:.6f}")
