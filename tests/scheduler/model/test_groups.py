"""Leaving groups, against a search of all subsets."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.groups import leaving_groups
from scheduler.model.procset import ProcSet


@given(st.lists(st.integers(1, 6), min_size=1, max_size=7), st.integers(0, 30))
def test_newest_of_all_subsets(sizes: list[int], leave: int) -> None:
    groups = {2 * i + 1: ProcSet.span(10 * i, size) for i, size in enumerate(sizes)}
    subsets = [
        chosen
        for count in range(1, len(sizes) + 1)
        for chosen in combinations(groups, count)
        if sum(len(groups[group]) for group in chosen) == leave
    ]
    # Newest first: compare the newest of each, then the next newest.
    newest = max(subsets, key=lambda chosen: sorted(chosen, reverse=True), default=None)
    assert leaving_groups(groups, leave) == newest


def test_the_original_group_can_leave() -> None:
    groups = {1: ProcSet.span(0, 2), 2: ProcSet.span(2, 4)}
    assert leaving_groups(groups, 2) == (1,)
    assert leaving_groups(groups, 4) == (2,)
    assert leaving_groups(groups, 3) is None


def test_many_groups_cost_little() -> None:
    groups = {i: ProcSet.span(10 * i, i % 7 + 1) for i in range(1, 400)}
    assert leaving_groups(groups, 700) is not None
