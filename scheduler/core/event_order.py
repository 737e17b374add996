"""The order of the events of one instant, and which of them share a scheduling pass.

Events are handled in this order, equal ones by job number, then as they came: nodes, ends, resizes
that are done or failed, starts, submissions, cancellations, wake-ups; then one scheduling pass;
then resize points. So a job that is submitted may use the processors of one that ends in the same
second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduler.model.events import (
    Event,
    JobCancelled,
    JobEnded,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    ResizeDone,
    ResizeFailed,
    ResizePoint,
    Wakeup,
)
from scheduler.model.job import Job

_RANK: dict[type[Event], int] = {
    NodeJoined: 0,
    NodeLost: 0,
    JobEnded: 1,
    ResizeDone: 2,
    ResizeFailed: 3,
    JobStarted: 4,
    JobSubmitted: 5,
    JobCancelled: 6,
    Wakeup: 7,
    ResizePoint: 8,
}


def instant_order(event: Event) -> tuple[int, int]:
    """Sort key of the events of one instant: kind, then job number."""
    return _RANK[type(event)], getattr(event, "job", 0)


def divide_into_passes(
    events: Iterable[Event], live: Mapping[int, Job], now: float
) -> list[list[Event]]:
    """Divide events for the sequential order: one pass for each submission, then each other event.

    The first pass also includes the events that were known beforehand: nodes, ends that are due,
    wake-ups.
    """
    known: list[Event] = []
    single: list[Event | None] = []  # None keeps the place of an end that is due
    for event in sorted(events, key=lambda event: _RANK[type(event)]):
        job = live.get(event.job) if isinstance(event, JobEnded) else None
        if isinstance(event, NodeJoined | NodeLost | Wakeup):
            known.append(event)
        elif job is not None and job.estimated_end <= now:
            known.append(event)
            single.append(None)
        else:
            single.append(event)
    single.sort(key=lambda event: not isinstance(event, JobSubmitted))
    known += [event for event in single[:1] if event is not None]
    rest = [[event] for event in single[1:] if event is not None]
    return [known, *rest] if known else rest
