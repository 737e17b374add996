"""Random numbers that do not depend on the number of processes: a cloud in the wind."""

import numpy as np

import reshape

SEED = 7
with reshape.application() as app:
    walkers = app.rows("walkers", shape=(1000, 2))
    if app.is_fresh_start:
        walkers.local[:] = 0.0
        app.state["rng"] = np.random.default_rng(SEED)  # the same on every rank
    for step in app.iterations(50):
        wind = app.state["rng"].normal(size=2)  # all ranks draw it, so that they stay equal
        own, _ = walkers.layout.global_indices(app.comm.rank)
        for i, walker in enumerate(own):  # each row has a generator of its own in each step
            walkers.local[i] += wind + np.random.default_rng([SEED, step, walker]).normal(size=2)
    distance = app.comm.allreduce(np.linalg.norm(walkers.local, axis=1).sum()) / 1000
    if app.comm.rank == 0:
        print(f"mean distance {distance:.9f}")
