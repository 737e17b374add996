"""A queue of independent tasks, resizable: ``mpiexec -n 4 python -m apps.masterworker``.

Each task integrates the square root over a part of [0, 1] to a given tolerance; tasks near 0 take
longer. Every process has its own tasks, and no process is a master: when a process has no task
left, the remaining tasks are dealt to all processes again, as they are when the job expands or
contracts. At the end rank 0 checks that each task was done exactly once, and all results.
"""

from __future__ import annotations

import argparse
import math
import sys
from itertools import pairwise
from typing import NamedTuple

from mpi4py import MPI

import reshape
from apps.common import add_topology, conclude
from reshape.app import Application
from reshape.data.ragged import Items

TOLERANCE = 1e-9  # of one integral


class Task(NamedTuple):
    """Integrate the square root from `low` to `high`."""

    number: int
    low: float
    high: float


class TaskResult(NamedTuple):
    """Integral of the task with this number."""

    number: int
    integral: float


def integrate(low: float, high: float, tolerance: float) -> float:
    """Integral of the square root from low to high >= low >= 0 by the adaptive Simpson rule."""
    middle = (low + high) / 2
    ends, centre = math.sqrt(low) + math.sqrt(high), math.sqrt(middle)
    quarters = math.sqrt((low + middle) / 2) + math.sqrt((middle + high) / 2)
    whole = (high - low) / 6 * (ends + 4 * centre)
    halves = (high - low) / 12 * (ends + 2 * centre + 4 * quarters)
    if abs(halves - whole) <= 15 * tolerance:
        return halves + (halves - whole) / 15
    left = integrate(low, middle, tolerance / 2)
    return left + integrate(middle, high, tolerance / 2)


def work(tasks: Items, results: Items, batch: int) -> None:
    """Do at most `batch` of the tasks of this process."""
    for _ in range(min(batch, len(tasks.local))):
        task = tasks.local.pop()
        results.local.append(
            TaskResult(task.number, integrate(task.low, task.high, TOLERANCE / 10))
        )


def rebalance(comm: MPI.Intracomm, tasks: Items) -> int:
    """Collective over comm. Deal tasks again if a process has none.

    Returns
    -------
    number of tasks left.
    """
    lengths = comm.allgather(len(tasks.local))
    if min(lengths) == 0 and max(lengths) > 1:
        everything = [task for part in comm.allgather(tasks.local) for task in part]
        tasks.local[:] = everything[comm.rank :: comm.size]
    return sum(lengths)


def verify(comm: MPI.Intracomm, results: Items, count: int) -> tuple[bool, float]:
    """Collective over comm. Check that each of `count` tasks was done once.

    Returns
    -------
    whether this holds and all integrals are within the tolerance; the largest error.
    """
    parts = comm.gather(results.local)
    once, error = True, 0.0
    if parts is not None:
        done = sorted(result for part in parts for result in part)
        once = [result.number for result in done] == list(range(count))
        edges = [2 / 3 * (k / count) ** 1.5 for k in range(count + 1)] if count else []
        exact = [high - low for low, high in pairwise(edges)]
        error = max((abs(r.integral - e) for r, e in zip(done, exact, strict=once)), default=0.0)
    once, error = comm.bcast((once, error))
    return once and error <= TOLERANCE, error


def solve(app: Application, count: int, batch: int) -> bool:
    """Collective over app.comm. Do all tasks and verify; rank 0 prints the result."""
    tasks = app.items("tasks", [Task(k, k / count, (k + 1) / count) for k in range(count)])
    results = app.items("results")
    for _ in app.iterations(count):  # each iteration does at least one task
        work(tasks, results, batch)
        if rebalance(app.comm, tasks) == 0:
            break
    verified, error = verify(app.comm, results, count)
    text = f"masterworker: tasks={count} processors={app.comm.size} max error {error:.1e}"
    return conclude(app, text, verified, max_error=error)


def main() -> int:
    """Run the program; the exit code is 0 if the result is verified."""
    parser = argparse.ArgumentParser(prog="python -m apps.masterworker", description=__doc__)
    parser.add_argument("--tasks", type=int, default=1000, help="tasks (1000)")
    parser.add_argument("--batch", type=int, default=8, help="tasks in an iteration (8)")
    add_topology(parser)
    options = parser.parse_args()
    if options.tasks < 0 or options.batch < 1:
        parser.error("--tasks must be >= 0, --batch >= 1")
    with reshape.application(topology=options.topology) as app:
        verified = solve(app, options.tasks, options.batch)
    return 0 if verified else 1


if __name__ == "__main__":
    sys.exit(main())
