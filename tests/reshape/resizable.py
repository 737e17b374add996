"""A program for the tests of the runtime: data of every kind, exact after any way through sizes.

Arguments: iterations, seconds of an iteration, and optionally KILL=group:rank:when:function, which
ends that process by SIGKILL before or after a function of the runtime has run.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

import reshape

SHAPE, BLOCK = (61, 47), (5, 4)
LENGTH = 103


def die_at(place: str) -> None:
    """Wrap one function of the runtime so that it is this process's last."""
    group, rank, when, name = place.split(":")
    from mpi4py import MPI

    from reshape import resize, transfer

    if (os.environ["RESHAPE_GROUP"], MPI.COMM_WORLD.rank) != (group, int(rank)):
        return
    for module in (resize, transfer):
        if hasattr(module, name):
            function = getattr(module, name)

            def last(*args: object, function: object = function) -> None:
                if when == "after":
                    function(*args)  # type: ignore[operator]
                os.kill(os.getpid(), signal.SIGKILL)

            setattr(module, name, last)


def indices(array: reshape.app.Array, rank: int) -> np.ndarray:
    """Global linear index of each element of the local part."""
    grids = np.ix_(*array.layout.global_indices(rank))
    return np.ravel_multi_index(np.broadcast_arrays(*grids), array.shape).astype(array.dtype)


def main() -> None:
    total, seconds = int(sys.argv[1]), float(sys.argv[2])
    with reshape.application(topology="arbitrary", verify=True) as app:
        for argument in sys.argv[3:]:
            die_at(argument)
        a = app.block_cyclic("a", SHAPE, BLOCK)
        f = app.block_cyclic("f", SHAPE, (3, 7), dtype=np.int32, order="F")
        v = app.block_cyclic("v", (LENGTH,), (4,), dtype=np.float32)
        u = app.rows("u", (LENGTH, 3), dtype=np.complex128)
        w = app.rows("w", (2, 5), axis=1)  # has empty parts from 6 processes on
        p = app.replicated("p", np.arange(11.0))
        if app.is_fresh_start:
            for array in (a, f, v, u, w):
                array.local[...] = indices(array, app.comm.rank)
            app.state["sizes"] = []
        for step in app.iterations(total):
            if app.state["sizes"][-1:] != [app.comm.size]:
                app.state["sizes"].append(app.comm.size)
            time.sleep(seconds)
            for array in (a, f, v, u, w):
                array.local[...] += 1
            p.local[...] += app.comm.allreduce(step) / app.comm.size
        rank = app.comm.rank
        right = all(np.array_equal(x.local, indices(x, rank) + total) for x in (a, f, v, u, w))
        right &= np.array_equal(p.local, np.arange(11.0) + total * (total - 1) / 2)
        right = app.comm.allreduce(int(right)) == app.comm.size
        app.report(verified=right, size=app.comm.size)
        if rank == 0:
            print("sizes", *app.state["sizes"], "right" if right else "WRONG", flush=True)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
