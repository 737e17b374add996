"""Heat on a plate, by a stencil: ``mpiexec -n 6 python examples/heat2d.py [FILE]``.

A program without ReSHAPE would take the grid from Dims_create and the neighbours from Create_cart,
and would exchange the rows and columns at the edges itself.
"""

import sys

import numpy as np

import reshape

with reshape.application() as app:
    u = app.blocks("u", shape=(96, 64), halo=1)  # each process has a block, at any size
    if app.is_fresh_start:
        rows, columns = np.ix_(*u.layout.global_indices(app.comm.rank))
        u.local[:] = (abs(rows - 40) < 9) & (abs(columns - 20) < 6)  # a hot rectangle
    for _ in app.iterations(400):
        w = u.exchange(outside=0.0)  # the block with one more point on each side
        up, down, left, right = w[:-2, 1:-1], w[2:, 1:-1], w[1:-1, :-2], w[1:-1, 2:]
        u.local[:] += 0.2 * ((up + down) + (left + right) - 4 * w[1:-1, 1:-1])
    if len(sys.argv) > 1:
        u.save(sys.argv[1])
    whole = u.gather()
    if app.comm.rank == 0:
        row, column = np.unravel_index(whole.argmax(), u.shape)
        print(f"hottest {whole.max():.6f} in row {row}, column {column}; heat {whole.sum():.6f}")
