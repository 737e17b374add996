"""A first resizable program: the largest eigenvalue of a matrix, by power iteration."""

import numpy as np

import reshape

n = 300
with reshape.application() as app:
    A = app.rows("A", shape=(n, n))  # each process has some rows, at any size
    x = app.replicated("x", np.ones(n))
    if app.is_fresh_start:  # processes that join receive their rows from the others
        rows, columns = A.layout.global_indices(app.comm.rank)
        A.local[:] = 1 / (1 + abs(np.subtract.outer(rows, columns)))
    for _ in app.iterations(100):  # between two steps the job may expand or contract
        y = np.concatenate(app.comm.allgather(A.local @ x.local))
        x.local[:] = y / np.linalg.norm(y)
    if app.comm.rank == 0:
        print(f"largest eigenvalue {np.linalg.norm(y):.6f}")
