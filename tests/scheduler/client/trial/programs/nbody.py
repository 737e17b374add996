"""Bodies that attract each other; each process moves some of them and knows the places of all."""

import numpy as np

import reshape

with reshape.application() as app:
    x, v = app.rows("x", (12, 3)), app.rows("v", (12, 3))
    if app.is_fresh_start:
        (own,) = x.layout.global_indices(app.comm.rank)[:1]
        x.local[:] = np.cos(np.add.outer(own * 1.7, [0.0, 1.0, 2.0]))
    for _ in app.iterations(40):
        everywhere = np.concatenate(app.comm.allgather(x.local))
        for k, place in enumerate(x.local):
            away = everywhere - place
            v.local[k] += 1e-3 * (away / (np.sum(away**2, axis=1, keepdims=True) + 0.1)).sum(0)
        x.local[:] += 1e-2 * v.local
    x.save("bodies.npy")
