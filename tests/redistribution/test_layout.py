"""Layouts, compared with ownership computed index by index."""

import copy
import pickle
from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from redistribution_cases import draw_layout

from redistribution import BlockCyclic, Blocks, Cuts, Dealt, Layout, Replicated


def owned(layout, axis, coordinate):
    """Slow reference for global_indices: the owner of every index of the axis."""
    extent = layout.shape[axis]
    if isinstance(layout, BlockCyclic):
        block, parts = layout.block[axis], parts_of(layout, axis)
        return [g for g in range(extent) if g // block % parts == coordinate]
    if isinstance(layout, Blocks) or (isinstance(layout, Cuts) and axis == layout.axis):
        cuts = layout.offsets[axis] if isinstance(layout, Blocks) else layout.offsets
        return [g for g in range(extent) if cuts[coordinate] <= g < cuts[coordinate + 1]]
    if isinstance(layout, Dealt) and axis == 0:
        intervals = zip(pairwise(layout.offsets), layout.owner_of, strict=True)
        return [g for ends, owner in intervals if owner == coordinate for g in range(*ends)]
    return list(range(extent))


def parts_of(layout, axis):
    """Processes along the dimension of the grid that divides the axis."""
    return layout.grid[layout.cut.index(axis)] if axis in layout.cut else 1


@st.composite
def layouts(draw):
    def integer(low, high):
        return draw(st.integers(low, high))

    shape = tuple(integer(0, 20) for _ in range(integer(1, 4)))
    return draw_layout(integer, shape, ranks=8)


@given(layouts())
def test_local_parts_agree_with_ownership_index_by_index(layout):
    for process in range(layout.nprocs):
        coordinates = layout.coordinates(process)
        place = np.unravel_index(process, layout.grid)
        for axis, coordinate in enumerate(coordinates):
            divides = axis in layout.cut
            assert coordinate == (place[layout.cut.index(axis)] if divides else 0)
        indices = layout.global_indices(process)
        assert [list(along) for along in indices] == [
            owned(layout, axis, coordinate) for axis, coordinate in enumerate(coordinates)
        ]
        assert all(along.dtype == np.int64 for along in indices)
        assert layout.local_shape(process) == tuple(map(len, indices))


@given(layouts())
def test_every_element_has_one_owner_for_each_copy(layout):
    held = np.zeros(layout.shape, dtype=int)
    for process in range(layout.nprocs):
        held[np.ix_(*layout.global_indices(process))] += 1
    assert (held == layout.copies).all()


@given(layouts())
def test_layouts_are_values(layout):
    again = pickle.loads(pickle.dumps(layout))
    assert again == layout
    assert hash(again) == hash(layout)
    assert isinstance(again, Layout)
    for another in (again, copy.copy(layout), copy.deepcopy(layout)):
        assert (another, another.axes) == (layout, layout.axes)
    with pytest.raises(AttributeError):
        layout.shape = (1,)


@given(layouts())
def test_locate_finds_owner_and_local_index(layout):
    for axis in layout.axes:
        for part in range(axis.parts):
            where = axis.indices(part)
            owner, local = axis.locate(where)
            assert (owner == part).all()
            assert (local == np.arange(len(where))).all()


@given(layouts())
def test_owners_hold_the_elements(layout):
    for process in layout.holders[0]:
        own = np.meshgrid(*layout.global_indices(process), indexing="ij")
        assert (layout.owners([along.ravel() for along in own]) == process).all()


@given(st.integers(0, 1000), st.integers(1, 50))
def test_even_cuts_differ_by_at_most_one(extent, nprocs):
    layout = Cuts.even((3, extent), nprocs, axis=-1)
    sizes = [layout.local_shape(p)[1] for p in range(nprocs)]
    assert layout.axis == 1
    assert sum(sizes) == extent
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@examples(300)
@given(st.lists(st.integers(0, 9), max_size=9), st.integers(1, 5))
def test_no_cuts_have_a_lighter_heaviest_part(weights, nprocs):
    layout = Cuts.by_weight(weights, nprocs)
    assert layout.shape == (len(weights),)
    assert layout.nprocs == nprocs
    least = min(
        max(sum(weights[i:j]) for i, j in pairwise((0, *inner, len(weights))))
        for inner in combinations_with_replacement(range(len(weights) + 1), nprocs - 1)
    )
    assert max(sum(weights[i:j]) for i, j in pairwise(layout.offsets)) == least


def test_cuts_by_weight_of_many_rows():
    """Entries of a large matrix, balanced to one row; large weights cost no more time."""
    weights = np.random.default_rng(3).integers(0, 2**40, 100_000)
    layout = Cuts.by_weight(weights, 64)
    parts = np.add.reduceat(weights, layout.offsets[:-1])
    assert parts.max() <= weights.sum() / 64 + 2**40


def test_extents_beyond_32_bits():
    n = 2**40 + 5
    layout = BlockCyclic((n,), (2**31 + 1,), (3,))
    assert sum(layout.local_shape(p)[0] for p in range(3)) == n
    owner, local = layout.axes[0].locate(np.array([n - 1]))
    assert local[0] == layout.local_shape(owner[0])[0] - 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BlockCyclic((4,), (0,), (1,)), r"block must have entries >= 1, got \(0,\)"),
        (lambda: BlockCyclic((4,), (1,), (-2,)), r"grid must have entries >= 1, got \(-2,\)"),
        (lambda: BlockCyclic((-4,), (1,), (2,)), r"shape must have entries >= 0, got \(-4,\)"),
        (lambda: BlockCyclic((4, 4), (1,), (2, 1)), r"one entry for each axis, got shape \(4, 4\)"),
        (lambda: BlockCyclic((), (), ()), r"shape must have at least one axis"),
        (lambda: Cuts((4,), (0, 5)), r"end with 4, the extent of axis 0, got \(0, 5\)"),
        (lambda: Cuts((4,), (0,)), r"offsets must begin with 0"),
        (lambda: Cuts((4,), (0, 3, 2, 4)), r"must not descend, got 3 then 2 for process 1"),
        (lambda: Cuts((4,), (0, 4), axis=1), r"axes of shape \(4,\), got 1"),
        (lambda: Cuts.by_weight([1, -2], 1), r"weights must be >= 0, got -2 at 1"),
        (lambda: Cuts.by_weight([0.5], 1), r"row of integers, got float64 \(1,\)"),
        (lambda: Cuts.by_weight([1], -3), r"nprocs must be >= 1, got -3"),
        (lambda: Cuts.even((4,), 0), r"nprocs must be >= 1, got 0"),
        (lambda: Dealt((4,), (0, 4), (1,), 1), r"in \[0, 1\) for each of 1 intervals, got \(1,\)"),
        (lambda: Dealt((4,), (0, 4), (), 1), r"for each of 1 intervals, got \(\)"),
        (
            lambda: Dealt((4,), (0, 5), (0,), 1),
            r"begin with 0 and end with 4, the extent of axis 0, got \(0, 5\)",
        ),
        (lambda: Replicated((4,), -1), r"nprocs must be >= 1, got -1"),
        (lambda: Replicated((4,), 2).local_shape(2), r"process must be in \[0, 2\), got 2"),
    ],
)
def test_errors_name_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@examples(200)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=9))
def test_neighbours_own_the_adjacent_indices(inner):
    offsets = (0, *sorted(inner), 12)
    cuts = Cuts((3, 12), offsets, axis=1)
    owners = [p for p in range(cuts.nprocs) for _ in range(offsets[p], offsets[p + 1])]
    for process in range(cuts.nprocs):
        mine = [i for i, owner in enumerate(owners) if owner == process]
        padded = [None, *owners, None]
        expected = (padded[mine[0]], padded[mine[-1] + 2]) if mine else (None, None)
        assert cuts.neighbours(process) == expected
    with pytest.raises(ValueError, match="process must be in"):
        cuts.neighbours(cuts.nprocs)
