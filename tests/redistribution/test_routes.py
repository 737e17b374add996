"""Routes: every pair of ranks once, no rank twice in one step; kept parts, hosts, relabelling."""

from itertools import permutations

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from redistribution_cases import draw_layout, draw_ranks

from redistribution import BlockCyclic, Cuts, Plan, Replicated, relabel


@st.composite
def layout_pairs(draw):
    def integer(low, high):
        return draw(st.integers(low, high))

    shape = tuple(integer(1, 12) for _ in range(integer(1, 3)))
    return draw_layout(integer, shape, ranks=12), draw_layout(integer, shape, ranks=12)


@examples(500)
@given(layout_pairs(), st.randoms())
def test_no_step_has_contention(pair, random):
    """No rank sends or receives twice in a step; a rank begins its messages in their order."""
    source, target = pair
    plan = Plan(source, target, *(random.sample(range(14), layout.nprocs) for layout in pair))
    sent = [(rank, t.peer) for rank in plan.source_ranks for t in plan.outgoing(rank)]
    received = [(t.peer, rank) for rank in plan.target_ranks for t in plan.incoming(rank)]
    assert len(sent) == len(set(sent))
    assert sorted(sent) == sorted(received)
    for one, other in ((0, 1), (1, 0)):
        meetings = {(pair[one], plan.step(*pair)): pair[other] for pair in sent}
        assert len(meetings) == len(sent)
    # Its own part comes first.
    for rank in plan.source_ranks:
        steps = [plan.step(rank, t.peer) for t in plan.outgoing(rank)]
        assert steps == sorted(set(steps))
    for rank in plan.target_ranks:
        steps = [plan.step(t.peer, rank) for t in plan.incoming(rank)]
        assert steps == sorted(set(steps))


@st.composite
def similar_layouts(draw):
    """Plans between layouts that often have equal parts, and the plan's ranks."""

    def integer(low, high):
        return draw(st.integers(low, high))

    shape = tuple(integer(0, 8) for _ in range(integer(1, 2)))
    source = draw_layout(integer, shape, ranks=4)
    pairs = [
        (source, source),
        (Replicated(shape, integer(1, 4)), Replicated(shape, integer(1, 4))),
        (source, draw_layout(integer, shape, ranks=4)),
    ]
    pair = pairs[integer(0, 2)]
    ranks = [
        range(layout.nprocs) if integer(0, 1) else draw_ranks(integer, layout.nprocs, 5)
        for layout in pair
    ]
    return Plan(*pair, *ranks)


@examples(400)
@given(similar_layouts())
def test_a_rank_keeps_a_part_with_the_same_elements_in_the_same_places(plan):
    array = np.arange(np.prod(plan.source.shape, dtype=int)).reshape(plan.source.shape)
    for rank in range(plan.size + 1):
        p, q = plan.source_process.get(rank), plan.target_process.get(rank)
        is_kept = p is not None and q is not None
        if is_kept:
            before = array[np.ix_(*plan.source.global_indices(p))]
            is_kept = np.array_equal(before, array[np.ix_(*plan.target.global_indices(q))])
        assert plan.keeps(rank) == is_kept


@st.composite
def plans_on_hosts(draw):
    def integer(low, high):
        return draw(st.integers(low, high))

    shape = tuple(integer(0, 12) for _ in range(integer(1, 2)))
    source, target = (draw_layout(integer, shape, ranks=8) for _ in range(2))
    ranks = [draw_ranks(integer, layout.nprocs, 10) for layout in (source, target)]
    return Plan(source, target, *ranks, hosts=[integer(0, 3) for _ in range(10)])


@examples(300)
@given(plans_on_hosts())
def test_only_what_comes_from_another_host_is_sent(plan):
    sent = near = 0
    for rank in plan.target_ranks:
        on_host = {p for p in plan.source_ranks if plan.hosts[p] == plan.hosts[rank]}
        for transfer in plan.incoming(rank):
            assert (transfer.peer in on_host) == plan.is_near(rank, transfer.peer)
            near += transfer.elements if transfer.peer in on_host else 0
            sent += 0 if transfer.peer in on_host else transfer.elements
            if plan.source.copies == len(plan.source_ranks) and on_host:
                assert transfer.peer in on_host, "a copy on the own host comes first"
    assert plan.bytes_sent(itemsize=3) == 3 * sent
    assert near + sent == plan.target.copies * np.prod(plan.target.shape, dtype=int)
    alone = Plan(plan.source, plan.target, plan.source_ranks, plan.target_ranks)
    assert plan.bytes_sent(1) <= alone.bytes_sent(1) == alone.bytes_moved(1)


def test_a_rank_without_a_host_is_an_error():
    layout = Cuts.even((4,), 3)
    with pytest.raises(ValueError, match=r"hosts must name the host of 3 ranks, got \(0, 0\)"):
        Plan(layout, layout, hosts=[0, 0])


# ---------------------------------------------------------------- relabelled ranks


@st.composite
def problems(draw):
    def integer(low, high):
        return draw(st.integers(low, high))

    shape = tuple(integer(0, 12) for _ in range(integer(1, 2)))
    source, target = (draw_layout(integer, shape, ranks=5) for _ in range(2))
    spare = integer(0, 1)
    return (
        source,
        target,
        draw_ranks(integer, source.nprocs, 6),
        draw_ranks(integer, target.nprocs + spare, 6),
    )


@examples(300)
@given(problems())
def test_no_permutation_moves_less(problem):
    source, target, source_ranks, target_ranks = problem
    as_given = target_ranks[: target.nprocs]
    found = relabel([(Plan(source, target, source_ranks, as_given), 1)], target_ranks)
    assert len(found) == target.nprocs
    assert set(found) <= set(target_ranks)
    moved = Plan(source, target, source_ranks, found).bytes_moved(1)
    least = min(
        Plan(source, target, source_ranks, ranks).bytes_moved(1)
        for ranks in permutations(target_ranks, target.nprocs)
    )
    assert moved == least
    if Plan(source, target, source_ranks, as_given).bytes_moved(1) == least:
        assert found == as_given


@pytest.mark.parametrize(
    ("n", "before", "after", "saved"),
    [
        (8192, ((64, 64), (1, 2)), ((64, 64), (2, 2)), 0.00),
        (8192, ((64, 64), (2, 2)), ((64, 64), (2, 3)), 0.12),
        (4096, ((64, 64), (4, 4)), ((64, 64), (4, 6)), 0.28),
        (8192, ((64, 64), (4, 8)), ((64, 64), (8, 4)), 0.43),
        (8192, ((128, 128), (1, 64)), ((103, 103), (1, 80)), 0.68),
    ],
)
def test_known_savings(n, before, after, saved):
    source, target = BlockCyclic((n, n), *before), BlockCyclic((n, n), *after)
    plan = Plan(source, target)
    ranks = relabel([(plan, 8)], plan.target_ranks)
    relabelled = Plan(source, target, None, ranks).bytes_moved(8)
    assert 1 - relabelled / plan.bytes_moved(8) == pytest.approx(saved, abs=0.005)


def test_a_contraction_chooses_the_best_ranks():
    """From four ranks to two of them: those that have most elements."""
    plan = Plan(Cuts((100,), (0, 10, 50, 60, 100)), Cuts.even((100,), 2))
    assert relabel([(plan, 8)], range(4)) == (1, 3)
    assert relabel([(plan, 8)], (0, 2)) == (0, 2)
    copies = Plan(Replicated((5,), 2), Replicated((5,), 2), (4, 7), (0, 1))
    assert relabel([(copies, 8)], (0, 1, 7, 4)) == (7, 4)


def test_the_larger_array_decides():
    """Of two arrays that need opposite ranks."""
    turned, same = ((0, 1, 9), (0, 8, 9)), ((0, 8, 9), (0, 8, 9))
    plans = [Plan(*(Cuts((9,), offsets) for offsets in cuts)) for cuts in (turned, same)]
    assert relabel(zip(plans, (8, 1), strict=True), (0, 1)) == (1, 0)
    assert relabel(zip(plans, (1, 8), strict=True), (0, 1)) == (0, 1)
