"""The processors that a job held over time, from the events and orders of a journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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


class HeldGroups:
    """The groups of a job with their processors, kept up to date by its events and orders.

    Attributes
    ----------
    groups : processors of each group, by its number.
    resize : the order of the resize under way; None if there is none.
    """

    def __init__(self) -> None:
        self.groups: dict[int, ProcSet] = {}
        self.resize: Expand | Contract | None = None

    def apply(self, what: Event | Order) -> bool:
        """Apply an event or an order of the job; return whether it may change the groups."""
        match what:
            case Start():
                self.groups, self.resize = dict(_groups(what)), None
            case Expand():
                self.groups |= _groups(what)
                self.resize = what
            case Contract():
                self.resize = what
            case ResizeDone() if self.resize is not None and self.resize.serial == what.serial:
                if isinstance(self.resize, Contract):
                    self._remove(self.resize.groups)
                self.resize = None
            case ResizeFailed() if self.resize is not None and self.resize.serial == what.serial:
                if isinstance(self.resize, Expand):
                    self._remove(_groups(self.resize))
                self.resize = None
            case JobEnded():
                self.groups, self.resize = {}, None
            case _:
                return False
        return True

    @property
    def joining(self) -> Iterable[int]:
        """Groups that start and have not joined yet."""
        return _groups(self.resize) if isinstance(self.resize, Expand) else ()

    @property
    def leaving(self) -> Iterable[int]:
        """Groups that leave and still hold their processors."""
        return self.resize.groups if isinstance(self.resize, Contract) else ()

    def _remove(self, groups: Iterable[int]) -> None:
        for group in groups:
            self.groups.pop(group, None)


def allocation(events: Sequence[Event], orders: Orders) -> list[tuple[float, str]]:
    """Return (time, processors as in "0-3 7") of each change of an allocation; "" at the end."""
    job = HeldGroups()
    history: list[tuple[float, str]] = []
    for at, what in merged(events, orders):
        if job.apply(what):
            held = str(ProcSet.union(job.groups.values()))
            if not history or history[-1][1] != held:
                history.append((at, held))
    return history


def _groups(order: Start | Expand) -> Mapping[int, ProcSet]:
    """Groups that an order starts, with their processors."""
    several = order.groups
    return several if isinstance(several, dict) else {order.group: order.processors}
