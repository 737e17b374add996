"""Selections on meshes and tori against slow twins that look at every node."""

from __future__ import annotations

from itertools import permutations, product
from math import prod

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from meshes import MESHES

from scheduler.model.machine import Machine
from scheduler.model.network import Mesh, box
from scheduler.model.procset import ProcSet
from scheduler.model.space import Space
from scheduler.policies.selection.on_network import (
    Submesh,
    SubmeshRelaxed,
)


@st.composite
def spaces(draw: st.DrawFn) -> tuple[Mesh, Space]:
    """Mesh with some free processors, of which the space has seen some changes."""
    mesh = draw(MESHES)
    number = st.integers(0, mesh.processors - 1)
    space = Space(ProcSet.span(0, mesh.processors), mesh)
    Submesh().fits(space, 1)  # the counts of free nodes are made, and then changed
    for _ in range(draw(st.integers(0, 3))):
        part = ProcSet.of(draw(st.sets(number, max_size=mesh.processors)))
        if draw(st.booleans()):
            space.take(part & space.free)
        else:
            space.put(part - space.free)
        if draw(st.booleans()):
            space = space.copy()
    return mesh, space


def processors_of(mesh: Mesh, nodes: list[tuple[int, ...]]) -> set[int]:
    """Processor numbers of nodes by coordinates."""
    found = set()
    for node in nodes:
        position = 0
        for coordinate, size in zip(node, mesh.dims, strict=True):
            position = position * size + coordinate
        per_node = mesh.processors_per_node
        found |= set(range(position * per_node, (position + 1) * per_node))
    return found


def slow_boxes(mesh: Mesh, sides: tuple[int, ...]) -> list[set[int]]:
    """Processors of each box in the order of the search."""
    found = []
    for turned in sorted(set(permutations(sides))):
        if any(side > size for side, size in zip(turned, mesh.dims, strict=True)):
            continue
        for corner in product(*map(range, mesh.dims)):
            axes = [range(c, c + side) for c, side in zip(corner, turned, strict=True)]
            nodes = list(product(*axes))
            if mesh.wraps:
                nodes = [tuple(c % s for c, s in zip(n, mesh.dims, strict=True)) for n in nodes]
            elif any(c >= s for n in nodes for c, s in zip(n, mesh.dims, strict=True)):
                continue
            found.append(processors_of(mesh, nodes))
    return found


def slow_sides(dims: tuple[int, ...], nodes: int) -> tuple[int, ...] | None:
    """Most compact box: all boxes that fit in some rotation are compared."""
    descending = sorted(dims, reverse=True)
    boxes = [
        sides
        for sides in product(*(range(1, size + 1) for size in descending))
        if list(sides) == sorted(sides, reverse=True) and prod(sides) >= nodes
    ]
    return min(boxes, key=lambda sides: (sum(sides), prod(sides), sides), default=None)


def slow_submesh(mesh: Mesh, free: set[int], processors: int, relax: int) -> set[int] | None:
    sides = slow_sides(mesh.dims, -(-processors // mesh.processors_per_node))
    if sides is None:
        return None
    limits = sorted(mesh.dims, reverse=True)
    for step in range(relax + 1):
        wider = tuple(min(s + step, most) for s, most in zip(sides, limits, strict=True))
        for place in slow_boxes(mesh, wider):
            if len(place & free) >= processors:
                return set(sorted(place & free)[:processors])
    return None


@given(st.lists(st.integers(1, 7), min_size=1, max_size=3), st.integers(1, 200))
def test_the_most_compact_box(dims: list[int], nodes: int) -> None:
    assert box(tuple(dims), nodes) == slow_sides(tuple(dims), nodes)


@given(spaces(), st.integers(1, 30))
def test_submeshes_equal_their_twins(drawn: tuple[Mesh, Space], processors: int) -> None:
    mesh, space = drawn
    for relax, selection in ((0, Submesh()), (1, SubmeshRelaxed()), (2, Submesh(2))):
        expected = slow_submesh(mesh, set(space.free), processors, relax)
        found = selection.select(space, processors)
        assert (None if found is None else set(found)) == expected
        assert selection.fits(space, processors) == (expected is not None)
        if found is not None and relax == 0:
            assert mesh.contiguous(found)


@given(spaces(), st.integers(1, 12))
def test_contiguous_means_inside_a_box(drawn: tuple[Mesh, Space], processors: int) -> None:
    mesh, space = drawn
    assume(space.free.count() >= processors)
    chosen = ProcSet.of(list(space.free)[::-1][:processors])
    sides = slow_sides(mesh.dims, -(-processors // mesh.processors_per_node))
    assert sides is not None
    inside = any(set(chosen) <= place for place in slow_boxes(mesh, sides))
    assert mesh.contiguous(chosen) == inside


def test_selections_by_hand() -> None:
    torus = Mesh((4, 4), wraps=True)
    space = Space(ProcSet.parse("0 3 4 7 9-10 13-14"), torus)
    assert str(Submesh().select(space, 4)) == "0 3-4 7", "the box at (0, 3) crosses the border"
    assert str(Submesh().select(Space(space.free, Mesh((4, 4))), 4)) == "9-10 13-14"
    space.take(ProcSet.parse("0 9"))
    assert Submesh().select(space, 4) is None
    assert str(SubmeshRelaxed().select(space, 4)) == "3-4 7 10"
    assert str(Submesh().select(space, 2)) == "4 7"


@settings(max_examples=30)
@given(spaces(), st.integers(1, 9))
def test_what_is_kept_for_later_is_free_now(drawn: tuple[Mesh, Space], processors: int) -> None:
    mesh, now = drawn
    then = Space(ProcSet.span(0, mesh.processors), mesh)
    if Submesh().fits(then, processors):
        kept = Submesh().keep(then, now, processors)
        assert not kept - now.free
        assert kept.count() <= processors


def test_a_selection_needs_its_network() -> None:
    from reshape.errors import ConfigError
    from scheduler.model.network import Tree
    from scheduler.policies.scenarios import scenario

    for name, network, says in (
        ("submesh", None, "it needs a machine with a network"),
        ("submesh", Tree(4, 2), "a mesh or torus, and this one is a tree"),
        ("tree", Mesh((4, 4)), "a tree, and this one is a mesh or torus"),
    ):
        machine = Machine([("n", 8)], network=network)
        with pytest.raises(ConfigError, match=says):
            scenario("easy", {"selection": name}).selection_may_refuse(machine)
