"""Relabelled ranks move the fewest bytes: compared with all permutations and with known figures."""

from itertools import permutations

import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from redistribution_cases import draw_layout, draw_ranks

from redistribution import BlockCyclic, Cuts, Plan, Replicated, relabel


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
    found = relabel(*problem)
    assert len(found) == target.nprocs
    assert set(found) <= set(target_ranks)
    moved = Plan(source, target, source_ranks, found).bytes_moved(1)
    least = min(
        Plan(source, target, source_ranks, ranks).bytes_moved(1)
        for ranks in permutations(target_ranks, target.nprocs)
    )
    assert moved == least
    as_given = target_ranks[: target.nprocs]
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
    as_given = Plan(source, target).bytes_moved(8)
    relabelled = Plan(source, target, None, relabel(source, target)).bytes_moved(8)
    assert 1 - relabelled / as_given == pytest.approx(saved, abs=0.005)


def test_a_contraction_chooses_the_best_ranks():
    """From four ranks to two of them: those that have most elements."""
    source = Cuts((100,), (0, 10, 50, 60, 100))
    assert relabel(source, Cuts.even((100,), 2), None, range(4)) == (1, 3)
    assert relabel(source, Cuts.even((100,), 2), None, (0, 2)) == (0, 2)
    assert relabel(Replicated((5,), 2), Replicated((5,), 2), (4, 7), (0, 1, 7, 4)) == (7, 4)


def test_errors_name_bad_ranks():
    layout = Cuts.even((4,), 2)
    with pytest.raises(ValueError, match=r"target_ranks .* 2 processes, got \(1,\)"):
        relabel(layout, layout, None, [1])
    with pytest.raises(ValueError, match=r"source_ranks must be distinct, got 3 twice"):
        relabel(layout, layout, [3, 3])
