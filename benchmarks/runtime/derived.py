"""What it costs that communicators are recorded; run it under ``mpiexec -n 2 python``.

Rounds of `Split` and `Free` alternate, without the wrappers of `reshape.ranks.derived`, with them,
and with those of a job that was resized, so that all see the same machine. Prints the fastest of
each.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mpi4py import MPI

from reshape.ranks.derived import retire_derived, watch

ROUNDS, PAIRS = 40, 500


def seconds(split: Callable[..., MPI.Comm], free: Callable[[MPI.Comm], None]) -> float:
    """Time of one pair of calls in a round."""
    world = MPI.COMM_WORLD
    world.Barrier()
    began = time.perf_counter()
    for _ in range(PAIRS):
        free(split(world, 0))
    return (time.perf_counter() - began) / PAIRS


def main() -> None:
    """Measure, and print a line on rank 0."""
    watch()
    recorded, free = MPI.Comm.Split, MPI.Comm.Free
    plain = recorded.__wrapped__  # type: ignore[attr-defined]
    retire_derived(MPI.COMM_WORLD.size)  # as a resize does
    kinds = {"without": (plain, free), "with": (recorded, free)}
    kinds["after a resize"] = (recorded, MPI.Comm.Free)
    times = [[seconds(*calls) for calls in kinds.values()] for _ in range(ROUNDS)]
    fastest = [min(column) * 1e6 for column in zip(*times, strict=True)]
    if MPI.COMM_WORLD.rank == 0:
        texts = [f"{kind}={us:.2f} us" for kind, us in zip(kinds, fastest, strict=True)]
        print(f"ranks={MPI.COMM_WORLD.size}", *texts)


if __name__ == "__main__":
    main()
