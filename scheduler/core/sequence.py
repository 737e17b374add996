"""Sequential order: which events of one instant share a scheduling pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduler.core.events import (
    Event,
    JobEnded,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    Wakeup,
    instant_order,
)
from scheduler.core.state import Job


def parts(events: Iterable[Event], live: Mapping[int, Job], now: float) -> list[list[Event]]:
    """Give each submission, then each other event as it came, a pass of its own.

    With the first of them goes what is known beforehand: nodes, ends that are due, wake-ups.
    """
    known: list[Event] = []
    single: list[Event | None] = []  # None keeps the place of an end that is due
    for event in sorted(events, key=lambda event: instant_order(event)[0]):
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
