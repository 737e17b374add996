"""A program with every kind of registered data, which type checkers understand.

`tests/reshape/test_public_names.py` checks it by mypy in strict mode: each `assert_type` is what
the editor of a user shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_type

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from scipy.sparse import csr_array

import redistribution
import reshape
from reshape.app import Application
from reshape.data.arrays import Array
from reshape.data.job_context import SizeRequest
from reshape.data.particles import Particles
from reshape.data.ragged import Items
from reshape.data.sparse import Csr
from reshape.data.stencils import BlockArray
from reshape.data.streams import ItemStreams, RankStream, Streams


def cells(ions: NDArray[Any]) -> NDArray[Any]:
    """Cell of each ion."""
    found: NDArray[Any] = np.floor(ions["x"]).astype(np.int64)
    return found


with reshape.application(topology="arbitrary:step=2") as app:
    assert_type(app, Application)
    assert_type(app.comm, MPI.Intracomm)
    assert_type(app.is_fresh_start, bool)
    assert_type(app.state, dict[str, Any])
    app.checkpoint(every="10min", dir="checkpoints")
    rows = app.rows("rows", (9, 2), axis=1, dtype="f4", order="F")
    matrix = app.csr("matrix", (9, 9), balance="entries")
    p = app.blocks("p", (8, 6), halo=(1, 2), periodic=[True, False], grid=(0, 2))
    u = app.blocks("u", (5, 8, 6), cut=(1, 2), like=p)
    x = app.blocks("x", (8,), cut=[0, None], like=p)
    vector = app.rows("vector", (9,), like=matrix)
    cyclic = app.block_cyclic("cyclic", (8, 6), (2, 2))
    more = app.block_cyclic("more", (8, 6, 3), cut=(0, 1), like=cyclic)
    ions = app.particles("ions", [("x", "f8", (2,))], like=p, cell=cells)
    tasks = app.items("tasks", [1, 2])
    streams = app.rng("streams", like=rows, seed=3)
    luck, noise = app.rng("luck", like=tasks), app.rng("noise")
    for array in (rows, vector, cyclic, more, app.replicated("w", [1.0])):
        assert_type(array, Array)
        assert_type(array.local, NDArray[Any])
        assert_type(array.shape, tuple[int, ...])
        assert_type(array.layout, redistribution.Layout)
        assert_type(array.gather(), NDArray[Any] | None)
        assert_type(len(array), int)
        array[...] = 0.0
        array.save("run.h5", rows)
        array.load("run.h5")
        np.asarray(array)
    for field in (p, u, x):
        assert_type(field, BlockArray)
        assert_type(field.layout, redistribution.Blocks)
        assert_type(field.exchange(outside=0.0), NDArray[Any])
        assert_type(field.neighbours(0, axis=0), tuple[int | None, int | None])
    assert_type(matrix, Csr)
    assert_type(matrix.gather(), csr_array[Any, tuple[int, int]] | None)
    assert_type(ions, Particles)
    assert_type(ions.local, NDArray[Any])
    ions.local = ions.local[:1]
    ions.migrate()
    p.save("run.h5", u, ions)
    ions.load("run.h5")
    assert_type(tasks, Items)
    assert_type(tasks.local, list[Any])
    assert_type(streams, Streams)
    assert_type(streams.local, list[np.random.Generator])
    assert_type(luck, ItemStreams)
    assert_type(luck.of(1, 2), np.random.Generator)
    assert_type(noise, RankStream)
    assert_type(noise.local, np.random.Generator)

    @app.each_size
    def line(comm: MPI.Intracomm) -> Iterator[int]:
        """Yield the size."""
        yield comm.size

    for step in app.iterations(None):
        assert_type(step, int)
        assert_type(line(), int)
        assert_type(app.request(minimum=2), SizeRequest)
        app.progress(step, 10)
        app.report(step=step)
        break
