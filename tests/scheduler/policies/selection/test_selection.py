"""Processor selections against slow, simple versions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.interfaces import Selection
from scheduler.model.network import Tree
from scheduler.model.procset import ProcSet
from scheduler.model.space import Groups, Space
from scheduler.policies.selection.basic import Contiguous, FirstFit
from scheduler.policies.selection.on_network import TreeContiguous, TreeRelaxed

TREES = [Tree(2, 5), Tree(4, 3), Tree(3, 3, 2), Tree(4, 2, 4)]


def slow_first_fit(free: set[int], x: int, tree: Tree) -> list[int] | None:
    return sorted(free)[:x] if len(free) >= x else None


def slow_contiguous(free: set[int], x: int, tree: Tree) -> list[int] | None:
    for i in sorted(free):
        if all(j in free for j in range(i, i + x)):
            return list(range(i, i + x))
    return None


def slow_tree(free: set[int], x: int, tree: Tree) -> list[int] | None:
    """LOC figure 1, its first loop as it was meant, for nodes of several processors."""
    level = 1 if tree.processors_per_node == 1 else 0
    while x > tree.processors_per_node * tree.k**level:
        level += 1
    return sweep(free, x, tree, level)


def sweep(free: set[int], x: int, tree: Tree, level: int) -> list[int] | None:
    level_size = tree.processors_per_node * tree.k**level
    if level > tree.levels:
        return None
    i = 0
    while i < tree.processors:
        node_list: list[int] = []
        for _ in range(level_size):
            if i in free and len(node_list) < x:
                node_list.append(i)
            i += 1
        if len(node_list) == x:
            return node_list
    return None


def slow_relaxed(free: set[int], x: int, tree: Tree) -> list[int] | None:
    found = slow_tree(free, x, tree)
    level = tree.level(x)
    return sweep(free, x, tree, level + 1) if found is None and level is not None else found


Twin = Callable[[set[int], int, Tree], "list[int] | None"]
TWINS: list[tuple[Selection, Twin]] = [
    (FirstFit(), slow_first_fit),
    (Contiguous(), slow_contiguous),
    (TreeContiguous(), slow_tree),
    (TreeRelaxed(), slow_relaxed),
]


@pytest.mark.parametrize(("selection", "twin"), TWINS)
@examples(60)
@given(data=st.data(), tree=st.sampled_from(TREES))
def test_choices_on_a_machine(selection: Selection, twin: Twin, data: st.DataObject, tree: Tree):
    """The selection and the slow version choose the same processors, or both refuse."""
    installed = data.draw(st.sets(st.integers(0, tree.processors - 1), min_size=1))
    space, free, held = Space(ProcSet.of(installed), tree), set(installed), []
    for _ in range(data.draw(st.integers(1, 12))):
        if held and data.draw(st.booleans()):
            back = held.pop(data.draw(st.integers(0, len(held) - 1)))
            space.put(back)
            free |= set(back)
        x = data.draw(st.integers(1, tree.processors))
        if x > len(free):
            continue
        chosen, expected = selection.select(space, x), twin(free, x, tree)
        assert (None if chosen is None else list(chosen)) == expected
        assert selection.fits(space, x) == (chosen is not None)
        assert chosen is not None or not selection.anywhere
        if chosen is not None:
            if isinstance(selection, TreeContiguous) and not selection.relax:
                assert tree.contiguous(chosen)
            space.take(chosen)
            free -= set(chosen)
            held.append(chosen)
        assert list(space.free) == sorted(free)


@pytest.mark.parametrize("selection", [s for s, _ in TWINS[1:]])
@given(data=st.data(), tree=st.sampled_from(TREES))
def test_processors_that_are_kept_provide_a_place_later(
    selection: Selection, data: st.DataObject, tree: Tree
) -> None:
    """Whatever others take of the rest, the job can start when the others have come back."""
    numbers = st.sets(st.integers(0, tree.processors - 1))
    free, back = data.draw(numbers), data.draw(numbers)
    now = Space(ProcSet.of(free), tree)
    then = now.copy()
    then.put(ProcSet.of(back - free))
    x = data.draw(st.integers(1, max(1, len(free | back))))
    if x > len(free | back) or selection.select(then, x) is None:
        return
    kept = selection.keep(then, now, x)
    assert not kept - now.free
    assert kept.count() <= x
    if selection.select(now, x) is None:
        taken = ProcSet.of(data.draw(st.sets(st.sampled_from(sorted(free))))) if free else ProcSet()
        then.take(taken - kept)
        assert selection.select(then, x) is not None


@given(data=st.data(), size=st.integers(1, 5))
def test_counts_of_free_processors_in_groups(data: st.DataObject, size: int) -> None:
    free = data.draw(st.sets(st.integers(0, 40)))
    groups = Groups(size, ProcSet.of(free))
    for _ in range(4):
        change = data.draw(st.sets(st.integers(0, 150)))  # several blocks of groups
        groups.change(ProcSet.of(change - free), 1)
        free |= change
        gone = data.draw(st.sets(st.sampled_from(sorted(free)))) if free else set()
        groups = groups.copy()
        groups.change(ProcSet.of(gone), -1)
        free -= gone
        counts = [sum(n // size == g for n in free) for g in range(152)]
        for x in range(1, size + 1):
            assert groups.first(x) == next((g for g in range(152) if counts[g] >= x), None)


def test_levels_of_the_paper() -> None:
    """LOC section 3: in a 4-ary 3-tree 4 nodes need an empty switch, 14 are of level 2."""
    tree = Tree(4, 3)
    assert [tree.level(x) for x in (1, 4, 5, 14, 16, 17, 64, 65)] == [1, 1, 2, 2, 2, 3, 3, None]
    space = Space(ProcSet.parse("1-7 13-63"), tree)
    assert str(TreeContiguous().select(space, 4)) == "4-7"
    assert str(TreeContiguous().select(space, 14)) == "16-29"
    assert TreeContiguous().select(space, 60) is None
    assert Tree(4, 2, 8).level(8) == 0
    assert Tree(4, 2, 8).level(9) == 1
    assert not Tree(4, 3).contiguous(ProcSet.parse("3-4"))
    assert Tree(4, 3).contiguous(ProcSet.parse("3 5 6 7 9"))
    assert not Tree(4, 3).contiguous(ProcSet.span(0, 65))
    assert Tree(4, 3).contiguous(ProcSet())


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ((1, 3), "k must be >= 2, got 1"),
        ((4, 0), "levels must be >= 1, got 0"),
        ((4, 3, 0), "processors_per_node must be >= 1, got 0"),
        ((4, 13), "at most 16777216 leaves, got 4\\*\\*13"),
        ((2, 10**9), "at most 16777216 leaves"),
    ],
)
def test_numbers_that_describe_no_tree_are_refused(numbers: tuple[int, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Tree(*numbers)
