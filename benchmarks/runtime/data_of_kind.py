"""The program of `resize_pause.py`: registered data of one kind, which resizes move.

    python benchmarks/runtime/data_of_kind.py KIND MIB ITERATIONS SECONDS

Iterations sleep, and less with more processes, so that policies expand the job. All data is checked
at the end. A record of the particles has 64 bytes; they are spread evenly over 256 x 256 cells, in
no order.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import reshape
from reshape.app import Application

CELLS = (256, 256)
RECORD = np.dtype([("number", "i8"), ("x", "f8", (2,)), ("v", "f8", (2,)), ("more", "f8", (3,))])
COLUMNS = 1024  # of int64, so that 128 rows are a MiB


def cell(records: Any) -> Any:
    """Cell of each record, (n, 2)."""
    return records["x"].astype(np.int64)


def array(app: Application, kind: str, mib: int) -> Callable[[], bool]:
    """Register an array and fill it with the linear indices; return a check of them."""
    shape = (128 * mib, COLUMNS)
    if kind == "cyclic":
        data = app.block_cyclic("data", shape, (16, 64), dtype=np.int64)
    elif kind == "rows":
        data = app.rows("data", shape, dtype=np.int64)
    else:
        data = app.blocks("data", shape, dtype=np.int64)

    def indices() -> Any:
        rows, columns = data.layout.global_indices(app.comm.rank)
        return rows[:, np.newaxis] * COLUMNS + columns

    if app.is_fresh_start:
        data.local[:] = indices()
    return lambda: np.array_equal(data.local, indices())


def particles(app: Application, kind: str, mib: int) -> Callable[[], bool]:
    """Register particles, in cells or divided evenly; return a collective check of them."""
    count = mib * 2**20 // RECORD.itemsize
    if kind == "particles":
        cells = app.blocks("cells", CELLS, dtype="i1")
        data = app.particles("data", RECORD, like=cells, cell=cell)
    else:
        data = app.particles("data", RECORD)
    if app.is_fresh_start:
        numbers = np.arange(app.comm.rank, count, app.comm.size)
        records = np.zeros(len(numbers), RECORD)
        records["number"] = numbers
        records["x"] = np.random.default_rng(app.comm.rank).random((len(records), 2)) * CELLS
        data.local = records
        data.migrate()

    def is_right() -> bool:
        own = data.local["number"]
        sums = app.comm.allreduce(np.array([len(own), own.sum(), (own**2).sum()]))
        every = np.arange(count)
        return np.array_equal(sums, [count, every.sum(), (every**2).sum()])

    return is_right


def main() -> int:
    """Run; the exit code is 0 if the data is right at the end."""
    kind, mib, iterations, seconds = sys.argv[1], *map(float, sys.argv[2:])
    with reshape.application() as app:
        register = array if kind in ("cyclic", "rows", "blocks") else particles
        is_right = register(app, kind, int(mib))
        if app.is_fresh_start:
            app.comm.Barrier()  # some ranks fill their parts more slowly
        for _ in app.iterations(int(iterations)):
            time.sleep(seconds / app.comm.size)
        return 0 if app.comm.allreduce(int(is_right())) == app.comm.size else 1


if __name__ == "__main__":
    sys.exit(main())
