"""Replicas at several temperatures, which exchange their places."""

import numpy as np

import reshape

with reshape.application() as app:
    x = app.rows("x", (8,))
    for step in app.iterations(40):
        (own,) = x.layout.global_indices(app.comm.rank)
        for k, replica in enumerate(own):
            rng = np.random.default_rng([step, int(replica)])
            to = x.local[k] + rng.normal()
            if np.log(rng.random()) < (x.local[k] ** 2 - to**2) / (1 + replica):
                x.local[k] = to
        places = np.concatenate(app.comm.allgather(x.local))
        rng = np.random.default_rng(step)
        for a in range(step % 2, 7, 2):
            gain = (places[a + 1] ** 2 - places[a] ** 2) * (1 / (1 + a) - 1 / (2 + a))
            if np.log(rng.random()) < -gain:
                places[a], places[a + 1] = places[a + 1], places[a]
        x.local[:] = places[own]
    x.save("replicas.npy")
