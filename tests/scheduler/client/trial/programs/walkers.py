"""An ensemble of walkers, whose probabilities the ranks compute as a pool, as for emcee."""

import numpy as np
from mpi4py.futures import MPICommExecutor

import reshape


def log_probability(x):
    """Of a normal distribution, without its constant."""
    return -0.5 * float(x @ x)


if __name__ == "__main__":
    with reshape.application() as app:
        app.replicated("unused", (1,))
        if app.is_fresh_start:
            app.state["walkers"] = np.linspace(-2, 2, 12).reshape(6, 2)
        for step in app.iterations(12):
            moved = None
            with MPICommExecutor(app.comm, root=0) as pool:
                if pool is not None:
                    rng, now = np.random.default_rng(step), app.state["walkers"]
                    there = now + rng.normal(0, 0.5, now.shape)
                    old, new = (list(pool.map(log_probability, each)) for each in (now, there))
                    goes = np.log(rng.random(len(now))) < np.subtract(new, old)
                    moved = np.where(goes[:, None], there, now)
            app.state["walkers"] = app.comm.bcast(moved)
        if app.comm.rank == 0:
            print(app.state["walkers"])
