"""Moves between MPI ranks: random ones, prepared ones, and those of repeated runs."""

import gc
import re
import weakref
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from collective import divided
from redistribution_cases import draw_case, empty_part, index_valued, local_part, on_hosts

from redistribution import BlockCyclic, Cuts, Plan, Replicated, checksum
from redistribution.copies import buffers
from redistribution.copies.regions import array_region
from redistribution.messages.arguments import DEFAULT_EXTRA_BYTES
from redistribution.messages.exchange import array_arguments
from redistribution.tuning import tuning

#: As in some containers: MPI then transfers messages in small portions.
NOT_READABLE = {"MPIR_CVAR_CH4_CMA_ENABLE": "0"}
#: Eight ranks on two cores wait for one another most of the time.
on_8_ranks = [pytest.mark.mpi(min_size=8), pytest.mark.long]
on_5_ranks = pytest.mark.mpi(min_size=5, environment=NOT_READABLE)
CASES = 40


#: Sizes of the communicators that are made of all ranks.
of_all_sizes = pytest.mark.parametrize(
    "comm",
    [
        pytest.param((8,), marks=on_8_ranks),
        pytest.param((5, 2, 1), marks=on_8_ranks),
        pytest.param((4, 3, 1), marks=on_8_ranks),
        pytest.param((5,), marks=on_5_ranks),
        pytest.param((3, 2), marks=on_5_ranks),
    ],
    ids=lambda sizes: "+".join(map(str, sizes)),
    indirect=True,
)


@pytest.fixture
def comm(request):
    yield from divided(*request.param)


@pytest.fixture
def integer(comm):
    """Draws an integer between two bounds, both included; the same one on each rank of a comm."""
    rng = np.random.default_rng(1000 + comm.size)

    def draw(low, high):
        return int(rng.integers(low, high + 1))

    return draw


@pytest.fixture(autouse=True)
def thresholds():
    """Restore the thresholds of before the test."""
    with patch.multiple(tuning, **{name: getattr(tuning, name) for name in tuning.__slots__}):
        yield
    buffers.clear()


@of_all_sizes
def test_random_moves(comm, integer):
    tuning.mailbox_bytes = 1 << integer(12, 20)
    moved = [move(comm, integer, f"case {case}") for case in range(CASES)]
    assert (sum(moved) > 0) == (comm.size > 1)


@of_all_sizes
def test_random_moves_with_little_memory(comm, integer):
    """Small arrays then move like large ones do by default."""
    tuning.pooled_buffer_bytes, tuning.pool_bytes = 20, 300
    for case in range(CASES // 2):
        buffers.clear()
        move(comm, integer, f"case {case}", integer(1, 600))
    assert buffers.pooled_bytes() <= 300


def move(comm, integer, name, max_extra_bytes=DEFAULT_EXTRA_BYTES):
    """One random move, compared with the global array and by checksum.

    Each rank draws whether it uses the kernel, writes past the caches, prepares small moves and
    leaves short ranges to MPI. All ranks draw whether the communicator may have mailboxes, and
    whether moves of any size may need messages all the same.
    """
    # With little memory, a large array would need millions of messages.
    is_small = bool(integer(0, 3)) or max_extra_bytes < DEFAULT_EXTRA_BYTES
    case = draw_case(integer, comm.size, largest=24 if is_small else 120)
    plan, rank = case.plan, comm.rank
    if integer(0, 1):
        plan = on_hosts(plan, tuple(integer(0, 2) for _ in range(comm.size)))
    array = index_valued(plan.source.shape, case.dtype)
    a = b = None
    draw_thresholds(np.random.default_rng([integer(0, 2**30), rank]))
    tuning.mailed_bytes = integer(0, 1) << 21
    used = comm if integer(0, 2) else comm.Dup()  # its first use
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
    plan.run(used, a, b, order=case.order, max_extra_bytes=max_extra_bytes, sources=near)
    if used is not comm:
        used.Free()
    if q is not None:
        expected = array[np.ix_(*plan.target.global_indices(q))]
        put_near_elements(plan, rank, turned, expected)
        np.testing.assert_array_equal(b, expected, err_msg=f"{name} on rank {rank}: {case}")
        after = checksum(plan.target, q, b)
    sums = comm.allreduce(np.array([before, after], np.uint64))
    assert plan.hosts or sums[0] == sums[1], f"{name}: checksums {sums} differ"
    return plan.bytes_sent(case.dtype.itemsize)


def draw_thresholds(rng):
    use_kernel, past_caches, small = rng.integers(0, 2, 3)
    sent_range_bytes, received_range_bytes, sent_ranges = rng.choice([1, 24, 1 << 16], 3)
    tuning.use_kernel, tuning.kernel_run_bytes = bool(use_kernel), 1
    tuning.streamed_bytes = 0 if past_caches else 1 << 23
    tuning.sent_range_bytes, tuning.received_range_bytes = sent_range_bytes, received_range_bytes
    tuning.sent_ranges, tuning.small_move_bytes = sent_ranges, 1 << 20 if small else 0


def put_near_elements(plan, rank, values, part):
    """Put the elements that a rank copies from other ranks of its host into its part."""
    own = plan.target.global_indices(plan.target_process[rank])
    for transfer in plan.incoming(rank):
        if transfer.peer != rank and plan.is_near(rank, transfer.peer):
            there = plan.source.global_indices(plan.source_process[transfer.peer])
            common = [np.isin(mine, other) for mine, other in zip(own, there, strict=True)]
            indices = [mine[mask] for mine, mask in zip(own, common, strict=True)]
            part[np.ix_(*common)] = values[np.ix_(*indices)]


@of_all_sizes
def test_kept_parts_are_not_copied_and_still_sent(comm):
    """A replicated array on one more rank: all other ranks pass one array twice."""
    shape = (5, 7)
    array = index_valued(shape, np.dtype(float))
    before = max(1, comm.size - 1)
    plan = Plan(Replicated(shape, before), Replicated(shape, comm.size))
    a = array.copy() if comm.rank < before else None
    b = np.zeros(shape) if a is None else a
    for _ in range(2):  # the second time through mailboxes
        plan.run(comm, a, b)
        np.testing.assert_array_equal(b, array)


@of_all_sizes
def test_prepared_moves_run_again(comm, integer):
    """Prepared once, run often with changing contents, on ranks with small and large parts."""
    for _ in range(CASES // 2):
        draw_thresholds(np.random.default_rng([integer(0, 2**30), comm.rank]))
        tuning.small_move_bytes = 1 << 20
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


@of_all_sizes
def test_a_plan_runs_again_with_the_same_and_with_other_arrays(comm):
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
        # The last rank passes another array once.
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


@of_all_sizes
@pytest.mark.parametrize("are_hosts", [False, True])
def test_a_run_keeps_no_array_until_the_garbage_collector_runs(comm, are_hosts):
    """A resize uses the memory of the old local parts for the next ones."""
    tuning.small_move_bytes = 0
    shape = (37, 41)
    plan = Plan(Cuts.even(shape, comm.size), BlockCyclic(shape, (3, 4), (1, comm.size)))
    if are_hosts:
        plan = on_hosts(plan, tuple(range(comm.size)))
    a, b = (np.zeros(layout.local_shape(comm.rank)) for layout in (plan.source, plan.target))
    arrays = [weakref.ref(a), weakref.ref(b)]
    gc.disable()
    try:
        plan.run(comm, a, b)
        del a, b
        assert [array() for array in arrays] == [None, None]
    finally:
        gc.enable()


@of_all_sizes
@pytest.mark.parametrize("pool_bytes", [300, 1 << 25])
def test_fast_ranks_run_ahead_of_slow_ones(comm, pool_bytes):
    """Moves there and back without synchronisation."""
    tuning.pooled_buffer_bytes, tuning.pool_bytes = 20, pool_bytes
    shape = (37, 41)
    cuts, blocks = Cuts.even(shape, comm.size), BlockCyclic(shape, (3, 4), (1, comm.size))
    there, back = Plan(cuts, blocks), Plan(blocks, cuts)
    array = index_valued(shape, np.dtype(float))
    a = local_part(cuts, comm.rank, array, "C")
    b = local_part(blocks, comm.rank, array * 0, "C")
    for turn in range(20):
        a += 1
        there.run(comm, a, b)
        a[...] = -1
        back.run(comm, b, a)
        np.testing.assert_array_equal(a, local_part(cuts, comm.rank, array + turn + 1, "C"))


on_2_ranks = pytest.mark.parametrize(
    "comm",
    [
        pytest.param((2, 6), marks=on_8_ranks),
        pytest.param((2, 3), marks=on_5_ranks),
    ],
    ids=["in memory", "in portions"],
    indirect=True,
)


@on_2_ranks
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is not measured")
def test_extra_memory_is_bounded(comm):
    """Arrays of 27 MB a rank move within the limit of memory, that of MPI included."""
    if comm.size != 2:
        return
    shape = (2600, 2600)
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
        # With order F, MPI cannot use the arrays directly.
        plan.run(comm, a, b, order="F", max_extra_bytes=most)
        peak = resident("VmHWM") - before
        np.testing.assert_array_equal(b, expected)
        # MPI maps a few megabytes when it is first used.
        assert peak < min(most, 1.25 * b.nbytes) + 8e6, f"peak {peak} bytes of {most}"
        peaks.append(peak)
    assert max(peaks) > 4e6, f"the measurement misses the buffers: {peaks}"


def resident(what):
    """Bytes of memory of this process, from the kernel."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(found[1])


@on_2_ranks
def test_mpi_takes_ranges_far_apart_from_the_arrays(comm):
    """They are 2^30 bytes apart, on mostly untouched pages."""
    if comm.size != 2:
        return
    part = Cuts.even((3, 1 << 18), 1)
    plan = Plan(part, part, [0], [1])
    mine = np.zeros((3, 2**30), np.uint8)[:, -part.shape[1] :]
    expected = (np.arange(mine.size) % 251).reshape(mine.shape)
    if comm.rank == 0:
        mine[...] = expected
    assert array_arguments(plan.outgoing(0)[0], 1, array_region(mine, "source"), "C")
    plan.run(comm, *((mine, None) if comm.rank == 0 else (None, mine)))
    np.testing.assert_array_equal(mine, expected)


def check_error(comm, text, plan, a, b, **options):
    """Run a plan on all ranks, which must raise the same error."""
    with pytest.raises(ValueError, match=re.escape(text)):
        plan.run(comm, a, b, **options)


@of_all_sizes
def test_an_error_on_one_rank_is_raised_on_all_before_anything_is_sent(comm):
    last = comm.size - 1
    is_last = comm.rank == last
    plan = Plan(Cuts.even((8,), comm.size), Cuts.even((8,), comm.size))
    good = np.zeros(plan.source.local_shape(comm.rank))
    shape = plan.source.local_shape(last)
    frozen = good.copy()
    frozen.flags.writeable = not is_last
    wide, whole = np.zeros(9) if is_last else good, good.astype(int) if is_last else good.copy()
    for text, a, b in [
        (
            f"rank {last}: source process {last}: expected an array of shape {shape}, got (9,)",
            wide,
            good.copy(),
        ),
        (f"rank {last} holds target part", good, None if is_last else good.copy()),
        ("dtype int64", good, whole),
        ("must be a NumPy array, got [1.0]", [1.0] if is_last else good, good.copy()),
        (f"target process {last}: the target array is read-only", good, frozen),
        ("holds objects", good.astype(object), good.copy()),
    ]:
        check_error(comm, text, plan, a, b)
    check_error(comm, "its array overlaps the target array", plan, good, good[::-1])
    check_error(comm, "order must be 'C' or 'F', got 'K'", plan, good, good.copy(), order="K")
    least = 0 if is_last else 1
    text = "max_extra_bytes must be >= 1, got 0"
    check_error(comm, text, plan, good, good.copy(), max_extra_bytes=least)
    larger = Plan(Cuts.even((9,), 1), Cuts.even((9,), comm.size + 1))
    text = f"needs {comm.size + 1} ranks, the communicator has {comm.size}"
    check_error(comm, text, larger, None, None)
    single = Plan(Cuts.even((4,), 1), Cuts.even((4,), 1))
    with pytest.raises(ValueError, match="rank 0 holds target part 0"):
        single.prepare(comm, np.zeros(4) if comm.rank == 0 else None, None)
    # The communicator can still be used.
    copy = np.ones_like(good)
    plan.run(comm, good, copy)
    np.testing.assert_array_equal(copy, good)


@of_all_sizes
def test_arguments_that_differ_between_ranks_are_an_error_on_all(comm):
    if comm.size == 1:
        return
    last = comm.size - 1
    is_last = comm.rank == last
    plan = Plan(Cuts.even((8,), comm.size), Cuts.even((8,), comm.size))
    good = np.zeros(plan.source.local_shape(comm.rank))
    first = Plan(Cuts.even((8,), 1), Cuts.even((8,), 1))
    surplus = np.zeros(8) if comm.rank in (0, last) else None
    room = np.zeros(8) if comm.rank == 0 else None
    check_error(comm, f"rank {last} holds no source part", first, surplus, room)
    mine = good.astype(np.float32 if is_last else np.float64)
    text = "ranks disagree on the plan, the dtype, the order"
    check_error(comm, text, plan, mine, mine.copy())
    text = "ranks disagree"
    check_error(comm, text, plan, good, good.copy(), order="F" if is_last else "C")
    most = 10 if is_last else 11
    check_error(comm, text, plan, good, good.copy(), max_extra_bytes=most)
    together = on_hosts(plan, (0,) * comm.size)
    check_error(comm, text, together if is_last else plan, good, good.copy())
    if plan.target.local_shape(0) == plan.target.local_shape(1):
        swapped = Plan(plan.source, plan.target, None, [1, 0, *range(2, comm.size)])
        check_error(comm, text, swapped if is_last else plan, good, good.copy())
    if plan.source.local_shape(last) == plan.source.local_shape(0):
        ranks = [*range(1, comm.size), 0]
        shifted = Plan(plan.source, plan.target, None, ranks, hosts=(0,) * comm.size)
        text = "sources lack the array of source process"
        check_error(comm, text, shifted, good, good.copy())
        wrong = {process: np.zeros(9) for process in range(comm.size)}
        with pytest.raises(ValueError, match=r"expected an array of shape .*, got \(9,\)"):
            shifted.run(comm, good, good.copy(), sources=wrong)
    copy = np.ones_like(good)
    plan.run(comm, good, copy)
    np.testing.assert_array_equal(copy, good)


@pytest.mark.parametrize("to_host", [False, True])
@pytest.mark.parametrize(("block", "ranges"), [(512, 1), (256, 2)])
def test_only_one_range_is_sent_to_another_host_directly(block, ranges, to_host):
    """From one process to two, by columns: it sends `ranges` blocks of columns to the second."""
    plan = Plan(*(BlockCyclic((1024, 1024), (1024, block), (1, p)) for p in (1, 2)))
    (sent,) = (transfer for transfer in plan.outgoing(0) if transfer.peer == 1)
    part = np.zeros(plan.source.local_shape(0), order="F")
    region = array_region(part, "source")
    arguments = array_arguments(sent, 8, region, "F", to_host)
    assert (arguments is None) == (to_host and ranges > 1), arguments
    if arguments is not None:
        arguments[2].Free()
