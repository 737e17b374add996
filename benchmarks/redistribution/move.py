"""How fast block-cyclic matrices move, against memcpy on the same ranks in the same run.

    python benchmarks/redistribution/move.py [--n 2048 4096] [--ranks 2 4] [--repeats 9] [--json]

Starts mpiexec itself, once for each number of ranks. For each case: the median time of a planned
move between warm arrays of doubles, from the first rank's start to the last rank's end, and the
time in which all ranks copy memory of the size of their destination share at once. Every result
is checked element by element before it is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from redistribution import BlockCyclic, Plan


class Case(NamedTuple):
    """An n x n matrix in square blocks that goes from one process grid to another."""

    n: int
    blocks: tuple[int, int]
    grids: tuple[tuple[int, int], tuple[int, int]]

    def __str__(self) -> str:
        """Like ``4096 b64 1x2->2x2``."""
        before, after = self.blocks
        block = f"b{before}" if before == after else f"b{before}->{after}"
        return f"{self.n} {block} " + "->".join("x".join(map(str, grid)) for grid in self.grids)

    @property
    def plan(self) -> Plan:
        """The move, with process p of either grid on rank p."""
        source, target = (
            BlockCyclic((self.n, self.n), (block, block), grid)
            for block, grid in zip(self.blocks, self.grids, strict=True)
        )
        return Plan(source, target)


BLOCKS = [(8, 8), (32, 32), (64, 64), (100, 100), (256, 256), (64, 100), (8, 256), (31, 32)]
GRIDS = [((1, 1), (1, 2)), ((1, 2), (2, 1)), ((1, 2), (2, 2)), ((2, 2), (1, 2)), ((2, 2), (2, 3))]


def main() -> None:
    """Parse the options, start one world for each number of ranks, print what they measured."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, nargs="+", default=[64, 256, 2048, 4096], metavar="N")
    parser.add_argument("--ranks", type=int, nargs="+", metavar="N", help="only these worlds")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="rows as JSON")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = [Case(n, blocks, grids) for grids in GRIDS for n in options.n for blocks in BLOCKS]
    if options.rank:
        measure_on_this_rank(cases, options.repeats)
        return
    rows = []
    for ranks in sorted({case.plan.size for case in cases}):
        if options.ranks is None or ranks in options.ranks:
            rows += rows_of_world(ranks, sys.argv[1:])
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'case':28} {'ranks':>5} {'MB moved':>9} {'ms':>9} {'memcpy ms':>9} {'fraction':>8}")
    for row in rows:
        print(
            f"{row['case']:28} {row['ranks']:5} {row['megabytes_moved']:9.2f} {row['ms']:9.3f} "
            f"{row['memcpy_ms']:9.3f} {row['fraction_of_memcpy']:8.2f}"
        )


def rows_of_world(ranks: int, arguments: list[str]) -> list[dict[str, Any]]:
    """Start this file on ``ranks`` ranks; the rows its rank 0 prints."""
    hidden = ("PMI", "HYDRA", "HYDI", "MPI_LOCAL", "MPIR")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [str(mpiexec), "-n", str(ranks), sys.executable, __file__, "--rank", *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def measure_on_this_rank(cases: list[Case], repeats: int) -> None:
    """Collective over the world. Measure the cases that need exactly its size."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rows = []
    for case in cases:
        plan = case.plan
        if plan.size != comm.size:
            continue
        a, b = part_of(plan.source, comm.rank), part_of(plan.target, comm.rank)
        expected = None if b is None else b.copy()
        if b is not None:
            b[...] = -1
        plan.run(comm, a, b)
        right = b is None or np.array_equal(b, expected)
        if not comm.allreduce(right, MPI.LAND):
            raise SystemExit(f"{case}: wrong elements on rank {comm.rank}")

        def copy(expected: Any = expected, b: Any = b) -> None:
            if b is not None:
                np.copyto(b, expected)

        def move(plan: Plan = plan, a: Any = a, b: Any = b) -> None:
            plan.run(comm, a, b)

        often = repeats if case.n > 1000 else 20 * repeats
        moving, copying = median_ms(comm, move, often), median_ms(comm, copy, often)
        rows.append(
            {
                "case": str(case),
                "ranks": comm.size,
                "method": "messages",
                "megabytes_moved": plan.bytes_moved(8) / 1e6,
                "ms": moving,
                "memcpy_ms": copying,
                "fraction_of_memcpy": copying / moving,
            }
        )
    if comm.rank == 0:
        print(json.dumps(rows))


def part_of(layout: BlockCyclic, process: int) -> np.ndarray | None:
    """Local part of the matrix whose elements count through it row by row, if there is one."""
    if process >= layout.nprocs:
        return None
    i, j = layout.global_indices(process)
    return (i[:, np.newaxis] * layout.shape[1] + j).astype(np.float64)


def median_ms(comm: Any, action: Any, repeats: int) -> float:
    """Collective over comm. Median over repeats of the time from the first start to the last end.

    All ranks must be on one node, where they share a clock. (With more ranks than cores, a rank's
    own time tells nothing: the others compute before and after it.)
    """
    from mpi4py import MPI

    times = []
    for _ in range(repeats):
        comm.Barrier()
        start = time.monotonic()
        action()
        end = time.monotonic()
        times.append(comm.allreduce(end, MPI.MAX) - comm.allreduce(start, MPI.MIN))
    return 1e3 * statistics.median(times)


if __name__ == "__main__":
    main()
