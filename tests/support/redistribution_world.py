"""Moves on real ranks: ``mpiexec -n SIZE python redistribution_world.py SIZE SEED CASES``."""

import re
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from redistribution_cases import draw_case, empty_part, index_valued, local_part

from redistribution import BlockCyclic, Cuts, Plan, checksum
from redistribution.copies import buffers, kernel
from redistribution.copies import copying as packing
from redistribution.messages import datatypes as derived
from redistribution.messages import prepared
from redistribution.plan import EXTRA_BYTES

LIBRARY = kernel.compiled
DERIVED = derived.SENT_BYTES, derived.RECEIVED_BYTES, derived.SENT_LIST


def main(size, seed, cases):
    comm = MPI.COMM_WORLD
    assert comm.size == size, f"started on {comm.size} ranks, not on {size}"
    rng = np.random.default_rng(seed)  # the same stream on every rank
    moved = 0
    for case in range(cases):
        moved += move(comm, rng, f"case {case} of seed {seed}")
    derived.SENT_BYTES, derived.RECEIVED_BYTES, derived.SENT_LIST = DERIVED
    extra_memory_is_bounded(comm)
    stretches_far_apart(comm)
    # Little memory for messages does to small arrays what the default does to large ones.
    buffers.SMALL_BYTES, buffers.KEPT_BYTES = 20, 300
    for case in range(cases, cases + cases // 2):
        buffers.clear()
        moved += move(comm, rng, f"case {case} of seed {seed}", int(rng.integers(1, 600)))
    assert sum(buffer.size for buffer in buffers._kept) <= 300
    follow_one_another(comm, 20)
    prepared.SMALL_BYTES = 1 << 20
    prepared_moves_run_again(comm, rng, cases // 2)
    the_same_arrays_run_again(comm)
    few_plans_keep_their_runs(comm)
    errors_reach_every_rank(comm)
    if comm.rank == 0:
        print(f"{cases} moves right on {size} ranks, {moved} bytes crossed")


def move(comm, rng, name, max_extra_bytes=EXTRA_BYTES):
    """One random move, compared with the global array and by checksum.

    Each rank has compiled copies or not, written past the caches or not, is prepared for a small
    move or not, and leaves short stretches to MPI or not, as it happens.
    """

    def integer(low, high):
        return int(rng.integers(low, high + 1))

    # With little memory, large arrays would travel in millions of messages.
    is_small = bool(integer(0, 3)) or max_extra_bytes < EXTRA_BYTES
    case = draw_case(integer, comm.size, largest=24 if is_small else 300)
    plan, rank = case.plan, comm.rank
    array = index_valued(plan.source.shape, case.dtype)
    a = b = None
    own = np.random.default_rng([integer(0, 2**30), rank])
    compiled, past_caches, small = own.integers(0, 2, 3)
    derived.SENT_BYTES, derived.RECEIVED_BYTES, derived.SENT_LIST = own.choice([1, 24, 1 << 16], 3)
    kernel.compiled = LIBRARY if compiled else None
    packing.KERNEL_BYTES, packing.LARGE_BYTES = 1, 0 if past_caches else 1 << 23
    prepared.SMALL_BYTES = 1 << 20 if small else 0
    before = after = 0
    if (p := plan.source_process.get(rank)) is not None:
        a = local_part(plan.source, p, array, case.a_kind)
        before = checksum(plan.source, p, a)
    if (q := plan.target_process.get(rank)) is not None:
        b = empty_part(plan.target, q, case.dtype, case.b_kind)
    plan.run(comm, a, b, order=case.order, max_extra_bytes=max_extra_bytes)
    if q is not None:
        expected = array[np.ix_(*plan.target.global_indices(q))]
        np.testing.assert_array_equal(b, expected, err_msg=f"{name} on rank {rank}: {case}")
        after = checksum(plan.target, q, b)
    sums = comm.allreduce(np.array([before, after], np.uint64))
    assert sums[0] == sums[1], f"{name}: checksums {sums} differ"
    return plan.bytes_moved(case.dtype.itemsize)


def prepared_moves_run_again(comm, rng, cases):
    """Bound once, run often on changing contents, small and large ranks of a world together."""

    def integer(low, high):
        return int(rng.integers(low, high + 1))

    for _ in range(cases):
        case = draw_case(integer, comm.size, largest=24 if integer(0, 3) else 60)
        plan = case.plan
        array = index_valued(plan.source.shape, case.dtype)
        a = b = None
        if (p := plan.source_process.get(comm.rank)) is not None:
            a = empty_part(plan.source, p, case.dtype, case.a_kind)
        if (q := plan.target_process.get(comm.rank)) is not None:
            b = empty_part(plan.target, q, case.dtype, case.b_kind)
        most = EXTRA_BYTES if integer(0, 1) else integer(1, 600)
        prepared = plan.prepare(comm, a, b, order=case.order, max_extra_bytes=most)
        for turn in range(3):
            turned = array[::-1] if turn % 2 else array
            if a is not None:
                a[...] = turned[np.ix_(*plan.source.global_indices(p))]
            prepared.run()
            if b is not None:
                expected = turned[np.ix_(*plan.target.global_indices(q))]
                np.testing.assert_array_equal(b, expected, err_msg=f"turn {turn} of {case}")
    plan = Plan(Cuts.even((4,), 1), Cuts.even((4,), 1))
    with pytest.raises(ValueError, match="rank 0 holds target part 0"):
        plan.prepare(comm, np.zeros(4) if comm.rank == 0 else None, None)


def the_same_arrays_run_again(comm):
    """What a plan keeps of its last run holds for these arrays only, as they were."""
    shape = (comm.size * 2, comm.size * 4)
    rows, columns = Cuts.even(shape, comm.size), Cuts.even(shape, comm.size, axis=1)
    plan = Plan(columns, rows)
    array = index_valued(shape, np.dtype(float))
    a = local_part(columns, comm.rank, array, "C")
    b = local_part(rows, comm.rank, array * 0, "C")
    expected = local_part(rows, comm.rank, array, "C")
    is_last = comm.rank == comm.size - 1
    for turn in range(4):
        plan.run(comm, a, b)
        np.testing.assert_array_equal(b, expected)
        a += 1
        expected += 1
        kept = plan.last_run
        assert kept is not None
        assert kept.given.a is a
        # On the last rank another array now and then, so that its peers run what they have kept.
        if turn == 1 and is_last:
            a = a.copy("F")
    other = comm.Dup()
    plan.run(other, a, b)
    np.testing.assert_array_equal(b, expected)
    other.Free()
    a += 1
    expected += 1
    plan.run(comm, a, b)
    np.testing.assert_array_equal(b, expected)
    b.flags.writeable = not is_last
    with pytest.raises(ValueError, match=f"rank {comm.size - 1}: .* is read-only"):
        plan.run(comm, a, b)
    b.flags.writeable = True
    with pytest.raises(ValueError, match="ranks disagree") if comm.size > 1 else nullcontext():
        plan.run(comm, a, b, max_extra_bytes=EXTRA_BYTES - is_last)
    plan.run(comm, a, b)
    np.testing.assert_array_equal(b, expected)


def few_plans_keep_their_runs(comm):
    """Those that ran last, however often each of them did."""
    plans, arrays = [], []
    for width in range(1, prepared.KEPT_RUNS + 3):
        part = Cuts.even((comm.size, width), comm.size)
        plans.append(Plan(part, part))
        for _ in range(3):
            arrays.append((np.full((1, width), float(comm.rank)), np.zeros((1, width))))
            plans[-1].run(comm, *arrays[-1])
            assert (arrays[-1][1] == comm.rank).all()
    assert [plan.last_run is not None for plan in plans] == [False] * 2 + [
        True
    ] * prepared.KEPT_RUNS


def extra_memory_is_bounded(comm):
    """Arrays of 50 MB a rank move through no more memory than promised, MPI's own included."""
    if comm.size != 2 or not Path("/proc/self/clear_refs").exists():
        return
    shape = (3600, 3600)
    source, target = BlockCyclic(shape, (64, 64), (1, 2)), BlockCyclic(shape, (100, 100), (2, 1))
    plan = Plan(source, target)
    array = index_valued(shape, np.dtype(float))
    a = local_part(source, comm.rank, array, "C")
    expected = local_part(target, comm.rank, array, "C")
    b = expected * 0 - 1
    for most in (EXTRA_BYTES, 20 << 20):
        buffers.clear()
        b[...] = -1
        Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident now
        before = resident("VmHWM")
        plan.run(comm, a, b, order="F", max_extra_bytes=most)  # MPI cannot take it as it lies
        peak = resident("VmHWM") - before
        np.testing.assert_array_equal(b, expected)
        # MPI maps a few megabytes of its own when it is first used.
        assert 4e6 < peak < min(most, 1.25 * b.nbytes) + 8e6, f"peak {peak} bytes of {most}"


def stretches_far_apart(comm):
    """MPI takes and puts stretches 2^30 bytes apart, on pages that are hardly ever touched."""
    if comm.size != 2:
        return
    part = Cuts.even((3, 2 << 20), 1)
    plan = Plan(part, part, [0], [1])
    mine = np.zeros((3, 2**30), np.uint8)[:, -part.shape[1] :]
    expected = (np.arange(mine.size) % 251).reshape(mine.shape)
    if comm.rank == 0:
        mine[...] = expected
    assert derived.sent(plan.outgoing(0)[0], 1, packing.of_array(mine, "source"), "C")
    plan.run(comm, *((mine, None) if comm.rank == 0 else (None, mine)))
    np.testing.assert_array_equal(mine, expected)


def resident(what):
    """Bytes of memory of this process, from the kernel."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(found[1])


def follow_one_another(comm, times):
    """Moves there and back without a pause, so that fast ranks run ahead of slow ones."""
    shape = (37, 41)
    cuts, blocks = Cuts.even(shape, comm.size), BlockCyclic(shape, (3, 4), (1, comm.size))
    there, back = Plan(cuts, blocks), Plan(blocks, cuts)
    array = index_valued(shape, np.dtype(float))
    a = local_part(cuts, comm.rank, array, "C")
    b = local_part(blocks, comm.rank, array * 0, "C")
    for turn in range(times):
        a += 1
        there.run(comm, a, b)
        a[...] = -1
        back.run(comm, b, a)
        np.testing.assert_array_equal(a, local_part(cuts, comm.rank, array + turn + 1, "C"))


def errors_reach_every_rank(comm):
    """What is wrong on one rank is raised on all, before anything is sent."""
    last = comm.size - 1
    is_last = comm.rank == last
    plan = Plan(Cuts.even((8,), comm.size), Cuts.even((8,), comm.size))
    good = np.zeros(plan.source.local_shape(comm.rank))

    def raises(text, plan, a, b, order="C"):
        with pytest.raises(ValueError, match=re.escape(text)):
            plan.run(comm, a, b, order=order)

    shape = plan.source.local_shape(last)
    raises(
        f"rank {last} holds source part {last}: expected an array of shape {shape}, got (9,)",
        plan,
        np.zeros(9) if is_last else good,
        good.copy(),
    )
    raises(f"rank {last} holds target part", plan, good, None if is_last else good.copy())
    raises("dtype int64", plan, good, good.astype(int) if is_last else good.copy())
    raises("must be a NumPy array, got [1.0]", plan, [1.0] if is_last else good, good.copy())
    raises("overlap in memory", plan, good, good) if good.size else comm.Barrier()
    raises("order must be 'C' or 'F', got 'K'", plan, good, good.copy(), "K")
    with pytest.raises(ValueError, match="max_extra_bytes must be >= 1, got 0"):
        plan.run(comm, good, good.copy(), max_extra_bytes=0 if is_last else 1)
    frozen = good.copy()
    frozen.flags.writeable = not is_last
    raises(f"rank {last}: the target array is read-only", plan, good, frozen)
    raises("holds objects", plan, good.astype(object), good.copy())
    larger = Plan(Cuts.even((9,), 1), Cuts.even((9,), comm.size + 1))
    raises(f"needs {comm.size + 1} ranks, the communicator has {comm.size}", larger, None, None)
    if comm.size > 1:
        first = Plan(Cuts.even((8,), 1), Cuts.even((8,), 1))
        surplus = np.zeros(8) if comm.rank in (0, last) else None
        room = np.zeros(8) if comm.rank == 0 else None
        raises(f"rank {last} holds no source part", first, surplus, room)
        mine = good.astype(np.float32 if is_last else np.float64)
        raises("ranks disagree on the plan, the dtype, the order", plan, mine, mine.copy())
        raises("ranks disagree", plan, good, good.copy(), "F" if is_last else "C")
        with pytest.raises(ValueError, match="ranks disagree"):
            plan.run(comm, good, good.copy(), max_extra_bytes=10 if is_last else 11)
        swapped = Plan(plan.source, plan.target, None, [1, 0, *range(2, comm.size)])
        if plan.target.local_shape(0) == plan.target.local_shape(1):
            raises("ranks disagree", swapped if is_last else plan, good, good.copy())
    # After all that the communicator is as good as new.
    copy = np.ones_like(good)
    plan.run(comm, good, copy)
    np.testing.assert_array_equal(copy, good)


if __name__ == "__main__":
    try:
        main(*map(int, sys.argv[1:]))
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
