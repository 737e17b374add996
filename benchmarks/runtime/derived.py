"""What it costs that communicators are recorded; run it under ``mpiexec -n 2 python``.

Rounds of `Split` and `Free` with and without the wrapper of `reshape.derived` alternate, so that
both see the same machine. Prints the fastest round of each, in microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mpi4py import MPI

from reshape.derived import watch

ROUNDS, PAIRS = 40, 500


def seconds(split: Callable[..., MPI.Comm]) -> float:
    """Time of one pair of calls in a round."""
    world = MPI.COMM_WORLD
    world.Barrier()
    began = time.perf_counter()
    for _ in range(PAIRS):
        split(world, 0).Free()
    return (time.perf_counter() - began) / PAIRS


def main() -> None:
    """Measure, and print a line on rank 0."""
    watch()
    recorded = MPI.Comm.Split
    plain = recorded.__wrapped__  # type: ignore[attr-defined]
    times = [(seconds(plain), seconds(recorded)) for _ in range(ROUNDS)]
    without, with_ = (min(column) * 1e6 for column in zip(*times, strict=True))
    if MPI.COMM_WORLD.rank == 0:
        print(f"ranks={MPI.COMM_WORLD.size} without={without:.2f} us with={with_:.2f} us")


if __name__ == "__main__":
    main()
