"""The processors that a job held over time, from the events and orders of a journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from scheduler.model.events import Event, JobEnded, ResizeDone, ResizeFailed
from scheduler.model.orders import Contract, Expand, Order, Start
from scheduler.model.procset import ProcSet

#: Orders of a job with their times, oldest first.
Orders: TypeAlias = Sequence[tuple[float, Order]]


def merged(events: Sequence[Event], orders: Orders) -> Iterator[tuple[float, Event | Order]]:
    """Merge events and orders by time; at one instant events come first."""
    merged: list[tuple[float, int, Event | Order]] = [(event.at, 0, event) for event in events]
    merged += [(at, 1, order) for at, order in orders]
    merged.sort(key=lambda entry: entry[:2])
    return ((at, what) for at, _, what in merged)


def allocation(events: Sequence[Event], orders: Orders) -> list[tuple[float, str]]:
    """Return (time, processors as in "0-3 7") of each change of an allocation; "" at the end."""
    groups: dict[int, ProcSet] = {}
    pending: Expand | Contract | None = None
    history: list[tuple[float, str]] = []
    for at, what in merged(events, orders):
        match what:
            case Start():
                groups = dict(_groups(what))
            case Expand():
                groups |= _groups(what)
                pending = what
            case Contract():
                pending = what
            case ResizeDone() if isinstance(pending, Contract) and pending.serial == what.serial:
                for group in pending.groups:
                    groups.pop(group, None)
            case ResizeFailed() if isinstance(pending, Expand) and pending.serial == what.serial:
                for group in _groups(pending):
                    groups.pop(group, None)
            case JobEnded():
                groups = {}
            case _:
                continue
        held = str(ProcSet.union(groups.values()))
        if not history or history[-1][1] != held:
            history.append((at, held))
    return history


def _groups(order: Start | Expand) -> Mapping[int, ProcSet]:
    """Groups that an order starts, with their processors."""
    several = order.groups
    return several if isinstance(several, dict) else {order.group: order.processors}
