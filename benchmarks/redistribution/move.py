"""Speed of moves of block-cyclic matrices: by messages, by shared memory, by ScaLAPACK's pdgemr2d.

    python benchmarks/redistribution/move.py [--n 4096] [--ranks 2] [--all] [--kinds]

The program starts mpiexec once for each number of ranks. In one run, all methods move the same
arrays of doubles on the same processes, in turn with a copy of as many bytes as the target parts
have by all ranks at the same time (memcpy). Times are medians, from the start of the first rank to
the end of the last one. Every result of every method is checked element by element before timing.

Pages are the same for all methods: arrays are reused, and sources, targets and all that pdgemr2d
allocates are on huge pages, which the allocator does not free. Moves by shared memory read their
sources from /dev/shm, with its pages.

"messages" are moves by `Plan.run`, which on one host go through mailboxes, unless they are large
and MPI copies them out of the arrays. "shared memory" is `Plan.gather` and a meeting of all ranks.

With --kinds the other kinds of layouts of registered data are moved beside block-cyclic matrices.

With --no-cma MPICH behaves as on systems where a process may not read the memory of another one.

"prepared", for small matrices only, is a plan bound to its arrays. "transport alone" sends as many
bytes between the same ranks out of and into reused buffers: the lower limit for any method with
messages. The memory that moves by messages need besides the arrays is the increase of the peak of
resident pages, measured from an empty pool of buffers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from pages import extra_memory, mapped, on_huge_pages
from scalapack import Pdgemr2d, directory_for

from redistribution import BlockCyclic, Blocks, Cuts, Dealt, Layout, Plan
from redistribution.axes import even_offsets, fitted_offsets

#: Moves in succession that are timed together where many ranks share a core.
IN_SUCCESSION = 10
METHODS = ("messages", "prepared", "shared memory", "transport alone", "pdgemr2d")

COLUMNS = ("ratio_to_pdgemr2d", "fraction_of_memcpy")

# glibc: memory on huge pages, from the heap only, and kept when it is freed.
HUGE_AND_KEPT = ":".join(
    f"glibc.malloc.{name}"
    for name in ("hugetlb=1", "mmap_max=0", "trim_threshold=100000000000", "top_pad=67108864")
)


Kind = Literal["cyclic", "blocks", "components", "staggered", "copies", "dealt"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Case(NamedTuple):
    """A move of n x n elements, or about as many, from one process grid to another.

    Attributes
    ----------
    blocks : extents of the square blocks of a block-cyclic matrix before and after the move.
    kind : "cyclic"; "blocks"; "components": 4 fields that are not divided; "staggered": n + 1 rows;
        "copies": half as many elements, along the first dimension of the grid; "dealt": particles,
        of which each process has as many for each of the others.
    """

    n: int
    blocks: tuple[int, int]
    grids: tuple[tuple[int, int], tuple[int, int]]
    kind: Kind = "cyclic"

    def __str__(self) -> str:
        """Like ``4096 b64 1x2->2x2``."""
        before, after = self.blocks
        block = f"b{before}" if before == after else f"b{before}->{after}"
        block = block if self.kind == "cyclic" else self.kind
        return f"{self.n} {block} " + "->".join("x".join(map(str, grid)) for grid in self.grids)

    @property
    def plan(self) -> Plan:
        """The move, with process p of either grid on rank p."""
        if self.kind == "dealt":
            before, after = map(math.prod, self.grids)
            source = Cuts.even((self.n * self.n,), before)
            bundles = Cuts.even(source.shape, before * after)
            owners = tuple(range(after)) * before
            return Plan(source, Dealt(source.shape, bundles.offsets, owners, after))
        return Plan(*map(self._layout, self.blocks, self.grids))

    def _layout(self, block: int, grid: tuple[int, int]) -> Layout:
        n = self.n
        if self.kind == "cyclic":
            return BlockCyclic((n, n), (block, block), grid)
        if self.kind == "components":
            return Blocks((4, n // 2, n // 2), grid, cut=(1, 2))
        if self.kind == "staggered":
            rows = fitted_offsets(even_offsets(n, grid[0]), n + 1)
            return Blocks((n + 1, n), grid, offsets=(rows, None))
        if self.kind == "copies":
            return Blocks((n * n // 2,), grid, cut=(0, None))
        return Blocks((n, n), grid)


BLOCKS = [(8, 8), (32, 32), (64, 64), (100, 100), (256, 256), (31, 32)]
MORE_BLOCKS = [(64, 100), (7, 5), (8, 256)]
PAIRS = [((1, 2), (2, 1)), ((1, 2), (2, 2)), ((2, 2), (2, 3))]
MORE_PAIRS = [((1, 1), (1, 2)), ((4, 4), (4, 6)), ((4, 8), (8, 4))]


def main() -> None:
    """Parse the options, start one world for each number of ranks, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--n", type=int, nargs="+", metavar="N", help="default: 64 256 2048 4096")
    parser.add_argument("--ranks", type=int, nargs="+", metavar="N", help="only these worlds")
    parser.add_argument("--blocks", type=int, nargs="+", metavar="B", help="only these blocks")
    parser.add_argument(
        "--kinds", action="store_true", help="all kinds of layouts beside block-cyclic ones of b64"
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--all", action="store_true", help="n to 8192 and all grids; this takes long"
    )
    parser.add_argument(
        "--no-cma", action="store_true", help="no rank may read the memory of another"
    )
    parser.add_argument("--json", action="store_true", help="rows as JSON")
    parser.add_argument("--rank", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = options.n or ([64, 256, 1024, 2048, 4096, 8192] if options.all else [64, 256, 4096])
    chosen = BLOCKS + (MORE_BLOCKS if options.all else [])
    pairs = PAIRS + (MORE_PAIRS if options.all else [])
    pairs += [(after, before) for before, after in pairs]
    cases = [Case(n, blocks, grids) for grids in pairs for n in sizes for blocks in chosen]
    if options.kinds:
        cases = [Case(n, (64, 64), grids, kind) for grids in pairs for n in sizes for kind in KINDS]
    # Times of microseconds are meaningless if ranks share a core.
    cores = len(os.sched_getaffinity(0))
    cases = [case for case in cases if case.n >= 1000 or case.plan.size <= cores]
    if options.blocks:
        cases = [case for case in cases if set(case.blocks) <= set(options.blocks)]
    if options.rank:
        run_rank(cases, options.repeats, Path(options.rank))
        return
    rows = []
    for ranks in sorted({case.plan.size for case in cases}):
        if options.ranks is None or ranks in options.ranks:
            rows += rows_of_world(ranks, sys.argv[1:], options.no_cma)
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        print_table(rows)


def rows_of_world(ranks: int, arguments: list[str], no_cma: bool) -> list[dict[str, Any]]:
    """Run this file on ``ranks`` ranks and return the rows that rank 0 prints."""
    hidden = ("PMI", "HYDRA", "HYDI", "MPI_LOCAL", "MPIR")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    scripts = Path(sys.executable).parent
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="benchmark-") as folder:
        library_path = directory_for(scripts.parent / "lib" / "libmpi.so.12", Path(folder))
        if library_path is not None:
            environment["LD_LIBRARY_PATH"] = str(library_path)
        environment["GLIBC_TUNABLES"] = HUGE_AND_KEPT
        if no_cma:
            environment["MPIR_CVAR_CH4_CMA_ENABLE"] = "0"
        command = [scripts / "mpiexec", "-n", ranks, sys.executable, __file__, *arguments]
        command += ["--rank", folder]
        done = subprocess.run(
            [str(word) for word in command], env=environment, stdout=subprocess.PIPE, check=True
        )
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print one line for each case and method, then a summary by kinds of blocks."""
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores; more ranks than that share cores")
    if not any(row["method"] == "pdgemr2d" for row in rows):
        print("pdgemr2d: absent (Debian: libscalapack-mpich-dev), so there are no ratios to it")
    print(f"{'case':24} {'ranks':>5} {'method':>15} {'ms':>9} {'/pdgemr2d':>10} {'/memcpy':>8}")
    for row in rows:
        ratio = row["ratio_to_pdgemr2d"]
        print(
            f"{row['case']:24} {row['ranks']:5} {row['method']:>15} {row['ms']:9.3f} "
            f"{'' if ratio is None else f'{ratio:.2f}':>10} {row['fraction_of_memcpy']:8.2f}"
        )
    print_summary(rows)


def print_summary(rows: list[dict[str, Any]]) -> None:
    """Print figures of each method over all large cases with one kind of blocks."""
    print("\nn >= 1024: median (least) over the cases")
    print(f"{'':43} {'/pdgemr2d':>13} {'/memcpy':>13}")
    large = [row for row in rows if int(row["case"].split()[0]) >= 1024]
    for ranks, kind, method in product(
        sorted({row["ranks"] for row in large}), ("b >= 32", "b8", "b differs", *KINDS[1:]), METHODS
    ):
        chosen = [
            row
            for row in large
            if (row["ranks"], kind_of(row["case"]), row["method"]) == (ranks, kind, method)
        ]
        if chosen:
            line = f"{ranks:3} ranks {kind:10} {len(chosen):2} cases {method:>15}"
            for name in COLUMNS:
                values = [row[name] for row in chosen if row[name] is not None]
                words = f"{statistics.median(values):.2f} ({min(values):.2f})" if values else ""
                line += f" {words:>13}"
            print(line)
    for method in METHODS:
        chosen = [row for row in large if row["method"] == method and row["extra_megabytes"]]
        if chosen:
            most, part = (max(row[k] for row in chosen) for k in ("extra_megabytes", "extra_parts"))
            print(
                f"{method}: at most {most:.0f} MB beside the arrays, {part:.2f} of the larger one"
            )


def kind_of(case: str) -> str:
    """Kind of blocks of a case, as the goals distinguish them, or of layouts."""
    block = case.split()[1]
    if block in KINDS:
        return block
    return "b differs" if "->" in block else "b8" if block == "b8" else "b >= 32"


def run_rank(cases: list[Case], repeats: int, folder: Path) -> None:
    """Collective over MPI.COMM_WORLD. Measure the cases that need exactly its size."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rows = []
    try:
        for case in cases:
            if case.plan.size == comm.size:
                rows += rows_of_case(comm, case, repeats, folder)
    except BaseException:
        # Without this the other ranks would wait forever.
        traceback.print_exc()
        comm.Abort(1)
    if comm.rank == 0:
        print(json.dumps(rows))


def rows_of_case(comm: Any, case: Case, repeats: int, folder: Path) -> list[dict[str, Any]]:
    """Collective over comm. Check and time every method for one case."""
    from mpi4py import MPI

    plan, rank = case.plan, comm.rank
    sources = shared_sources(comm, plan.source, folder)
    a = None
    if rank in plan.source_process:
        a = on_huge_pages(sources[rank].shape)
        a[...] = sources[rank]
    expected = part_of(plan.target, rank)
    b = None if expected is None else on_huge_pages(expected.shape)
    kept = None if expected is None else on_huge_pages(expected.shape)
    if kept is not None:
        kept[...] = expected

    def gather() -> None:
        if b is not None:
            plan.gather(rank, sources, b)
        meet(comm)  # sources must not change until all ranks have read them

    def copy() -> None:
        if b is not None:
            np.copyto(b, kept)

    is_small = case.n < 1000
    methods: dict[str, Callable[[], None]] = {
        "messages": lambda: plan.run(comm, a, b, order="F"),
        "shared memory": gather,
    }
    if is_small:
        methods["prepared"] = plan.prepare(comm, a, b, order="F").run
    peer = None
    try:
        if case.kind == "cyclic":
            peer = Pdgemr2d(comm, plan.source, plan.target, a, b)
            methods["pdgemr2d"] = peer.run
    except OSError:
        pass
    for name, method in methods.items():
        if b is not None:
            b[...] = -1
        comm.Barrier()
        method()
        right = b is None or np.array_equal(b, expected)
        if not comm.allreduce(right, MPI.LAND):
            raise AssertionError(f"{case}: {name} put wrong elements on a rank")
    part = max(0 if array is None else array.nbytes for array in (a, b))
    memory = {"messages": extra_memory(comm, methods["messages"], part)}
    methods["transport alone"] = transport(comm, plan)
    rounds = 20 * repeats if is_small else repeats
    times = timed_ms(comm, methods | {"memcpy": copy}, rounds)
    if peer is not None:
        peer.free()

    def ratio(other: str, name: str) -> float | None:
        return times[other] / times[name] if other in times else None

    return [
        {
            "case": str(case),
            "ranks": comm.size,
            "method": name,
            "ms": times[name],
            "ratio_to_pdgemr2d": ratio("pdgemr2d", name),
            "fraction_of_memcpy": ratio("memcpy", name),
            "memcpy_ms": times["memcpy"],
            "megabytes_moved": plan.bytes_moved(8) / 1e6,
            "extra_megabytes": memory.get(name, (None, None))[0],
            "extra_parts": memory.get(name, (None, None))[1],
        }
        for name in methods
    ]


def transport(comm: Any, plan: Plan) -> Callable[[], None]:
    """Function, collective over comm, that sends the messages of a plan without packing."""
    from redistribution.messages.arguments import TAG
    from redistribution.messages.waiting import wait

    incoming, outgoing = (
        [(np.ones(t.elements), t.peer, TAG) for t in transfers if t.peer != comm.rank]
        for transfers in (plan.incoming(comm.rank), plan.outgoing(comm.rank))
    )

    def action() -> None:
        receives = [comm.Irecv(*message) for message in incoming]
        wait(receives + [comm.Isend(*message) for message in outgoing])

    return action


def shared_sources(comm: Any, layout: Layout, folder: Path) -> dict[int, np.ndarray]:
    """Collective over comm. Local source array of every process, mapped by every rank."""
    mine = part_of(layout, comm.rank)
    if mine is not None:
        mapped(folder / f"{comm.rank}", mine.shape)[...] = mine
    comm.Barrier()
    sources = {p: mapped(folder / f"{p}", layout.local_shape(p)) for p in range(layout.nprocs)}
    comm.Barrier()
    if mine is not None:
        (folder / f"{comm.rank}").unlink(missing_ok=True)
    return sources


def part_of(layout: Layout, process: int) -> np.ndarray | None:
    """Local part of the array of row-major linear indices; None if there is no such process."""
    if process >= layout.nprocs:
        return None
    strides = [math.prod(layout.shape[axis + 1 :]) for axis in range(len(layout.shape))]
    indices = zip(layout.global_indices(process), strides, strict=True)
    linear = reduce(np.add.outer, (along * stride for along, stride in indices))
    return np.asfortranarray(linear, dtype=np.float64)


def barrier(comm: Any) -> None:
    """Collective over comm. Ranks that wait leave shared cores to the others."""
    from redistribution.messages.waiting import may_share_cores, wait

    if may_share_cores(comm):
        wait([comm.Ibarrier()])
    else:
        comm.Barrier()


def meet(comm: Any) -> None:
    """Collective over comm. A barrier in the memory that the ranks share, once there is one."""
    from redistribution.messages.mailboxes import CommunicatorUse

    mailboxes = CommunicatorUse.of(comm).mailboxes
    if mailboxes is None:
        barrier(comm)
    else:
        mailboxes.meet(0)


def timed_ms(comm: Any, actions: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Collective over comm. Median times of actions that are run in turn, in ms.

    Times are from the first start to the last end on all ranks, which must be on one node, where
    they share a clock. With more ranks than cores, the time of a single rank is meaningless. If
    more than four ranks share a core, the last one leaves a barrier tens of milliseconds after the
    first one, so that the time of an action is that of several in succession, divided by their
    number.
    """
    from mpi4py import MPI

    times_each = IN_SUCCESSION if comm.size > 4 * len(os.sched_getaffinity(0)) else 1
    starts, ends = np.zeros((2, len(actions), repeats))
    for turn in range(repeats):
        for k, action in enumerate(actions.values()):
            barrier(comm)
            starts[k, turn] = time.monotonic()
            for _ in range(times_each):
                action()
            ends[k, turn] = time.monotonic()
    comm.Allreduce(MPI.IN_PLACE, starts, MPI.MIN)
    comm.Allreduce(MPI.IN_PLACE, ends, MPI.MAX)
    medians = np.median(1e3 * (ends - starts) / times_each, axis=1)
    return dict(zip(actions, medians.tolist(), strict=True))


if __name__ == "__main__":
    main()
