"""The order of the events of one instant, and which of them share a scheduling pass.

Events are handled in this order, equal ones by job number, then as they came: nodes, ends, resizes
that are done or failed, starts, advance reservations, submissions, cancellations, wake-ups; then
one scheduling pass; then resize points. So a job that is submitted may use the processors of one
that ends in the same second. Changes of the depth of passes and of the wall clock come with the
nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from scheduler.model.events import (
    ClockSet,
    DepthChanged,
    DrainChanged,
    Event,
    HoldChanged,
    JobCancelled,
    JobEnded,
    JobEvent,
    JobRequeued,
    JobSignalled,
    JobStarted,
    JobSubmitted,
    JobUpdated,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    ReservationCancelled,
    ReservationRequested,
    ResizeDone,
    ResizeFailed,
    ResizePoint,
    SizesRequested,
    Wakeup,
)
from scheduler.model.job import Job

_RANK: dict[type[Event], int] = {
    ClockSet: 0,
    DepthChanged: 0,
    DrainChanged: 0,
    NodeJoined: 0,
    NodeLost: 0,
    NodeRemoved: 0,
    JobEnded: 1,
    ResizeDone: 2,
    ResizeFailed: 3,
    JobStarted: 4,
    ReservationCancelled: 5,
    ReservationRequested: 5,
    JobSubmitted: 5,
    JobCancelled: 6,
    HoldChanged: 6,
    JobRequeued: 6,
    JobSignalled: 6,
    JobUpdated: 6,
    Wakeup: 7,
    SizesRequested: 7,
    ResizePoint: 8,
}

#: Events that concern no single job; in the sequential order they precede all submissions.
_KNOWN = (
    NodeJoined,
    NodeLost,
    NodeRemoved,
    ReservationCancelled,
    ReservationRequested,
    Wakeup,
    ClockSet,
    DepthChanged,
    DrainChanged,
)


def kind_order(event: Event) -> int:
    """Sort key of the events of one instant: kind alone, so that equal ones stay as they came."""
    return _RANK[type(event)]


def instant_order(event: Event) -> tuple[int, int]:
    """Sort key of the events of one instant: kind, then job number."""
    return _RANK[type(event)], event.job if isinstance(event, JobEvent) else 0


def by_start(events: Sequence[Event], live: Mapping[int, Job]) -> Sequence[Event]:
    """Sort the ends among events by the starts of their jobs; `live` has the jobs in that order.

    A driver enters the end of a job when it knows it, which may be long after the start.
    """
    if sum(isinstance(event, JobEnded) for event in events) < 2:
        return events
    places = {number: place for place, number in enumerate(live)}
    return sorted(
        events, key=lambda event: places.get(event.job, 0) if isinstance(event, JobEnded) else 0
    )


def divide_for_passes(
    events: Iterable[Event], live: Mapping[int, Job], now: float
) -> tuple[list[Event], list[JobSubmitted], list[Event | None]]:
    """Divide events for the sequential order.

    Returns
    -------
    events that were known beforehand (nodes, ends that are due, wake-ups), submissions, and all
    other events, with None in the place of each end that is due
    """
    known: list[Event] = []
    submissions: list[JobSubmitted] = []
    others: list[Event | None] = []
    for event in sorted(events, key=kind_order):
        job = live.get(event.job) if isinstance(event, JobEnded) else None
        if isinstance(event, _KNOWN):
            known.append(event)
        elif job is not None and job.estimated_end <= now:
            known.append(event)
            others.append(None)
        elif isinstance(event, JobSubmitted):
            submissions.append(event)
        else:
            others.append(event)
    return known, submissions, others
