"""Divisions of arrays over a process grid, at every size."""

from __future__ import annotations

import numpy as np
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from redistribution_cases import draw_cut

from reshape.data.declarations import EVEN, Declaration, declare, declare_cyclic, divide
from reshape.topology import nearly_square

SIZES = range(1, 9)


@st.composite
def declarations(draw: st.DrawFn) -> Declaration:
    """Any array that is divided along some axes."""
    kind = draw(st.sampled_from(["blocks", "block_cyclic", "rows"]))
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    if kind == "rows":
        axis = draw(st.integers(0, len(shape) - 1))
        return declare("a", "rows", shape, (axis,), "f8", "C", EVEN)
    cut = draw_cut(lambda low, high: draw(st.integers(low, high)), len(shape))
    if all(axis is None for axis in cut):
        cut = (0,)
    if kind == "block_cyclic":
        block = [draw(st.integers(1, 3)) for axis in cut if axis is not None]
        return declare_cyclic("a", shape, block, "f8", "C", cut, None, None)
    division = divide("a", "blocks", shape, cut)
    return declare("a", "blocks", shape, (0,) * 2 * len(shape), "f8", "C", division)


def ranks_of(declaration: Declaration, size: int, axis: int, dimension: int) -> np.ndarray:
    """Coordinate, in a dimension of the process grid, of the processes with each index of an axis.

    Shape (extent,).
    """
    layout = declaration.layout(size)
    found = np.full(declaration.shape[axis], -1)
    for process in range(size):
        place = np.unravel_index(process, layout.grid)
        found[layout.global_indices(process)[axis]] = place[dimension]
    return found


@examples(150)
@given(declarations(), st.data())
def test_an_array_like_another_one_has_its_points_on_the_same_ranks(
    like: Declaration, data: st.DataObject
) -> None:
    """Its axes are others, in another order, and have up to one point more or less."""
    theirs = like.division.cut
    axes = data.draw(st.permutations(range(len(theirs) + 1)))
    cut, shape = [], [3] * (len(theirs) + 1)
    for axis, dimension in zip(axes, theirs, strict=False):
        cut.append(axis)
        if dimension is not None:
            shape[axis] = max(0, like.shape[dimension] + data.draw(st.integers(-1, 1)))
    if like.kind == "block_cyclic":
        array = declare_cyclic("b", shape, None, "f8", "C", cut, None, like)
    else:
        division = divide("b", "blocks", shape, cut, None, like)
        array = declare("b", "blocks", shape, (0,) * 2 * len(shape), "f8", "C", division)
    for size in SIZES:
        assert array.layout(size).grid == like.layout(size).grid
        for k, (axis, dimension) in enumerate(zip(cut, theirs, strict=True)):
            if dimension is None:
                continue
            own, other = ranks_of(array, size, axis, k), ranks_of(like, size, dimension, k)
            common = min(len(own), len(other))
            assert (own[:common] == other[:common]).all()
            if like.kind != "block_cyclic" and len(own) > len(other):
                assert own[-1] == other[-1]


def test_what_is_divided_by_default_is_declared_as_without_a_division() -> None:
    plain = declare("a", "blocks", (4, 5), (0,) * 4, "f8", "C")
    for division in (
        divide("a", "blocks", (4, 5), (0, 1)),
        divide("a", "blocks", (4, 5), None, (0, 0)),
        divide("a", "blocks", (4, 5), None, None, plain._replace(name="b")),
    ):
        assert declare("a", "blocks", (4, 5), (0,) * 4, "f8", "C", division) == plain


def test_a_grid_has_the_given_dimensions_and_chosen_ones() -> None:
    cut, shape = (0, 1, 2), (8, 8, 8)
    grid = declare("a", "blocks", shape, (0,) * 6, "f8", "C", divide("a", "blocks", shape, cut))
    fixed = grid._replace(grid=(0, 3, 0))
    assert [fixed.layout(size).grid for size in (3, 6, 12)] == [(1, 3, 1), (2, 3, 1), (2, 3, 2)]
    assert grid.layout(12).grid == (3, 2, 2)


def test_the_grid_of_a_block_cyclic_array_is_ascending_and_that_of_prio_for_two_axes() -> None:
    for size in (1, 7, 12, 30, 64):
        plane, cube = (
            declare_cyclic("a", (9,) * ndim, (1,) * ndim, "f8", "C", None, None, None).layout(size)
            for ndim in (2, 3)
        )
        assert plane.grid == nearly_square(size)
        assert cube.grid == tuple(sorted(cube.grid))
        assert cube.nprocs == size
    assert cube.grid == (4, 4, 4)
