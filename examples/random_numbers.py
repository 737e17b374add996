"""Random numbers that do not depend on the number of processes: a cloud in the wind."""

import numpy as np

import reshape

with reshape.application() as app:
    walkers = app.rows("walkers", shape=(1000, 2))
    streams = app.rng("walkers-rng", like=walkers, seed=7)  # one for each row
    if app.is_fresh_start:
        app.state["rng"] = np.random.default_rng(7)  # the same on every rank
    for _ in app.iterations(50):
        wind = app.state["rng"].normal(size=2)  # all ranks draw it, so that they stay equal
        for walker, rng in zip(walkers.local, streams.local, strict=True):
            walker += wind + rng.normal(size=2)
    distance = app.comm.allreduce(np.linalg.norm(walkers.local, axis=1).sum()) / 1000
    if app.comm.rank == 0:
        print(f"mean distance {distance:.9f}")
