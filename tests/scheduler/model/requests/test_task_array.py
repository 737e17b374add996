"""Indices of arrays: how they are written, counted and found."""

from __future__ import annotations

import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.procset import ProcSet
from scheduler.model.requests.task_array import TaskArray
from scheduler.model.requests.tasks_to_come import positions_of, tasks_at


@pytest.mark.parametrize(
    ("text", "indices", "at_once"),
    [
        ("0-4", [0, 1, 2, 3, 4], 0),
        ("0-9:4%2", [0, 4, 8], 2),
        ("7,1,3-5", [7, 1, 3, 4, 5], 0),
        ("5", [5], 0),
        ("3-3:2", [3], 0),
    ],
)
def test_an_array_is_read(text: str, indices: list[int], at_once: int) -> None:
    array = TaskArray.parse(text)
    assert array.indices() == indices
    assert array.at_once == at_once


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' is no index or range"),
        ("1-", "'1-' is no index or range"),
        ("a", "'a' is no index or range"),
        ("4-1", "'4-1' must ascend"),
        ("1-4:0", "by a step >= 1"),
        ("1-4%0", "'0' in '1-4%0' is no number of tasks"),
        ("1-4%", "'' in '1-4%' is no number of tasks"),
        ("1-4,2", "has an index twice"),
        ("0-999999999", "has 1000000000 tasks: an array has at most 1000000"),
        ("0-9,1-999999", "at most 1000000"),
        ("99999999999", "to 2147483647 at most"),
    ],
)
def test_what_is_no_array_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        TaskArray.parse(text)


@examples(100)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 4)), min_size=1),
    st.integers(0, 9),
)
def test_places_and_parts_agree_with_the_list(
    spans: list[tuple[int, int, int]], at_once: int
) -> None:
    parts = [f"{100 * i + a}-{100 * i + a + b}:{step}" for i, (a, b, step) in enumerate(spans)]
    array = TaskArray.parse(",".join(parts) + (f"%{at_once}" if at_once else ""))
    indices = array.indices()
    assert array.count == len(indices)
    assert [array.index(place) for place in range(len(indices))] == indices
    assert [array.position(index) for index in indices] == list(range(len(indices)))
    assert array.position(100 * len(spans) + 99) is None
    for place in range(len(indices)):
        rest = tasks_at(array, ProcSet.span(place, len(indices) - place))
        assert rest is not None
        assert TaskArray.parse(str(rest)).indices() == indices[place:]
    assert tasks_at(array, ProcSet()) is None
    with pytest.raises(IndexError):
        array.index(len(indices))


@examples(300)
@given(st.sets(st.integers(0, 60)), st.sampled_from(["0-60", "60,0-59", "0-60:2,1-59:2", "3-9:3"]))
def test_positions_and_parts_are_inverse(places: set[int], text: str) -> None:
    array = TaskArray.parse(text)
    wanted = ProcSet.of(place for place in places if place < array.count)
    part = tasks_at(array, wanted)
    if part is None:
        assert not wanted
        return
    assert part.indices() == [array.index(place) for place in wanted]
    assert positions_of(array, TaskArray.parse(str(part))) == wanted
    listed = TaskArray.parse(",".join(map(str, part.indices())))
    assert positions_of(array, listed) == wanted


def test_positions_of_tasks_that_there_are_not() -> None:
    array = TaskArray.parse("0-98:2,99")
    assert positions_of(array, TaskArray.parse("2-8:4,99")) == ProcSet.of([1, 3, 50])
    for text in ("1", "0-4", "97-99", "98-100:2"):
        with pytest.raises(ValueError, match=r"it has no task [0-9]+: it has 0-98:2,99"):
            positions_of(array, TaskArray.parse(text))
