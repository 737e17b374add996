"""The notation of jobs, tasks and steps."""

from __future__ import annotations

import re

import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.requests.conditions import Dependency, Term
from scheduler.model.requests.job_name import LARGEST_NUMBER, LAST, JobName, names
from scheduler.model.requests.task_array import TaskArray, TaskOf


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
