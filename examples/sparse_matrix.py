"""Conjugate gradients on a sparse matrix: its rows, and the vectors cut like them."""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import spsolve

import reshape

N = 40  # points along a side of the grid
TOLERANCE = 1e-10


def laplacian(rows):
    """Return these rows of the 5-point Laplacian on the grid, (len(rows), N * N)."""
    y, x = np.divmod(rows, N)
    columns = np.stack([rows - N, rows - 1, rows, rows + 1, rows + N], axis=1)
    inside = np.stack([y > 0, x > 0, rows >= 0, x < N - 1, y < N - 1], axis=1)
    values = np.broadcast_to([-1.0, -1.0, 4.0, -1.0, -1.0], columns.shape)
    begins = np.concatenate(([0], np.cumsum(inside.sum(axis=1))))
    return csr_array((values[inside], columns[inside], begins), shape=(len(rows), N * N))


with reshape.application() as app:

    def dot(u, v):
        return app.comm.allreduce(float(u @ v))

    A = app.csr("A", (N * N, N * N), balance="entries")
    if app.is_fresh_start:
        A.assemble(laplacian(np.arange(N * N)) if app.comm.rank == 0 else None)
    x, r, p = (app.rows(name, (N * N,), like=A) for name in "xrp")
    if app.is_fresh_start:
        r.local[:] = p.local[:] = 1.0  # the right-hand side, since x = 0
        app.state["rho"] = dot(r.local, r.local)
    goal = N * N * TOLERANCE**2
    for _ in app.iterations(1000):
        rho = app.state["rho"]
        if rho <= goal:
            break
        whole = np.empty(N * N)
        app.comm.Allgatherv(p.local, (whole, np.diff(A.layout.offsets)))
        q = A.local @ whole
        alpha = rho / dot(p.local, q)
        x.local[:] += alpha * p.local
        r.local[:] -= alpha * q
        app.state["rho"] = dot(r.local, r.local)
        p.local[:] = r.local + app.state["rho"] / rho * p.local
    solution = x.gather()
    if app.comm.rank == 0:
        exact = spsolve(laplacian(np.arange(N * N)).tocsc(), np.ones(N * N))
        print(f"{N * N} unknowns, error below 1e-6: {np.allclose(solution, exact, 0, 1e-6)}")
