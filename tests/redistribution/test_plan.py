"""Plans run in one process that acts for all ranks, with the copies that MPI ranks use."""

import mmap
import os
from unittest.mock import patch

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided
from redistribution_cases import draw_case, empty_part, index_valued, local_part

from redistribution import BlockCyclic, Cuts, Plan, Replicated
from redistribution.copies import kernel
from redistribution.copies.copying import Copy, copy
from redistribution.copies.regions import array_region, contiguous_message, message_region
from redistribution.runs import pieces
from redistribution.tuning import tuning


@st.composite
def cases(draw, ranks=9, largest=24):
    return draw_case(lambda low, high: draw(st.integers(low, high)), ranks, largest)


def run_all_ranks(plan, locals_in, locals_out, itemsize, order, limit=10**9):
    """Run ``plan`` over local arrays by rank. Returns the bytes that crossed ranks."""
    messages = {}
    for rank in range(plan.size):
        for piece in in_pieces(plan.outgoing(rank), limit, order):
            source = array_region(locals_in[rank], "source")
            if piece.peer == rank:
                copy(itemsize, Copy(piece, source, array_region(locals_out[rank], "target")))
                continue
            message = contiguous_message(piece, itemsize, source, order)
            if message is None:
                message = np.empty(piece.elements * itemsize, np.uint8)
                copy(itemsize, Copy(piece, source, message_region(piece, message, itemsize, order)))
            messages.setdefault((rank, piece.peer), []).append(message)
    crossed = sum(len(message) for pair in messages.values() for message in pair)
    for rank in range(plan.size):
        for piece in in_pieces(plan.incoming(rank), limit, order):
            if piece.peer == rank:
                continue
            target = array_region(locals_out[rank], "target")
            message = messages[piece.peer, rank].pop(0)
            room = contiguous_message(piece, itemsize, target, order)
            if room is None:
                copy(itemsize, Copy(piece, message_region(piece, message, itemsize, order), target))
            else:
                room[...] = message
    assert not any(messages.values()), "sent but never received"
    return crossed


def in_pieces(transfers, limit, order):
    for transfer in transfers:
        cut = list(pieces(transfer, limit, order))
        assert sum(piece.elements for piece in cut) == transfer.elements
        assert max(piece.elements for piece in cut) <= max(1, limit)
        yield from cut


def check(case, limit=10**9):
    plan = case.plan
    array = index_valued(plan.source.shape, case.dtype)
    a = {r: local_part(plan.source, p, array, case.a_kind) for r, p in plan.source_process.items()}
    b = {
        r: empty_part(plan.target, p, case.dtype, case.b_kind)
        for r, p in plan.target_process.items()
    }
    crossed = run_all_ranks(plan, a, b, case.dtype.itemsize, case.order, limit)
    assert crossed == plan.bytes_moved(case.dtype.itemsize)
    for rank, process in plan.target_process.items():
        expected = array[np.ix_(*plan.target.global_indices(process))]
        np.testing.assert_array_equal(b[rank], expected)


@examples(1500)
@given(cases())
def test_a_move_copies_every_element_to_its_place(case):
    check(case)


@examples(500)
@given(cases(), st.integers(1, 40))
def test_a_move_in_pieces(case, limit):
    check(case, limit)


@examples(150)
@given(cases(ranks=12, largest=90))
def test_larger_moves(case):
    check(case)


@pytest.mark.skipif(kernel.compiled is None, reason="there was no C compiler")
@pytest.mark.parametrize("streamed", [0, 1 << 30], ids=["past the caches", "through caches"])
@examples(250)
@given(case=cases(largest=60))
def test_the_kernel_copies_runs_of_any_length(case, streamed):
    with patch.multiple(tuning, kernel_run_bytes=1, streamed_bytes=streamed):
        check(case)


@examples(250)
@given(cases(), st.integers(1, 40))
def test_moves_without_the_kernel(case, limit):
    with patch.multiple(tuning, use_kernel=False):
        check(case)
        check(case, limit)


@pytest.mark.parametrize(
    ("before", "after"),
    [((3, 5), (7, 2)), ((2, 2), (8, 4)), ((8, 6), (2, 3)), ((1, 1), (16, 16)), ((9, 9), (10, 10))],
)
@pytest.mark.parametrize("grids", [((1, 2), (2, 2)), ((2, 3), (1, 1)), ((3, 2), (2, 3))])
def test_nested_and_coprime_blocks_both_ways(before, after, grids):
    shape = (61, 47)
    source, target = BlockCyclic(shape, before, grids[0]), BlockCyclic(shape, after, grids[1])
    array = index_valued(shape, np.dtype(float))
    for plan in (Plan(source, target), Plan(target, source)):
        a = {p: local_part(plan.source, p, array, "C") for p in range(plan.source.nprocs)}
        b = {p: local_part(plan.target, p, array * 0, "C") for p in range(plan.target.nprocs)}
        run_all_ranks(plan, a, b, 8, "C")
        for process in range(plan.target.nprocs):
            expected = local_part(plan.target, process, array, "C")
            np.testing.assert_array_equal(b[process], expected)


@examples(300)
@given(cases())
def test_transfers_are_the_overlaps_counted_element_by_element(case):
    plan = case.plan
    if plan.source.copies > 1:
        return
    elements = {}
    for rank in range(plan.size):
        for transfer in plan.outgoing(rank):
            elements[rank, transfer.peer] = transfer.elements
    for r, p in plan.source_process.items():
        for s, q in plan.target_process.items():
            shared = 1
            for ours, theirs in zip(
                plan.source.global_indices(p), plan.target.global_indices(q), strict=True
            ):
                shared *= len(np.intersect1d(ours, theirs))
            assert elements.pop((r, s), 0) == shared
    assert not elements


@examples(300)
@given(cases())
def test_both_sides_list_the_same_transfers(case):
    plan = case.plan
    sent = {(r, t.peer, t.runs) for r in range(plan.size) for t in plan.outgoing(r)}
    received = {(t.peer, r, t.runs) for r in range(plan.size) for t in plan.incoming(r)}
    assert sent == received


def test_a_rank_uses_its_own_copy_and_the_copies_share_the_other_ranks():
    plan = Plan(Replicated((10,), 3), Replicated((10,), 9), (4, 5, 6), range(9))
    assert plan.bytes_moved(itemsize=1) == 60
    sent = {rank: len(plan.outgoing(rank)) for rank in (4, 5, 6)}
    assert sent == {4: 3, 5: 3, 6: 3}
    assert all(plan.incoming(rank)[0].peer == rank for rank in (4, 5, 6))


def test_equal_layouts_move_no_bytes():
    layout = BlockCyclic((50, 40), (4, 8), (2, 3))
    assert Plan(layout, layout).bytes_moved(8) == 0
    assert Plan(layout, layout, range(6), (1, 0, 2, 3, 4, 5)).bytes_moved(1) > 0


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (BlockCyclic((2**40,), (1,), (7,)), Cuts.even((2**40,), 5)),
        (BlockCyclic((2**40,), (8,), (7,)), BlockCyclic((2**40,), (2**36 + 1,), (3,))),
        (BlockCyclic((2**40,), (64,), (6,)), BlockCyclic((2**40,), (100,), (8,))),
        (Cuts.even((2**40, 3), 1000), Cuts.even((2**40, 3), 1001)),
    ],
)
def test_planning_does_not_depend_on_the_extent(source, target):
    plan = Plan(source, target)
    incoming = plan.incoming(0)
    assert sum(len(runs) for t in incoming for runs in t.runs) < 5000
    assert sum(t.elements for t in incoming) == np.prod(target.local_shape(0), dtype=object)
    # Every family is inside both local arrays: the sums above would not show a wrong offset.
    for transfer in incoming:
        for axis, runs in enumerate(transfer.runs):
            extent = source.local_shape(plan.source_process[transfer.peer])[axis]
            for run in runs:
                last = run.repeats - 1
                assert 0 <= run.source + last * run.source_step + run.length <= extent
                assert (
                    run.target + last * run.target_step + run.length <= target.local_shape(0)[axis]
                )


@pytest.mark.parametrize("block", [64, 100])
def test_a_plan_of_a_large_machine_moves_every_element_once(block):
    source = BlockCyclic((100_000, 100_000), (64, 64), (32, 32))
    target = BlockCyclic((100_000, 100_000), (block, block), (32, 40))
    plan = Plan(source, target)
    sent, received = plan.outgoing(77), plan.incoming(77)
    assert sum(t.elements for t in sent) == np.prod(source.local_shape(77))
    assert sum(t.elements for t in received) == np.prod(target.local_shape(77))


def test_local_parts_beyond_2_gb_by_stride():
    """Offsets beyond 2^31 bytes, on pages that are mostly not touched."""
    shape = (3, 2**30)
    room = np.zeros(shape, np.uint8)
    room[2, -5:] = [1, 2, 3, 4, 5]
    plan = Plan(Replicated(shape, 1), Cuts(shape, (0, 2**30 - 5, 2**30), axis=1), [0], [1, 0])
    b = np.zeros((3, 5), np.uint8)
    (kept,) = (t for t in plan.outgoing(0) if t.peer == 0)
    copy(1, Copy(kept, array_region(room, "source"), array_region(b, "target")))
    np.testing.assert_array_equal(b[2], [1, 2, 3, 4, 5])
    assert plan.bytes_moved(1) == 3 * (2**30 - 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Cuts.even((4,), 2), Cuts.even((5,), 2)), r"same global shape, got \(4,\) and \(5,\)"),
        ((Cuts.even((4,), 2), Cuts.even((4,), 2), [0]), r"source_ranks .* 2 processes, got \(0,\)"),
        ((Cuts.even((4,), 1), Cuts.even((4,), 2), [0], [3, 3]), r"target_ranks .* got 3 twice"),
        ((Cuts.even((4,), 1), Cuts.even((4,), 1), [-1]), r"source_ranks must be >= 0, got -1"),
    ],
)
def test_errors_name_bad_arguments_of_a_plan(arguments, message):
    with pytest.raises(ValueError, match=message):
        Plan(*arguments)


@pytest.mark.parametrize(("blocks", "n"), [((7, 5), 400), ((31, 32), 4096), ((64, 100), 3000)])
def test_interleaved_runs_are_listed_in_the_order_of_their_indices(blocks, n):
    """A copy then advances through memory once. Both sides have to list the same message."""
    source, target = (BlockCyclic((n,), (b,), (p,)) for b, p in zip(blocks, (2, 3), strict=True))
    plan = Plan(source, target)
    for rank in range(2):
        for transfer in plan.outgoing(rank):
            (runs,) = transfer.runs
            lasts = [run.source + (run.repeats - 1) * run.source_step for run in runs]
            assert all(last < run.source for last, run in zip(lasts, runs[1:], strict=False)), runs
            (received,) = (t.runs for t in plan.incoming(transfer.peer) if t.peer == rank)
            assert received == (runs,)


def test_too_many_runs_remain_families():
    plan = Plan(BlockCyclic((10**7,), (7,), (2,)), BlockCyclic((10**7,), (5,), (3,)))
    assert max(len(transfer.runs[0]) for transfer in plan.outgoing(0)) < 50


# ---------------------------------------------------------------- moves by shared memory


@examples(800)
@given(cases())
def test_every_target_part_is_copied_from_the_sources(case):
    plan = case.plan
    array = index_valued(plan.source.shape, case.dtype)
    sources = [local_part(plan.source, p, array, case.a_kind) for p in range(plan.source.nprocs)]
    for a in sources:
        a.flags.writeable = False
    for process in range(plan.target.nprocs):
        b = empty_part(plan.target, process, case.dtype, case.b_kind)
        plan.gather(process, sources.__getitem__, b)
        expected = array[np.ix_(*plan.target.global_indices(process))]
        np.testing.assert_array_equal(b, expected)


def test_only_sources_with_elements_of_the_part_are_asked_for_once():
    plan = Plan(Cuts.even((12,), 4), Cuts.even((12,), 3), [3, 2, 1, 0])
    asked = []

    def source(process):
        asked.append(process)
        return np.arange(3) + 3 * process

    b = np.zeros(4, int)
    plan.gather(1, source, b)
    assert sorted(asked) == [1, 2]
    np.testing.assert_array_equal(b, [4, 5, 6, 7])
    copies = Plan(Replicated((2,), 3), Replicated((2,), 3))
    copies.gather(2, {2: np.array([7, 8])}, b[:2])
    np.testing.assert_array_equal(b, [7, 8, 6, 7])


def test_another_process_copies_from_a_mapped_file(tmp_path):
    """Sources in shared memory, as the arrays of a job are; a child process copies."""
    shape = (50, 40)
    plan = Plan(BlockCyclic(shape, (7, 5), (2, 1)), BlockCyclic(shape, (8, 8), (1, 3)))
    array = index_valued(shape, np.dtype(float))

    def mapped(kind, process, extents):
        with (tmp_path / f"{kind}{process}").open("a+b") as file:
            file.truncate(8 * int(np.prod(extents)))
            return np.ndarray(extents, float, mmap.mmap(file.fileno(), 0))

    for p in range(2):
        mapped("a", p, plan.source.local_shape(p))[...] = local_part(plan.source, p, array, "C")
    for q in range(3):
        child = os.fork()
        if child == 0:
            b = mapped("b", q, plan.target.local_shape(q))
            plan.gather(q, lambda p: mapped("a", p, plan.source.local_shape(p)), b)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        found = mapped("b", q, plan.target.local_shape(q))
        np.testing.assert_array_equal(found, local_part(plan.target, q, array, "C"))


def test_indices_and_offsets_beyond_32_bits_by_a_large_stride(tmp_path):
    """Counts beyond 2^31 without the memory: all rows are the same bytes."""
    n = 2**33 + 7
    row = np.arange(4, dtype=np.uint8)
    endless = as_strided(row, (n, 4), (0, 1), writeable=False)
    layout = Cuts((n, 4), (0, 5, n))
    plan = Plan(Replicated((n, 4), 1), layout, [1], [2, 1])
    head = np.zeros((5, 4), np.uint8)
    plan.gather(0, {0: endless}, head)
    np.testing.assert_array_equal(head, np.tile(row, (5, 1)))

    # Three rows 2^32 bytes apart, in a sparse file.
    with (tmp_path / "far").open("w+b") as file:
        file.truncate(3 * 2**32)
        room = mmap.mmap(file.fileno(), 0)
    far = np.ndarray((3, 2**32), np.uint8, room)
    far[:, 2**32 - 3 :] = np.arange(9).reshape(3, 3) + 1
    wide = Plan(
        Replicated(far.shape, 1), Cuts(far.shape, (0, 2**32 - 2, 2**32), axis=1), [0], [1, 0]
    )
    b = np.zeros((3, 2), np.uint8)
    wide.gather(1, {0: far}, b)
    np.testing.assert_array_equal(b, [[2, 3], [5, 6], [8, 9]])
    del far
    room.close()


def test_one_array_serves_as_the_source_and_the_target_that_a_rank_keeps():
    plan = Plan(Cuts((6,), (0, 2, 6)), Cuts((6,), (0, 2, 4, 6)))
    sources = {0: np.array([0, 1]), 1: np.array([2, 3, 4, 5])}
    plan.gather(0, sources, sources[0])
    plan.gather(0, sources, sources[0][:])
    np.testing.assert_array_equal(sources[0], [0, 1])
    # A part with the same memory, but other elements, and one of the same elements in other places.
    with pytest.raises(ValueError, match="source process 1: its array overlaps"):
        plan.gather(1, sources, sources[1][:2])
    with pytest.raises(ValueError, match="source process 0: its array overlaps"):
        plan.gather(0, sources, sources[0][::-1])


def test_errors_name_bad_arguments_of_a_gather():
    plan = Plan(Cuts.even((6,), 2), Cuts.even((6,), 3))
    good = {0: np.zeros(3), 1: np.ones(3)}
    b = np.zeros(2)
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    together = np.zeros(4)
    for sources, target, message in [
        (good, np.zeros(3), r"target process 0: expected .* shape \(2,\), got \(3,\)"),
        (good, frozen, "target process 0: the target array is read-only"),
        (good, np.zeros(2, object), "target process 0: dtype object holds objects"),
        ({0: np.zeros(2)}, b, r"source process 0: expected .* shape \(3,\), got \(2,\)"),
        ({0: np.zeros(3, int)}, b, "source process 0 has dtype int64, .* dtype float64"),
        ({0: together[:3]}, together[2:], "source process 0: its array overlaps"),
    ]:
        with pytest.raises(ValueError, match=message):
            plan.gather(0, sources, target)
    with pytest.raises(ValueError, match=r"process must be in \[0, 3\), got 3"):
        plan.gather(3, good, b)
