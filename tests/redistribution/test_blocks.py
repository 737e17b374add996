"""Blocks over a process grid, compared with a search point by point."""

import math
from itertools import product

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from redistribution import Blocks, balanced_grid


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
    ndim = draw(st.integers(1, 4))
    shape = tuple(draw(st.integers(1, 7)) for _ in range(ndim))
    return Blocks(shape, tuple(draw(st.integers(1, 4)) for _ in range(ndim)))


@examples(60)
@given(blocks(), st.data())
def test_ghosts_are_the_points_around_a_part(layout, data):
    axis = data.draw(st.integers(0, len(layout.shape) - 1))
    width, periodic = data.draw(st.integers(0, 9)), data.draw(st.booleans())
    process = data.draw(st.integers(0, layout.nprocs - 1))
    extent, parts = layout.shape[axis], layout.grid[axis]
    owned = np.array_split(np.arange(extent), parts)
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
def test_neighbours_own_the_adjacent_points(layout, data):
    axis, periodic = data.draw(st.integers(0, len(layout.shape) - 1)), data.draw(st.booleans())
    owner = np.empty(layout.shape, int)
    for process in range(layout.nprocs):
        owner[np.ix_(*layout.global_indices(process))] = process
    for process in range(layout.nprocs):
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Blocks((4, 4), (2,)), r"shape and grid must have one entry for each axis"),
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
