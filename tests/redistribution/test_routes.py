"""Schedules: every pair of ranks once, no rank twice in one step."""

import itertools

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from redistribution_cases import draw_layout, draw_ranks

from redistribution import BlockCyclic, Cuts, Plan, Replicated


@st.composite
def layout_pairs(draw):
    def integer(low, high):
        return draw(st.integers(low, high))

    shape = tuple(integer(1, 12) for _ in range(integer(1, 3)))
    return draw_layout(integer, shape, ranks=12), draw_layout(integer, shape, ranks=12)


def check(plan):
    """No rank sends or receives twice in a step; every pair of ranks occurs in one step."""
    schedule = plan.schedule()
    for step in schedule:
        assert len({sender for sender, _ in step}) == len(step)
        assert len({receiver for _, receiver in step}) == len(step)
    scheduled = list(itertools.chain(*schedule))
    expected = set()
    for receiver in plan.target_ranks:
        expected |= {(t.peer, receiver) for t in plan.incoming(receiver) if t.peer != receiver}
    assert len(scheduled) == len(set(scheduled))
    assert set(scheduled) == expected
    # Each rank begins its messages in the order of the steps, and its own part comes first.
    for rank in plan.source_ranks:
        steps = [plan.step(rank, t.peer) for t in plan.outgoing(rank)]
        assert steps == sorted(set(steps))
    for rank in plan.target_ranks:
        steps = [plan.step(t.peer, rank) for t in plan.incoming(rank)]
        assert steps == sorted(set(steps))
    return schedule


@examples(500)
@given(layout_pairs(), st.sampled_from(["rotation", "circulant"]), st.randoms())
def test_no_step_has_contention(pair, ordering, random):
    source, target = pair
    ranks = [random.sample(range(14), layout.nprocs) for layout in pair]
    check(Plan(source, target, *ranks, ordering=ordering))


@pytest.mark.parametrize("before", [(1, 2), (2, 2), (2, 3), (3, 4), (4, 4), (5, 1)])
@pytest.mark.parametrize("after", [(2, 2), (2, 4), (4, 4), (6, 4), (3, 5), (1, 7)])
def test_circulant_schedules_have_the_fewest_steps(before, after):
    """With equal blocks there are as many steps as the busiest rank has partners."""
    n, block = 840, 2
    source, target = (BlockCyclic((n, n), (block, block), grid) for grid in (before, after))
    # Disjoint ranks: no elements stay, so that every pair is scheduled.
    ranks = range(source.nprocs), range(source.nprocs, source.nprocs + target.nprocs)
    schedule = check(Plan(source, target, *ranks, ordering="circulant"))
    pairs = np.array(list(itertools.chain(*schedule)))
    # A rank has that many partners, so fewer steps are impossible.
    assert len(schedule) == max(np.unique(side, return_counts=True)[1].max() for side in pairs.T)
    assert len(schedule) <= len(check(Plan(source, target, *ranks)))


def test_the_schedule_of_sudarsan_and_ribbens_on_a_small_grid():
    """2x2 -> 2x4: groups of one row and two columns; two steps with all four senders in each."""
    source, target = (BlockCyclic((16, 16), (2, 2), grid) for grid in ((2, 2), (2, 4)))
    plan = Plan(source, target, range(4), range(10, 18), ordering="circulant")
    assert [sorted(step) for step in plan.schedule()] == [
        [(0, 10), (1, 11), (2, 14), (3, 15)],
        [(0, 12), (1, 13), (2, 16), (3, 17)],
    ]


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


def test_an_unknown_ordering_is_an_error():
    layout = Cuts.even((4,), 2)
    with pytest.raises(ValueError, match=r"one of \('rotation', 'circulant'\), got 'random'"):
        Plan(layout, layout, ordering="random")
