"""Time of planning on one rank of a large machine, and savings by relabelling ranks.

    python benchmarks/redistribution/planning.py [--repeats 9]

Needs no MPI. The time is that of computing all transfers of one rank, with empty caches.
"""

from __future__ import annotations

import argparse
import statistics
import time

from redistribution import BlockCyclic, Plan, relabel
from redistribution.runs import cached_joint_axis

MACHINE = ((32, 32), (32, 40))
BLOCKS = [(64, 64), (64, 100), (100, 64), (31, 32)]

# n, blocks and grids, each before and after.
RELABELLED = [
    (8192, (64, 64), ((1, 2), (2, 2))),
    (8192, (64, 64), ((2, 2), (2, 3))),
    (4096, (64, 64), ((4, 4), (4, 6))),
    (8192, (64, 64), ((4, 8), (8, 4))),
    (8192, (128, 103), ((1, 64), (1, 80))),
]


def main() -> None:
    """Parse the options and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    print(f"{'planning for one rank':32} {'median ms':>9} {'best ms':>9}")
    for blocks in BLOCKS:
        times = [planning_ms(100_000, blocks, MACHINE) for _ in range(repeats)]
        name = described(100_000, blocks, MACHINE)
        print(f"{name:32} {statistics.median(times):9.2f} {min(times):9.2f}")
    print(f"\n{'relabelling':32} {'saves %':>9} {'ms':>9}")
    import scipy.optimize  # noqa: F401 - otherwise the first call loads it

    for case in RELABELLED:
        source, target = layouts(*case)
        start = time.perf_counter()
        ranks = relabel([(Plan(source, target), 8)], range(target.nprocs))
        spent = 1e3 * (time.perf_counter() - start)
        moved = Plan(source, target, None, ranks).bytes_moved(8)
        saved = 100 * (1 - moved / Plan(source, target).bytes_moved(8))
        print(f"{described(*case):32} {saved:9.0f} {spent:9.2f}")


def planning_ms(n: int, blocks: tuple[int, int], grids: tuple[tuple[int, int], ...]) -> float:
    """Time to compute all transfers of rank 77, in ms."""
    source, target = layouts(n, blocks, grids)
    cached_joint_axis.cache_clear()
    start = time.perf_counter()
    plan = Plan(source, target)
    plan.outgoing(77)
    plan.incoming(77)
    return 1e3 * (time.perf_counter() - start)


def layouts(
    n: int, blocks: tuple[int, int], grids: tuple[tuple[int, int], ...]
) -> list[BlockCyclic]:
    """Source and target of an n x n matrix."""
    return [
        BlockCyclic((n, n), (block, block), grid) for block, grid in zip(blocks, grids, strict=True)
    ]


def described(n: int, blocks: tuple[int, int], grids: tuple[tuple[int, int], ...]) -> str:
    """Like ``8192 b64->100 1x2->2x2``."""
    before, after = blocks
    block = f"b{before}" if before == after else f"b{before}->{after}"
    return f"{n} {block} " + "->".join("x".join(map(str, grid)) for grid in grids)


if __name__ == "__main__":
    main()
