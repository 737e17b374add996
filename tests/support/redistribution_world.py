"""Moves on real ranks: ``mpiexec -n SIZE python redistribution_world.py SIZE SEED CASES``."""

import gc
import re
import sys
import weakref
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from redistribution_cases import draw_case, empty_part, index_valued, local_part, on_hosts

from redistribution import BlockCyclic, Cuts, Plan, checksum
from redistribution.copies import buffers
from redistribution.copies.regions import array_region
from redistribution.messages.arguments import DEFAULT_EXTRA_BYTES
from redistribution.messages.datatypes import send_from_array
from redistribution.tuning import Tuning, tuning

DEFAULTS = Tuning()


def main(size, seed, cases):
    comm = MPI.COMM_WORLD
    assert comm.size == size, f"started on {comm.size} ranks, not on {size}"
    rng = np.random.default_rng(seed)  # the same stream on every rank
    moved = 0
    for case in range(cases):
        moved += move(comm, rng, f"case {case} of seed {seed}")
    tuning.change(
        sent_range_bytes=DEFAULTS.sent_range_bytes,
        received_range_bytes=DEFAULTS.received_range_bytes,
        sent_ranges=DEFAULTS.sent_ranges,
    )
    extra_memory_is_bounded(comm)
    ranges_far_apart(comm)
    # With little memory for messages, small arrays move like large ones do by default.
    tuning.change(pooled_buffer_bytes=20, pool_bytes=300)
    for case in range(cases, cases + cases // 2):
        buffers.clear()
        moved += move(comm, rng, f"case {case} of seed {seed}", int(rng.integers(1, 600)))
    assert buffers.pooled_bytes() <= 300
    follow_one_another(comm, 20)
    tuning.small_move_bytes = 1 << 20
    prepared_moves_run_again(comm, rng, cases // 2)
    the_same_arrays_run_again(comm)
    few_plans_keep_their_runs(comm)
    errors_reach_every_rank(comm)
    if comm.rank == 0:
        print(f"{cases} moves right on {size} ranks, {moved} bytes crossed")


def move(comm, rng, name, max_extra_bytes=DEFAULT_EXTRA_BYTES):
    """One random move, compared with the global array and by checksum.

    Each rank draws whether it uses the kernel, writes past the caches, prepares small moves and
    leaves short ranges to MPI.
    """

    def integer(low, high):
        return int(rng.integers(low, high + 1))

    # With little memory, a large array would need millions of messages.
    is_small = bool(integer(0, 3)) or max_extra_bytes < DEFAULT_EXTRA_BYTES
    case = draw_case(integer, comm.size, largest=24 if is_small else 300)
    plan, rank = case.plan, comm.rank
    if integer(0, 1):
        plan = on_hosts(plan, tuple(integer(0, 2) for _ in range(comm.size)))
    array = index_valued(plan.source.shape, case.dtype)
    a = b = None
    own = np.random.default_rng([integer(0, 2**30), rank])
    use_kernel, past_caches, small = own.integers(0, 2, 3)
    sent_range_bytes, received_range_bytes, sent_ranges = own.choice([1, 24, 1 << 16], 3)
    tuning.change(
        use_kernel=bool(use_kernel),
        kernel_run_bytes=1,
        streamed_bytes=0 if past_caches else 1 << 23,
        sent_range_bytes=sent_range_bytes,
        received_range_bytes=received_range_bytes,
        sent_ranges=sent_ranges,
        small_move_bytes=1 << 20 if small else 0,
    )
    before = after = 0
    # Near elements have values that no message has, so that the test sees where they come from.
    turned = array.reshape(-1)[::-1].reshape(array.shape)
    near = {
        process: local_part(plan.source, process, turned, case.a_kind)
        for process, other in enumerate(plan.source_ranks)
        if other != rank and plan.is_near(rank, other)
    }
    if (p := plan.source_process.get(rank)) is not None:
        a = local_part(plan.source, p, array, case.a_kind)
        before = checksum(plan.source, p, a)
    if (q := plan.target_process.get(rank)) is not None:
        b = empty_part(plan.target, q, case.dtype, case.b_kind)
    plan.run(comm, a, b, order=case.order, max_extra_bytes=max_extra_bytes, sources=near)
    if q is not None:
        expected = array[np.ix_(*plan.target.global_indices(q))]
        put_near_elements(plan, rank, turned, expected)
        np.testing.assert_array_equal(b, expected, err_msg=f"{name} on rank {rank}: {case}")
        after = checksum(plan.target, q, b)
    sums = comm.allreduce(np.array([before, after], np.uint64))
    assert plan.hosts or sums[0] == sums[1], f"{name}: checksums {sums} differ"
    return plan.bytes_sent(case.dtype.itemsize)


def put_near_elements(plan, rank, values, part):
    """Put the elements that a rank copies from other ranks of its host into its part."""
    own = plan.target.global_indices(plan.target_process[rank])
    for transfer in plan.incoming(rank):
        if transfer.peer != rank and plan.is_near(rank, transfer.peer):
            there = plan.source.global_indices(plan.source_process[transfer.peer])
            common = [np.isin(mine, other) for mine, other in zip(own, there, strict=True)]
            indices = [mine[mask] for mine, mask in zip(own, common, strict=True)]
            part[np.ix_(*common)] = values[np.ix_(*indices)]


def prepared_moves_run_again(comm, rng, cases):
    """Prepared once, run often with changing contents, on ranks with small and large parts."""

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
        most = DEFAULT_EXTRA_BYTES if integer(0, 1) else integer(1, 600)
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
    """A plan uses what it keeps of its last run for unchanged arrays only."""
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
        # The last rank passes another array once, while the other ranks run what they have kept.
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
        plan.run(comm, a, b, max_extra_bytes=DEFAULT_EXTRA_BYTES - is_last)
    plan.run(comm, a, b)
    np.testing.assert_array_equal(b, expected)


def few_plans_keep_their_runs(comm):
    """The plans that ran last keep their arrays, however often each of them ran."""
    plans, arrays = [], []
    for width in range(1, tuning.kept_runs + 3):
        part = Cuts.even((comm.size, width), comm.size)
        plans.append(Plan(part, part))
        for _ in range(3):
            a, b = np.full((1, width), float(comm.rank)), np.zeros((1, width))
            plans[-1].run(comm, a, b)
            assert (b == comm.rank).all()
        arrays.append(weakref.ref(a))
        del a, b
    gc.collect()
    are_kept = [array() is not None for array in arrays]
    assert are_kept == [False] * 2 + [True] * tuning.kept_runs


def extra_memory_is_bounded(comm):
    """Arrays of 50 MB a rank move within the limit of memory, that of MPI included."""
    if comm.size != 2 or not Path("/proc/self/clear_refs").exists():
        return
    shape = (3600, 3600)
    source, target = BlockCyclic(shape, (64, 64), (1, 2)), BlockCyclic(shape, (100, 100), (2, 1))
    plan = Plan(source, target)
    array = index_valued(shape, np.dtype(float))
    a = local_part(source, comm.rank, array, "C")
    expected = local_part(target, comm.rank, array, "C")
    b = expected * 0 - 1
    peaks = []
    for most in (DEFAULT_EXTRA_BYTES, 20 << 20):
        buffers.clear()
        b[...] = -1
        Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident now
        before = resident("VmHWM")
        plan.run(
            comm, a, b, order="F", max_extra_bytes=most
        )  # order F: MPI cannot use the arrays directly
        peak = resident("VmHWM") - before
        np.testing.assert_array_equal(b, expected)
        # MPI maps a few megabytes when it is first used.
        assert peak < min(most, 1.25 * b.nbytes) + 8e6, f"peak {peak} bytes of {most}"
        peaks.append(peak)
    assert max(peaks) > 4e6, f"the measurement misses the buffers: {peaks}"


def ranges_far_apart(comm):
    """MPI sends and receives ranges that are 2^30 bytes apart, on mostly untouched pages."""
    if comm.size != 2:
        return
    part = Cuts.even((3, 2 << 20), 1)
    plan = Plan(part, part, [0], [1])
    mine = np.zeros((3, 2**30), np.uint8)[:, -part.shape[1] :]
    expected = (np.arange(mine.size) % 251).reshape(mine.shape)
    if comm.rank == 0:
        mine[...] = expected
    assert send_from_array(plan.outgoing(0)[0], 1, array_region(mine, "source"), "C")
    plan.run(comm, *((mine, None) if comm.rank == 0 else (None, mine)))
    np.testing.assert_array_equal(mine, expected)


def resident(what):
    """Bytes of memory of this process, from the kernel."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(found[1])


def follow_one_another(comm, times):
    """Moves there and back without synchronisation, so that fast ranks run ahead of slow ones."""
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
    """An error on one rank is raised on all ranks, before anything is sent."""
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
        together = on_hosts(plan, (0,) * comm.size)
        raises("ranks disagree", together if is_last else plan, good, good.copy())
        shifted = Plan(
            plan.source, plan.target, None, [*range(1, comm.size), 0], hosts=(0,) * comm.size
        )
        if plan.source.local_shape(last) == plan.source.local_shape(0) and good.size:
            raises("sources lack the array of source process", shifted, good, good.copy())
            wrong = {process: np.zeros(9) for process in range(comm.size)}
            with pytest.raises(ValueError, match=r"expected an array of shape .*, got \(9,\)"):
                shifted.run(comm, good, good.copy(), sources=wrong)
        with pytest.raises(ValueError, match="ranks disagree"):
            plan.run(comm, good, good.copy(), max_extra_bytes=10 if is_last else 11)
        swapped = Plan(plan.source, plan.target, None, [1, 0, *range(2, comm.size)])
        if plan.target.local_shape(0) == plan.target.local_shape(1):
            raises("ranks disagree", swapped if is_last else plan, good, good.copy())
    # The communicator can still be used.
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
