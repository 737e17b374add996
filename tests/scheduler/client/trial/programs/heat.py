"""Heat in a plate, in blocks with one row of neighbours."""

import numpy as np

import reshape

with reshape.application() as app:
    u = app.blocks("u", shape=(24, 18), halo=1)
    if app.is_fresh_start:
        x, y = u.layout.global_indices(app.comm.rank)
        u.local[:] = np.outer(np.sin(x / 5), np.cos(y / 3))
    for _ in app.iterations(40):
        w = u.exchange(outside=0.0)
        vertical, across = w[:-2, 1:-1] + w[2:, 1:-1], w[1:-1, :-2] + w[1:-1, 2:]
        u.local[:] += 0.2 * ((vertical + across) - 4 * w[1:-1, 1:-1])
    u.save("heat.npy")
