"""A program for the tests of the runtime: it registers data of every kind and verifies all of it.

The data must be exact after any sequence of resizes. The arguments are the number of iterations and
the seconds of an iteration; with `told.ENDLESS` iterations the program goes on until the test tells
it to end. Environment variables inject faults and change the runtime:

    KILL        group:rank:when:function; kills that process before or after a function of the
                runtime is called
    KILL_WHEN   path of a file; the process that KILL names waits for it before it dies
    KILL_FILE   path of a file that may contain the same and appear at any time
    STOP        group:rank:path; that process stops in its first move, and creates a file then
    FAULT       name of a step that fails
    MESSAGES    all data is sent by messages, as between hosts
    HOSTS       host of each rank of the group, as "1 1 2": each has its own shared memory
    RELABEL     the order of the ranks is optimized for any number of bytes
    REVERSE     the order of the ranks is reversed at each resize
    SMALLER     the first array has another shape
    SPARSE      a sparse matrix is registered, too, with a vector that follows its rows
    GRID        an array is registered whose process grid has rows of two processes
    LARGE       the first array has parts of several huge pages
    CHECK_STALE the communicator and array of before a resize are used after it, and
                MPI.COMM_WORLD at the begin of the block
    CHECKPOINT  every:directory of its checkpoints
    DIE_AT      rank:iteration; kills that process within the iteration, unless it has restarted
"""

from __future__ import annotations

import errno
import os
import pickle
import signal
import sys
import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from told import ENDLESS, may_end

import reshape

# Importing it takes as long as all else that a rank does before its first iteration.
if TYPE_CHECKING:
    from scipy.sparse import csr_array

SHAPE, BLOCK = (1501, 1047) if "LARGE" in os.environ else (61, 47), (5, 4)
LENGTH = 103
#: With padding between the fields, which is not preserved.
RECORD = np.dtype([("index", "i1"), ("when", "M8[ms]"), ("pair", ">f4", (2,))], align=True)
ION, IONS = np.dtype([("number", "i8"), ("cell", "i4", (2,))]), 50
GROUP = int(os.environ.get("RESHAPE_GROUP", "0"))


def wrap(name: str, before: Callable[..., Any] | None, after: Callable[..., Any] | None) -> None:
    """Call a function before or after each call of a function of the runtime."""
    from reshape import registrations
    from reshape.resizing import joining, move, resize_points, transaction

    for module in (registrations, resize_points, transaction, joining, move):
        if hasattr(module, name):
            function = getattr(module, name)

            def wrapped(*args: Any, function: Callable[..., Any] = function) -> Any:
                if before is not None:
                    before(*args)
                result = function(*args)
                if after is not None:
                    after(*args)
                return result

            setattr(module, name, wrapped)


def kill_self(*_: Any) -> None:
    while "KILL_WHEN" in os.environ and not os.path.exists(os.environ["KILL_WHEN"]):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def inject_faults(state: dict[str, Any], rank: int) -> None:
    """Inject the faults of this process, which has this rank in its group."""
    from reshape.data import segments, spares
    from reshape.resizing import move, rank_order

    spares.SMALLEST_BYTES = 1  # the arrays are small
    if "KILL" in os.environ:
        group, victim, when, name = os.environ["KILL"].split(":")
        if (GROUP, rank) == (int(group), int(victim)):
            wrap(name, *((kill_self, None) if when == "before" else (None, kill_self)))
    if "STOP" in os.environ:
        group, victim, path = os.environ["STOP"].split(":")
        if (GROUP, rank) == (int(group), int(victim)):

            def stop(*_: Any) -> None:
                open(path, "w").close()
                time.sleep(600)

            wrap("run", stop, None)
    if "KILL_FILE" in os.environ:
        for name in ("run", "commit"):
            for when in ("before", "after"):

                def kill_if_named(*_: Any, place: str = f"{GROUP}:{rank}:{when}:{name}") -> None:
                    if os.path.exists(os.environ["KILL_FILE"]):
                        with open(os.environ["KILL_FILE"]) as stream:
                            if stream.read() == place:
                                kill_self()

                wrap(name, *((kill_if_named, None) if when == "before" else (None, kill_if_named)))
    fault = os.environ.get("FAULT")
    if fault == "no-memory" and (GROUP, rank) == (0, 1):
        segment = spares.Spares.segment

        def refuse(own: Any, memory: Any, *rest: Any) -> Any:
            if memory.epoch:  # of the next configuration
                raise MemoryError("injected")
            return segment(own, memory, *rest)

        spares.Spares.segment = refuse
    if fault == "corrupt" and GROUP == 1 and rank == 0:

        def corrupt(comm: Any, moved: Any, *_: Any) -> None:
            if moved.array.name == "a":
                moved.segment.array[0, 0] += 1

        wrap("run", None, corrupt)
    if fault == "unmappable" and (GROUP, rank) == (1, 0):
        segments.view = refuse_to_map
    if "MESSAGES" in os.environ:
        hosts_of_ranks = move.hosts_of_ranks
        move.hosts_of_ranks = lambda job, comm, is_source: tuple(
            range(len(hosts_of_ranks(job, comm, is_source)))
        )
    if "RELABEL" in os.environ:
        rank_order.WORTH_BYTES = 0
    if "REVERSE" in os.environ:
        move.best_order = lambda comm, plans, ranks, root: tuple(ranks)[::-1]
    if fault == "unpicklable":
        state["function"] = lambda: 0
    if fault == "unloadable":
        state["picky"] = FirstGroupOnly()
    if fault == "full":

        def full(*_: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        os.posix_fallocate = full


def refuse_to_map(*_: Any) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


class FirstGroupOnly:
    """A value that can be restored in the first group only."""

    def __reduce__(self) -> tuple[Any, ...]:
        return restore_in_first_group, ()


def restore_in_first_group() -> FirstGroupOnly:
    if GROUP != 0:
        raise pickle.UnpicklingError("injected")
    return FirstGroupOnly()


def indices(array: Any, rank: int) -> np.ndarray:
    """Return the global linear index of each element of the local part."""
    grids = np.ix_(*array.layout.global_indices(rank))
    return np.ravel_multi_index(np.broadcast_arrays(*grids), array.shape).astype(array.dtype)


def records(array: Any, rank: int, done: int) -> np.ndarray:
    """Return the local part of a structured array after some iterations."""
    (rows,) = array.layout.global_indices(rank)
    expected = np.zeros(len(rows), RECORD)
    expected["index"], expected["when"] = rows, rows * 1000 + done
    expected["pair"][:, 1] = -rows
    return expected


def sparse() -> csr_array:
    """Return the whole sparse matrix: uneven rows, some of them empty, and distinct values."""
    from scipy.sparse import csr_array

    rows, columns = np.indices((53, 40))
    return csr_array(np.where(rows * columns % 13 > 14 - rows // 3, rows * 40.0 + columns, 0))


def sparse_data_is_right(comm: Any, s: Any, x: Any, done: int) -> bool:
    """Check the sparse matrix and its vector."""
    whole = sparse()
    first, last = s.layout.offsets[comm.rank : comm.rank + 2]
    own = whole[first:last]
    right = np.array_equal(s.local.indptr, own.indptr)
    right &= np.array_equal(s.local.indices, own.indices)
    right &= np.array_equal(s.local.data, own.data + done)
    right &= x.layout.offsets == s.layout.offsets
    return bool(right & np.array_equal(x.local, np.arange(first, last) + done))


def luck_of(number: int, step: int) -> int:
    """Return what an item draws in an iteration."""
    from numpy.random import PCG64DXSM, Generator, SeedSequence

    key = zlib.crc32(b"luck"), number, step
    return int(Generator(PCG64DXSM(SeedSequence(4, spawn_key=key))).integers(100))


def items_are_right(comm: Any, t: Any, done: int) -> bool:
    """Collective over comm. Check the work items."""
    items = comm.allgather(t.local)
    is_even = max(map(len, items)) - min(map(len, items)) <= 1
    lucky = range(0, done, 10)
    expected = [
        {"number": k, "text": "x" * k, "done": done, "luck": sum(luck_of(k, s) for s in lucky)}
        for k in range(23)
    ]
    return is_even and [item for own in items for item in own] == expected


def cell_of(number: Any, done: int) -> Any:
    """Cell of an ion after some iterations, in an array of shape (9, 7)."""
    return np.stack([(number * 5 + done) % 9, (number + 2 * done) % 7], axis=-1)


def ions_are_right(comm: Any, ions: Any, cells: Any) -> bool:
    """Collective over comm. Check that no ion is lost, and that each migrates to its cell."""
    ions.migrate()
    own = [set(along.tolist()) for along in cells.layout.global_indices(comm.rank)]
    right = all(i in own[0] and j in own[1] for i, j in ions.local["cell"].tolist())
    numbers = np.concatenate(comm.allgather(ions.local["number"]))
    return right and np.array_equal(np.sort(numbers), np.arange(IONS))


def throws_are_right(throws: Any, rank: int, done: int) -> bool:
    """Check the sums of the numbers that each row has drawn from its stream."""
    from numpy.random import PCG64DXSM, Generator, SeedSequence

    (rows,) = throws.layout.global_indices(rank)
    streams = [SeedSequence(3, spawn_key=(zlib.crc32(b"dice"), row)) for row in rows]
    numbers = [Generator(PCG64DXSM(s)).integers(100, size=done, dtype=np.int32) for s in streams]
    return bool(np.array_equal(throws.local, np.sum(numbers, axis=1) if len(rows) else []))


def halo_is_right(comm: Any, b: Any, done: int) -> bool:
    """Collective over comm. Check a block array with its halo against the whole array."""
    whole = np.arange(np.prod(b.shape)).reshape(b.shape) + done
    with_halo = b.exchange(outside=-1)
    right = np.array_equal(b.local, indices(b, comm.rank) + done)
    if b.local.size:
        whole = np.pad(whole, [(2, 2), (0, 0)], mode="wrap")
        whole = np.pad(whole, [(0, 0), (1, 1)], constant_values=-1)
        rows, columns = b.layout.global_indices(comm.rank)
        own = whole[rows[0] : rows[-1] + 5, columns[0] : columns[-1] + 3]
        right &= np.array_equal(with_halo, own)
    return bool(right)


def check_stale(app: Any, comm: Any, local: np.ndarray) -> None:
    """Check that communicator and array of before a resize cannot be used."""
    from mpi4py import MPI

    try:
        comm.Barrier()
    except MPI.Exception:
        try:
            local[0] = 0
        except ValueError:
            print("stale communicator raises, stale array is read-only", flush=True)


def main() -> None:
    total, seconds = int(sys.argv[1]), float(sys.argv[2])
    from mpi4py import MPI

    world_rank = MPI.COMM_WORLD.rank
    if "HOSTS" in os.environ:
        host = os.environ["HOSTS"].split()[world_rank]
        os.environ["RESHAPE_SHM"] += f"-{host}"
        os.makedirs(os.environ["RESHAPE_SHM"], 0o700, exist_ok=True)
    with reshape.application(topology="arbitrary", verify=True) as app:
        if "CHECKPOINT" in os.environ:
            every, directory = os.environ["CHECKPOINT"].split(":")
            app.checkpoint(every=int(every) if every.isdecimal() else every, dir=directory)
        inject_faults(app.state, world_rank)
        if "CHECK_STALE" in os.environ and MPI.COMM_WORLD == MPI.COMM_NULL:
            print("COMM_WORLD is retired", flush=True)
        shape = (SHAPE[0] - 1, SHAPE[1]) if "SMALLER" in os.environ else SHAPE
        a = app.block_cyclic("a", shape, BLOCK)
        f = app.block_cyclic("f", SHAPE, (3, 7), dtype=np.int32, order="F")
        v = app.block_cyclic("v", (LENGTH,), (4,), dtype=np.float32)
        u = app.rows("u", (LENGTH, 3), dtype=np.complex128)
        w = app.rows("w", (2, 5), axis=1)  # has empty parts on 6 or more processes
        b = app.blocks("b", (9, 7), halo=(2, 1), periodic=(True, False), dtype=np.int64)
        p = app.replicated("p", np.arange(11.0))
        r = app.rows("r", (LENGTH,), dtype=RECORD)
        fields = app.blocks("fields", (3, 9, 7), dtype=np.int64, cut=(1, 2), like=b)
        edges = app.blocks("edges", (10, 7), halo=0, like=b)
        column = app.blocks("column", (9,), cut=(0, None), like=b)
        slices = app.block_cyclic("slices", (2, *SHAPE), cut=(1, 2), like=a, dtype=np.int16)
        indexed = [
            a,
            f,
            v,
            u,
            w,
            b,
            fields,
            edges,
            column,
            slices,
        ]  # each element is its index, plus one for each iteration
        if "GRID" in os.environ:
            indexed.append(app.blocks("pairs", (9, 7), grid=(0, 2)))
        if "SPARSE" in os.environ:
            s = app.csr("s", (53, 40), balance="entries")
            if app.is_fresh_start:
                s.assemble(sparse() if app.comm.rank == 0 else None)
            x = app.rows("x", (53,), like=s)
            indexed += [x, app.blocks("y", (2, 54), cut=(1,), like=s)]
        dice = app.rng("dice", like=u, seed=3)
        throws = app.rows("throws", (LENGTH,), dtype=np.int32, like=u)
        noise = app.rng("noise")
        ions = app.particles("ions", ION, like=b, cell=lambda ions: ions["cell"])
        crumbs = app.particles("crumbs", "i4")
        zeros = {"done": 0, "luck": 0}
        t = app.items("t", [{"number": k, "text": "x" * k, **zeros} for k in range(23)])
        luck = app.rng("luck", like=t, seed=4)
        if app.is_fresh_start:
            for array in indexed:
                array.local[...] = indices(array, app.comm.rank)
            r.local[...] = records(r, app.comm.rank, 0)
            if app.comm.rank == 0:
                ions.local = np.array([(k, cell_of(k, 0)) for k in range(IONS)], ION)
            crumbs.local = np.arange(app.comm.rank * 7, (app.comm.rank + 1) * 7, dtype="i4")
            app.state["crumbs"] = app.comm.size * 7
            app.state["sizes"], app.state["noise"] = [], []
        old = (app.comm, a.local) if "CHECK_STALE" in os.environ else None
        done, right = 0, True
        for step in app.iterations(total):
            if old is not None and app.comm is not old[0]:
                check_stale(app, *old)
                old = None
            if app.state["sizes"][-1:] != [app.comm.size]:
                app.state["sizes"].append(app.comm.size)
            right &= halo_is_right(app.comm, b, step)
            time.sleep(seconds)
            if app.is_fresh_start and os.environ.get("DIE_AT") == f"{app.comm.rank}:{step}":
                kill_self()
            for array in indexed:
                array.local[...] += 1
            ions.local["cell"] = cell_of(ions.local["number"], step + 1)
            if step % 3 == 1:  # at other resize points some are in the cells of other processes
                ions.migrate()
            for row, generator in enumerate(dice.local):
                throws.local[row] += generator.integers(100, dtype=np.int32)
            app.state["noise"] += app.comm.allgather(int(noise.local.integers(2**63)))
            if "SPARSE" in os.environ:
                s.local.data += 1
            for item in t.local:
                item["done"] += 1
                if step % 10 == 0:
                    item["luck"] += int(luck.of(item["number"], step).integers(100))
            r.local["when"] += 1
            p.local[...] += app.comm.allreduce(step) / app.comm.size
            done = step + 1
            if total == ENDLESS and may_end(app.comm):
                break
        rank = app.comm.rank
        right &= all(np.array_equal(x.local, indices(x, rank) + done) for x in indexed)
        right &= r.local.dtype == RECORD and np.array_equal(r.local, records(r, rank, done))
        right &= items_are_right(app.comm, t, done)
        right &= ions_are_right(app.comm, ions, b)
        every = np.concatenate(app.comm.allgather(crumbs.local))
        right &= np.array_equal(every, np.arange(app.state["crumbs"]))
        right &= throws_are_right(throws, rank, done)
        right &= len(set(app.state["noise"])) == len(app.state["noise"]) >= done
        if "SPARSE" in os.environ:
            right &= sparse_data_is_right(app.comm, s, x, done)
        right &= np.array_equal(p.local, np.arange(11.0) + done * (done - 1) / 2)
        right = app.comm.allreduce(int(right)) == app.comm.size
        app.report(verified=right, size=app.comm.size)
        if rank == 0:
            print("sizes", *app.state["sizes"], "right" if right else "WRONG", flush=True)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
