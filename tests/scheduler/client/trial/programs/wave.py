"""A wave by differences of fourth order, which need two points of each neighbour."""

import numpy as np

import reshape

with reshape.application() as app:
    u, v = (app.blocks(name, (64,), halo=2, periodic=True) for name in "uv")
    if app.is_fresh_start:
        (own,) = u.layout.global_indices(app.comm.rank)
        u.local[:] = np.exp(-(((own - 32) / 4.0) ** 2))
    for _ in app.iterations(50):
        w = u.exchange()
        v.local[:] += 0.1 * ((16 * (w[1:-3] + w[3:-1]) - (w[:-4] + w[4:])) - 30 * w[2:-2]) / 12
        u.local[:] += 0.1 * v.local
    u.save("wave.npy")
