"""Random walks whose steps a pool computes: ``mpiexec -n 3 python examples/each_size/pool.py``.

The other ranks compute for rank 0 within the ``with`` statement, so that a pool belongs to one
iteration: it is opened and closed there (some 10 ms), and needs no function of `app.each_size`.
"""

import numpy as np
from mpi4py.futures import MPICommExecutor

import reshape


def log_probability(place):
    """Logarithm of a normal distribution in two dimensions, up to a constant."""
    return -0.5 * float(place @ place)


with reshape.application() as app:
    walkers = app.replicated("walkers", np.full((8, 2), 3.0))
    values = app.replicated("values", np.full(8, log_probability(np.full(2, 3.0))))
    for step in app.iterations(40):
        rng = np.random.default_rng(step)  # the same numbers on each rank and after a restart
        moved = walkers.local + rng.normal(size=walkers.shape)
        with MPICommExecutor(app.comm) as pool:
            found = None if pool is None else list(pool.map(log_probability, moved))
        found = np.array(app.comm.bcast(found))
        accepted = np.log(rng.random(len(found))) < found - values.local
        walkers.local[accepted], values.local[accepted] = moved[accepted], found[accepted]

    if app.comm.rank == 0:
        print(f"mean place {walkers.local.mean():.6f}, mean value {values.local.mean():.6f}")
