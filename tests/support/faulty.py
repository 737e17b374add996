"""A program under test that kills or hangs one of its processes at a chosen step of a resize.

It iterates until the test tells it to end (`told`). Its data are the indices of the elements plus
the number of iterations, so that it can verify them. The fault happens once for each job.

Arguments: FAULT SIDE [SIZE], where SIDE is "joining" (a group that joins or has joined), "job" (the
last rank, if it is in the first group) or "groupN" (a rank of group N), and FAULT is "none" or a
function of one of the modules `resize_points`, `transaction` and `move` of `reshape.resizing`. With
"hang:" before it, the process sleeps instead of being killed. With SIZE, the fault happens on that
number of processes alone.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from told import ENDLESS, may_end

import reshape
import reshape.resizing.joining
import reshape.resizing.move
import reshape.resizing.resize_points
import reshape.resizing.transaction

fault, side = sys.argv[1], sys.argv[2]
joining = os.environ.get("RESHAPE_ROLE") == "join"
N = 300
SIZE = int(sys.argv[3]) if len(sys.argv) > 3 else 0


def inject_fault() -> None:
    """Kill or hang this process if it is the chosen one and the fault has not happened yet."""
    mark = Path(f"struck-{os.environ['RESHAPE_JOB']}")
    if mark.exists():
        return
    if side.startswith("group"):
        is_chosen = side == f"group{os.environ['RESHAPE_GROUP']}"
    elif (side == "joining") != joining or SIZE not in (0, app.comm.size):
        return
    else:
        is_chosen = joining or app.comm.rank == app.comm.size - 1
    if is_chosen:
        mark.touch()
        if fault.startswith("hang:"):
            time.sleep(3600)
        os.kill(os.getpid(), signal.SIGKILL)


def with_fault(module: object, name: str) -> None:
    """Make a function of a module inject the fault before it runs."""
    inner = getattr(module, name)

    def outer(*args: object, **more: object) -> object:
        inject_fault()
        return inner(*args, **more)

    setattr(module, name, outer)


place = fault.removeprefix("hang:")
for module in (
    reshape.resizing.resize_points,
    reshape.resizing.transaction,
    reshape.resizing.joining,
    reshape.resizing.move,
):
    if hasattr(module, place):
        with_fault(module, place)
if place == "start" and joining:
    mark = Path(f"struck-{os.environ['RESHAPE_JOB']}")
    if not mark.exists() or mark.read_text() in ("", os.environ["RESHAPE_GROUP"]):
        mark.write_text(os.environ["RESHAPE_GROUP"])
        if fault.startswith("hang:"):
            time.sleep(3600)
        sys.exit(7)

with reshape.application() as app:
    A = app.block_cyclic("A", (N, N), (7, 5))
    if app.is_fresh_start:
        rows, columns = A.layout.global_indices(app.comm.rank)
        A.local[...] = rows[:, None] * N + columns[None, :]
        app.state["sum"] = 0
    for step in app.iterations(ENDLESS):
        time.sleep(0.1)
        A.local[...] += 1
        app.state["sum"] += step
        if may_end(app.comm):
            break
    iterations = step + 1
    rows, columns = A.layout.global_indices(app.comm.rank)
    right = np.array_equal(A.local, rows[:, None] * N + columns[None, :] + iterations)
    right = right and app.state["sum"] == iterations * (iterations - 1) // 2
    right = app.comm.allreduce(right, op=reshape.resizing.move.MPI.LAND)
    app.report(verified=bool(right), size=app.comm.size)
    if app.comm.rank == 0:
        print(f"size={app.comm.size} verified={right}", flush=True)
sys.exit(0 if right else 1)
