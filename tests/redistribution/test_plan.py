"""Plans run in one process that acts for all ranks, with the copies that MPI ranks use."""

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from redistribution_cases import draw_case, empty_part, index_valued, local_part

from redistribution import BlockCyclic, Cuts, Plan, Replicated
from redistribution.copies import kernel
from redistribution.copies.byte_ranges import contiguous_message
from redistribution.copies.copying import Copy, copy
from redistribution.copies.regions import array_region, message_region
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
    with tuning.changed(kernel_run_bytes=1, streamed_bytes=streamed):
        check(case)


@examples(250)
@given(cases(), st.integers(1, 40))
def test_moves_without_the_kernel(case, limit):
    with tuning.changed(use_kernel=False):
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
