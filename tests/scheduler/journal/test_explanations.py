"""Explanations: one line for what happened, none for what other lines say."""

from __future__ import annotations

from scheduler.core.core import Core
from scheduler.journal.explanations import MOST_ON_TASKS, allocation, explanation_lines
from scheduler.model.arrays import TaskArray
from scheduler.model.events import (
    Event,
    HoldChanged,
    JobEnded,
    JobSpec,
    JobStarted,
    JobSubmitted,
    ResizeDone,
    ResizeFailed,
    ResizePoint,
)
from scheduler.model.machine import Machine
from scheduler.model.orders import Await, Continue, Contract, Expand, Facts, Order, Reason, Start
from scheduler.model.procset import ProcSet
from scheduler.policies.scenarios import scenario


def test_resize_points_during_a_resize_have_no_lines() -> None:
    core = Core(scenario("fcfs-pr"), Machine([("n1", 4)]))
    spec = JobSpec(1, 600.0, max_processors=4)
    events: list[Event] = [
        JobSubmitted(0.0, 1, spec),
        JobStarted(1.0, 1),
        *(ResizePoint(float(at), 1, at, 1.0) for at in range(2, 6)),
    ]
    orders: list[tuple[float, Order]] = [
        (event.at, order) for event in events for order in core.handle([event])
    ]
    texts = [line.text.split(":")[0] for line in explanation_lines(events, orders, [])]
    assert texts == [
        "submitted for 1 to 4 processors, 600 s",
        "starts on processors 0",
        "is running",
        "is to expand to 2 with processors 1",
    ]


def test_decisions_that_differ_in_measured_numbers_have_one_line() -> None:
    def kept(seconds: float, free: int) -> Continue:
        facts: Facts = {"seconds": seconds, "free": free}
        return Continue(1, Reason("rule", "an iteration takes {seconds} s, {free} are free", facts))

    decisions = [kept(0.5, 3), kept(0.6, 3), kept(0.7, 2), kept(0.8, 3)]
    orders: list[tuple[float, Order]] = [*zip((1.0, 2.0, 3.0, 4.0), decisions, strict=True)]
    assert [(line.at, line.text) for line in explanation_lines([], orders, [])] == [
        (1.0, "continues: an iteration takes 0.5 s, 3 are free [rule]"),
        (3.0, "continues: an iteration takes 0.7 s, 2 are free [rule]"),
        (4.0, "continues: an iteration takes 0.8 s, 3 are free [rule]"),
    ]


def test_the_end_of_a_resize_has_one_line() -> None:
    """The report of a commit and the next resize point may both tell of it."""
    events = [ResizeDone(5.0, 1, 1), ResizeDone(5.0, 1, 1), ResizeDone(9.0, 1, 2)]
    texts = [line.text.split(";")[0] for line in explanation_lines(events, [], [])]
    assert texts == ["resize 1 is done", "resize 2 is done"]


def test_an_array_of_many_tasks_has_a_bounded_number_of_lines() -> None:
    core = Core(scenario("easy"), Machine([("n1", 1)]))
    events: list[Event] = [
        JobSubmitted(0.0, 1, JobSpec(1, 600.0, array=TaskArray.parse("0-299"))),
        HoldChanged(0.5, 1, "user", ProcSet.span(290, 5)),
        *(JobEnded(float(number), 1 + number) for number in range(1, 250)),
    ]
    orders: list[tuple[float, Order]] = [
        (event.at, order) for event in events for order in core.handle([event])
    ]
    own = [(at, order) for at, order in orders if isinstance(order, Await)]
    lines = explanation_lines(events[:2], own, [])
    assert [line.text for line in lines[:3]] == [
        "submitted for 1 processor, 600 s",
        "is not eligible: 2 of 300 tasks have come to the queue [Array]",
        "tasks 290-294 are held by its user",
    ]
    assert lines[-1].text.startswith("is not eligible: 251 of 300 tasks have come to the queue")
    assert len(lines) == 1 + MOST_ON_TASKS + 1
    (left_out,) = [line for line in lines if "left out" in line.text]
    assert left_out.facts == {"left_out": len(own) + 1 - MOST_ON_TASKS}


WHY = Reason("test", "")


def held(text: str) -> ProcSet:
    return ProcSet.parse(text)


def test_groups_join_and_leave_together() -> None:
    """A job of two groups, two more join, two leave; the next two fail to join."""
    orders: list[tuple[float, Order]] = [
        (0.0, Start(1, 1, held("0-2"), WHY, groups={1: held("0-1"), 2: held("2")})),
        (1.0, Expand(1, 1, 6, 3, held("3-5"), WHY, {3: held("3"), 4: held("4-5")})),
        (2.0, Contract(1, 2, 4, (2, 3), WHY)),
        (3.0, Expand(1, 3, 6, 5, held("6-7"), WHY, {5: held("6"), 6: held("7")})),
    ]
    events: list[Event] = [
        ResizeDone(1.5, 1, 1),
        ResizeDone(2.5, 1, 2),
        ResizeFailed(3.5, 1, 3, "a group did not start"),
        JobEnded(4.0, 1),
    ]
    assert allocation(events, orders) == [
        (0.0, "0-2"),
        (1.0, "0-5"),
        (2.5, "0-1 4-5"),
        (3.0, "0-1 4-7"),
        (3.5, "0-1 4-5"),
        (4.0, ""),
    ]
