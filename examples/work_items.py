"""Work that is left to do, each item with random numbers of its own: the same at any size."""

import numpy as np

import reshape

THROWS = 10_000

with reshape.application() as app:
    tasks = app.items("tasks", range(200))  # the numbers of the tasks
    results = app.items("results")
    streams = app.rng("throws", like=tasks, seed=7)  # one for each task
    for _ in app.iterations(None):
        if tasks.local:
            task = tasks.local.pop()
            x, y = streams.of(task).random((2, THROWS))
            results.local.append(int(np.count_nonzero(x * x + y * y < 1)))
        if app.comm.allreduce(len(tasks.local)) == 0:
            break
    counts = results.gather()
    if app.comm.rank == 0:
        pi = 4 * np.array(counts) / THROWS
        error = pi.std(ddof=1) / np.sqrt(len(pi))
        print(f"pi = {pi.mean():.6f} +- {error:.6f} by {len(pi)} tasks")
