"""Blocks over a process grid, compared with a search point by point."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from redistribution_cases import draw_cut, draw_offsets

from redistribution import Blocks, balanced_grid
from redistribution.axes import fitted_offsets


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
def test_a_grid_is_the_most_balanced_one(ndim):
    for nprocs in range(1, 41):
        grids = (
            [
                grid
                for grid in product(range(1, nprocs + 1), repeat=ndim)
                if math.prod(grid) == nprocs and list(grid) == sorted(grid, reverse=True)
            ]
            if ndim < 4 or nprocs <= 16
            else [balanced_grid(nprocs, ndim)]
        )
        grid = balanced_grid(nprocs, ndim)
        assert grid in grids
        assert grid[0] - grid[-1] == min(each[0] - each[-1] for each in grids)


@pytest.mark.mpi(min_size=1)
def test_grids_are_those_of_mpi():
    from mpi4py import MPI

    for ndim, nprocs in product(range(1, 5), range(1, 129)):
        assert list(balanced_grid(nprocs, ndim)) == MPI.Compute_dims(nprocs, ndim)


@st.composite
def blocks(draw):
    """Even parts of all axes, or any parts of some of them, with copies."""

    def integer(low, high):
        return draw(st.integers(low, high))

    shape = tuple(integer(1, 7) for _ in range(integer(1, 4)))
    cut = draw_cut(integer, len(shape)) if integer(0, 1) else ()
    grid = tuple(integer(1, 4) for _ in cut or shape)
    even = Blocks(shape, grid, cut)
    if integer(0, 1):
        return even
    parts = zip(shape, even.parts, strict=True)
    return Blocks(shape, grid, cut, tuple(draw_offsets(integer, *each) for each in parts))


@examples(60)
@given(blocks(), st.data())
def test_ghosts_are_the_points_around_a_part(layout, data):
    axis = data.draw(st.integers(0, len(layout.shape) - 1))
    width, periodic = data.draw(st.integers(0, 9)), data.draw(st.booleans())
    process = data.draw(st.integers(0, layout.nprocs - 1))
    extent = layout.shape[axis]
    owned = [np.arange(low, high) for low, high in pairwise(layout.offsets[axis])]
    owner = {int(g): (part, k) for part, own in enumerate(owned) for k, g in enumerate(own)}
    own = owned[layout.coordinates(process)[axis]]
    expected = {}
    if len(own):
        for position in [*range(-width, 0), *range(len(own), len(own) + width)]:
            index = int(own[0]) + position
            if periodic or 0 <= index < extent:
                expected[position] = owner[index % extent]
    ghosts = layout.ghosts(process, axis, width, periodic)
    points = [
        (ghost.position + k, (ghost.part, ghost.start + k))
        for ghost in ghosts
        for k in range(ghost.length)
    ]
    assert points == sorted(expected.items())


@examples(60)
@given(blocks(), st.data())
def test_neighbours_own_the_adjacent_points_of_their_copy(layout, data):
    axis, periodic = data.draw(st.integers(0, len(layout.shape) - 1)), data.draw(st.booleans())
    for processes in layout.holders:
        owner = np.empty(layout.shape, int)
        for process in processes:
            owner[np.ix_(*layout.global_indices(process))] = process
        for process in processes:
            expected = [None, None]
            points = np.argwhere(owner == process)
            if len(points):
                for side, (point, step) in enumerate(((points[0], -1), (points[-1], 1))):
                    other = point.copy()
                    other[axis] += step
                    if periodic or 0 <= other[axis] < layout.shape[axis]:
                        other[axis] %= layout.shape[axis]
                        expected[side] = owner[tuple(other)]
            assert layout.neighbours(process, axis, periodic) == tuple(expected)


@given(blocks())
def test_copies_are_along_the_dimensions_that_divide_no_axis(layout):
    """The places of the processes of a copy in the grid differ in the other dimensions only."""
    copied = [k for k, axis in enumerate(layout.cut) if axis is None]
    for copy, processes in enumerate(layout.holders):
        places = np.transpose(np.unravel_index(processes, layout.grid))
        assert len(np.unique(places[:, copied], axis=0)) == 1
        assert [layout.places[process] for process in processes] == [
            (copy, part) for part in range(len(processes))
        ]
        coordinates = [layout.coordinates(process) for process in processes]
        assert coordinates == list(product(*map(range, layout.parts)))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(-1, 2))
def test_a_staggered_axis_has_its_further_points_on_the_last_process_with_points(lengths, more):
    offsets = (0, *np.cumsum(lengths).tolist())
    extent = max(0, offsets[-1] + more)
    fitted = fitted_offsets(offsets, extent)
    assert Blocks((extent,), (len(lengths),), offsets=(fitted,)).shape == (extent,)
    for index in range(min(extent, offsets[-1])):  # all common points are where they were
        assert np.searchsorted(fitted, index, "right") == np.searchsorted(offsets, index, "right")
    was_last = max((p for p, length in enumerate(lengths) if length), default=0)
    assert fitted[was_last + 1 :] == (extent,) * (len(lengths) - was_last)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Blocks((4, 4), (2,)), r"shape and grid must have one entry for each axis"),
        (lambda: Blocks((4, 4), (2,), (0, 1)), r"one entry for each dimension of the grid \(2,\)"),
        (lambda: Blocks((4, 4), (2,), (2,)), r"axis must name one of the axes of shape \(4, 4\)"),
        (lambda: Blocks((4, 4), (2, 1), (1, -1)), r"cut must name each axis once, got \(1, 1\)"),
        (lambda: Blocks((4,), (2,), offsets=((0, 4),)), r"must have 3 entries for 2 parts"),
        (lambda: Blocks((4,), (2,), offsets=((0, 2, 5),)), r"end with 4, the extent of axis 0"),
        (lambda: Blocks((4,), (2,), offsets=(None, None)), r"offsets must have one entry for each"),
        (lambda: Blocks((4,), (0,)), "grid must have entries >= 1"),
        (lambda: Blocks((), ()), "shape must have at least one axis"),
        (lambda: Blocks((4,), (2,)).neighbours(0, axis=1), "axis must name one of the axes"),
        (lambda: Blocks((4,), (2,)).neighbours(2, axis=0), "process must be in"),
        (lambda: balanced_grid(0, 2), "nprocs and ndim must be >= 1, got 0 and 2"),
    ],
)
def test_errors_name_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
