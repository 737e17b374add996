"""Processors that a job held over time."""

from __future__ import annotations

from scheduler.model.events import Event, JobEnded, ResizeDone, ResizeFailed
from scheduler.model.orders import Contract, Expand, Order, Reason, Start
from scheduler.model.procset import ProcSet
from scheduler.replay.allocations import allocation

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
