"""The job of a round: resizes often, reaches the points of faults, and verifies every element.

    python job.py ITERATIONS SECONDS

Its data are the numbers of the elements plus the number of iterations done. The last line that it
writes to `result-JOB` in its working directory tells whether all of it was right; JOB is the number
of a step itself. With CAMPAIGN_CHECKPOINT_EVERY in its environment it writes checkpoints with this
number of iterations between two. CAMPAIGN_STATE_MIB and CAMPAIGN_SLOW_S say how large a value of
`app.state` is, and how long it takes to restore where a group joins.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from faults import (
    FOLDER_VARIABLE,
    RANK_POINTS,
    SLOW_VARIABLE,
    STATE_VARIABLE,
    Round,
    own_number,
)
from mpi4py import MPI

import reshape
import reshape.data.spares
import reshape.resizing.joining
import reshape.resizing.resize_points
import reshape.resizing.transaction

reshape.data.spares.SMALLEST_BYTES = 1  # the data is small
N = 500
job = own_number(os.environ)
sides = [
    "joining" if os.environ["RESHAPE_ROLE"] == "join" else "job"
]  # the last is the present one
around = Round(Path(os.environ[FOLDER_VARIABLE]))
server = os.environ["RESHAPE_SERVER"]


def reach(name: str) -> None:
    """Reach a point; those of a joining group are counted by its number."""
    group = int(os.environ["RESHAPE_GROUP"])
    before = group - 1 if sides[-1] == "joining" else None
    around.reach(f"{name} {sides[-1]}", server, job, before)


class Large:
    """A value of `app.state` of some MiB, whose restoration may outlast the deadline of a join."""

    def __init__(self, mib: float) -> None:
        self.data = np.arange(int(mib * 2**17))

    def __setstate__(self, state: dict[str, Any]) -> None:
        if sides[-1] == "joining":
            time.sleep(float(os.environ[SLOW_VARIABLE]))
        self.__dict__ = state

    def is_right(self) -> bool:
        """Whether nothing of it has changed."""
        return bool(np.array_equal(self.data, np.arange(len(self.data))))


def with_point(module: Any, name: str) -> None:
    """Let a function of a module reach a point before it runs."""
    inner: Callable[..., Any] = getattr(module, name)

    def outer(*args: Any, **more: Any) -> Any:
        reach(name)
        result = inner(*args, **more)
        if name == "adopt":
            sides.append("job")
        return result

    setattr(module, name, outer)


for function in {point.split()[0] for point in RANK_POINTS} - {"start"}:
    for module in (
        reshape.resizing.resize_points,
        reshape.resizing.transaction,
        reshape.resizing.joining,
    ):
        if hasattr(module, function):
            with_point(module, function)
reach("start")

iterations, seconds = int(sys.argv[1]), float(sys.argv[2])
with reshape.application() as app:
    if every := int(os.environ.get("CAMPAIGN_CHECKPOINT_EVERY", "0")):
        app.checkpoint(every=every)
    A = app.block_cyclic("A", (N, N), (7, 5), dtype=np.int64)
    b = app.block_cyclic("b", (N, 3), (16, 3), dtype=np.int64)
    if app.is_fresh_start:
        for array in (A, b):
            rows, columns = array.layout.global_indices(app.comm.rank)
            array.local[...] = rows[:, None] * N + columns[None, :]
        app.state["sum"] = 0
        if mib := float(os.environ.get(STATE_VARIABLE, "0")):
            app.state["large"] = Large(mib)
    for step in app.iterations(iterations):
        time.sleep(seconds)
        A.local[...] += 1
        b.local[...] += 2
        app.state["sum"] += step
    right = app.state["sum"] == iterations * (iterations - 1) // 2
    right = right and ("large" not in app.state or app.state["large"].is_right())
    for array, increment in ((A, 1), (b, 2)):
        rows, columns = array.layout.global_indices(app.comm.rank)
        expected = rows[:, None] * N + columns[None, :] + increment * iterations
        right = right and np.array_equal(array.local, expected)
    right = bool(app.comm.allreduce(bool(right), op=MPI.LAND))
    app.report(verified=right)
    if app.comm.rank == 0:
        with Path(f"result-{job}").open("a") as file:
            file.write(f"verified {right}\n")
sys.exit(0 if right else 1)
