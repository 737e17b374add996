"""Few nodes: the choices compared with all possible ones."""

from __future__ import annotations

from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.machine import Machine
from scheduler.model.procset import ProcSet
from scheduler.model.space import Space, nodes_of_size
from scheduler.policies.selection.basic import FewNodes

SIZE = 4
DIVIDE = nodes_of_size(SIZE)
sets = st.sets(st.integers(0, 6 * SIZE - 1), min_size=1).map(ProcSet.of)


def nodes(processors: ProcSet) -> int:
    """Number of nodes of a set, counted one by one."""
    return len({number // SIZE for number in processors})


@given(free=sets, data=st.data())
def test_no_choice_has_fewer_nodes(free: ProcSet, data: st.DataObject) -> None:
    processors = data.draw(st.integers(1, len(free)))
    chosen = FewNodes().select(Space(free, None, DIVIDE), processors)
    assert chosen is not None
    assert len(chosen) == processors
    assert not chosen - free
    most = sorted((len(part) for part in DIVIDE(free).values()), reverse=True)
    fewest = next(n for n in range(1, len(most) + 1) if sum(most[:n]) >= processors)
    assert nodes(chosen) == fewest


@given(free=sets)
def test_the_node_that_is_filled_best_is_taken(free: ProcSet) -> None:
    chosen = FewNodes().select(Space(free, None, DIVIDE), 1)
    assert chosen is not None
    (node,) = DIVIDE(chosen)
    assert len(DIVIDE(free)[node]) == min(map(len, DIVIDE(free).values()))


@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=6),
    others=st.integers(0, 3),
    data=st.data(),
)
def test_no_other_groups_leave_more_nodes(
    sizes: list[int], others: int, data: st.DataObject
) -> None:
    numbers = data.draw(st.permutations(range(24)))
    groups, at = {}, 0
    for group, size in enumerate(sizes, start=1):
        groups[group] = ProcSet.of(numbers[at : at + size])
        at += size
    rest = ProcSet.of(numbers[at : at + others])
    count = data.draw(st.integers(1, sum(sizes)))
    chosen = FewNodes().leaving(Space(ProcSet(), None, DIVIDE), groups, count, rest)
    possible = [
        subset
        for subset in chain.from_iterable(combinations(groups, n) for n in range(1, 7))
        if sum(len(groups[group]) for group in subset) == count
    ]

    def left(leaving: tuple[int, ...]) -> int:
        return nodes(ProcSet.union([rest, *(groups[g] for g in groups if g not in leaving)]))

    if chosen is None:
        assert not possible
    else:
        assert chosen in possible
        assert left(chosen) == min(map(left, possible))


def test_a_simulated_machine_has_nodes_of_equal_size() -> None:
    machine = Machine([("machine", 12)], node_size=4)
    machine.allocate(FewNodes(), 3)
    assert str(machine.allocate(FewNodes(), 4)) == "4-7"
    assert str(machine.allocate(FewNodes(), 1)) == "3"


def test_a_machine_of_several_nodes_divides_by_them() -> None:
    machine = Machine([("a", 3), ("b", 5)])
    assert str(machine.allocate(FewNodes(), 4)) == "3-6"
    assert str(machine.allocate(FewNodes(), 2)) == "0-1"
    assert str(machine.allocate(FewNodes(), 1)) == "2"
