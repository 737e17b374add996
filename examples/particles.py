"""Particles in a box whose cells are divided among the processes, the same at any size."""

import numpy as np

import reshape

CELLS, STEPS, COUNT = (12, 8), 60, 500
ION = np.dtype([("number", "i8"), ("x", "f8", (2,)), ("v", "f8", (2,))])


def cell(ions):
    """Cell of each ion, shape (n, 2)."""
    return ions["x"].astype(int)


with reshape.application() as app:
    density = app.blocks("density", shape=CELLS, dtype="i8")
    ions = app.particles("ions", ION, like=density, cell=cell)
    if app.is_fresh_start and app.comm.rank == 0:
        rng, new = np.random.default_rng(11), np.zeros(COUNT, ION)
        new["number"], new["x"] = np.arange(COUNT), rng.random((COUNT, 2)) * CELLS
        new["v"] = rng.normal(scale=0.2, size=(COUNT, 2))
        ions.local = new
    for _ in app.iterations(STEPS):
        ions.local["x"] = (ions.local["x"] + ions.local["v"]) % CELLS
        ions.migrate()  # each ion to the process that has its cell
        rows, columns = density.layout.global_indices(app.comm.rank)
        i, j = cell(ions.local).T
        density[...] = 0
        np.add.at(density.local, (np.searchsorted(rows, i), np.searchsorted(columns, j)), 1)
    whole, every = density.gather(), ions.gather()
    if app.comm.rank == 0:
        print(f"{len(every)} ions, {whole.sum()} in cells, at most {whole.max()} in one")
        print("first row of cells:", *whole[0])
