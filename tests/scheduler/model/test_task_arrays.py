"""Arrays: their indices, the notation of jobs, tasks and steps, and the tasks to come."""

from __future__ import annotations

import re

import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.arrays import (
    LARGEST_NUMBER,
    LAST,
    JobName,
    TaskArray,
    TaskOf,
    TasksToCome,
    names,
    positions_of,
    tasks_at,
)
from scheduler.model.procset import ProcSet
from scheduler.model.requests import Dependency, Term


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


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("17", JobName(17)),
        ("last", JobName(LAST)),
        ("17_4", JobName(17, TaskArray.parse("4"))),
        ("17_[3-7:2,9]", JobName(17, TaskArray.parse("3-7:2,9"))),
        ("last_0", JobName(LAST, TaskArray.parse("0"))),
        ("17.0", JobName(17, None, 0)),
        ("17_4.12", JobName(17, TaskArray.parse("4"), 12)),
    ],
)
def test_names_are_read_and_written(text: str, name: JobName) -> None:
    assert JobName.parse(text) == name
    assert str(name) == text
    assert name.is_one == ("[" not in text)


def test_the_label_of_an_array_with_a_limit_is_a_name() -> None:
    assert JobName.parse("17_[40-99%10]").tasks == TaskArray.parse("40-99%10")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "'' is not a job: write 17, 'last', a task 17_4"),
        ("0", "'0' is not a job"),
        ("-1", "'-1' is not a job"),
        (str(LARGEST_NUMBER + 1), "is not a job"),
        ("17_", "'17_' is not a job"),
        ("17_[]", "'17_[]' is not a job"),
        ("17_[3-1]", "'17_[3-1]' is not a job: '3-1' must ascend"),
        ("17_4_5", "'17_4_5' is not a job"),
        ("17_[1-2].0", "'17_[1-2].0' is not a step: write 17.0, or 17_4.0"),
        ("\u0661", "is not a job"),
    ],
)
def test_what_is_no_name_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        JobName.parse(text)


@examples(300)
@given(st.text("0123456789_[]-,.:%last", max_size=12))
def test_a_text_is_a_name_or_refused(text: str) -> None:
    try:
        name = JobName.parse(text)
    except ValueError:
        return
    assert JobName.parse(str(name)) == name


def test_lists_are_divided_outside_of_brackets() -> None:
    assert names("3,17_[1,5-8],last") == ["3", "17_[1,5-8]", "last"]
    assert names("afterok:1_[0-8:2]:7", ":") == ["afterok", "1_[0-8:2]", "7"]


def test_dependencies_name_tasks() -> None:
    known = Dependency.parse("afterok:5:1_[3,7],afterany:2_0")
    assert str(known) == "afterok:5,afterok:1_3,afterok:1_7,afterany:2_0"
    arrays = {1: TaskArray.parse("1-9:2"), 2: TaskArray.parse("0-4")}
    assert known.numbered(arrays.get).terms == (
        Term("afterok", 5),
        Term("afterok", 3, None, TaskOf(1, 3)),
        Term("afterok", 5, None, TaskOf(1, 7)),
        Term("afterany", 3, None, TaskOf(2, 0)),
    )
    with pytest.raises(ValueError, match="there is no task 1_4: job 1 has the tasks 1-9:2"):
        Dependency.parse("after:1_4").numbered(arrays.get)
    with pytest.raises(ValueError, match="there is no task 3_0: job 3 is no array"):
        Dependency.parse("after:3_0").numbered(arrays.get)
    for wrong in ("afterok:last", "afterok:1.0", "afterok:x"):
        with pytest.raises(ValueError, match="is not the number of a job"):
            Dependency.parse(wrong)


COUNT = 12
#: What is done -> who holds a task afterwards.
HOLDS = {"hold": "user", "hold as administrator": "administrator", "release": ""}
ACTIONS = st.tuples(
    st.sampled_from([*HOLDS, "cancel", "come"]), st.sets(st.integers(0, COUNT - 1), min_size=1)
)


@examples(300)
@given(st.lists(ACTIONS, max_size=12))
def test_sets_agree_with_a_word_for_each_task(actions: list[tuple[str, set[int]]]) -> None:
    coming, words = TasksToCome(ProcSet.span(0, COUNT)), ["ready"] * COUNT
    for action, places in actions:
        chosen = ProcSet.of(places)
        if action == "cancel":
            coming = coming.after_cancellation(chosen)
        elif action == "come":
            coming = coming.without(chosen)
        else:
            coming = coming.changed(chosen, HOLDS[action])  # type: ignore[arg-type]
        for place in places:
            if words[place] in ("come", "cancelled"):
                continue
            if action == "cancel":
                words[place] = "cancelled"
            elif action == "come":
                words[place] = "come"
            elif not (action == "hold" and words[place] == "administrator"):
                words[place] = HOLDS[action] or "ready"
        for word, held in (
            ("ready", coming.ready),
            ("user", coming.held),
            ("administrator", coming.held_by_administrator),
            ("cancelled", coming.cancelled),
        ):
            assert list(held) == [place for place in range(COUNT) if words[place] == word]
        left = [word in ("ready", "user", "administrator") for word in words]
        assert list(coming.left) == [place for place in range(COUNT) if left[place]]
        for place in range(COUNT):
            is_held = words[place] in ("user", "administrator")
            assert coming.hold_of(place) == (words[place] if is_held else "")
