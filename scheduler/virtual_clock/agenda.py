"""The agenda: the virtual clock, and the events that will happen, by time."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

from scheduler.model.events import (
    Event,
    JobEnded,
    JobEvent,
    JobStarted,
    ResizeDone,
    ResizePoint,
    SizesRequested,
)


class Agenda:
    """Future events in order of time; events of one time stay in the order of their entry.

    A job may have one next event. Setting another one replaces it: the old event stays in the
    agenda and is skipped when its time comes.

    Attributes
    ----------
    now : seconds; -inf before the first instant.
    times : heap of the times at which something happens, each once.
    next : the next event of each job that has one.
    """

    def __init__(self) -> None:
        self.now = -inf
        self.times: list[float] = []
        self.next: dict[int, Event] = {}
        self._events: dict[float, list[Event]] = {}
        self._interrupted: set[int] = set()  # jobs with replaced events in the agenda

    def add(self, event: Event) -> None:
        """Enter an event."""
        at = event.at
        events = self._events.get(at)
        if events is None:
            self._events[at] = [event]
            heappush(self.times, at)
        else:
            events.append(event)

    def wake(self, at: float) -> None:
        """Make the clock stop at a time, even if no event happens then."""
        if at not in self._events:
            self._events[at] = []
            heappush(self.times, at)

    def set_next(self, event: JobStarted | ResizePoint | ResizeDone | JobEnded) -> None:
        """Enter the next event of a job, in place of any that was set before."""
        self.next[event.job] = event
        self.add(event)

    def interrupt(self, event: ResizePoint | JobEnded) -> None:
        """Enter the next event of a job in place of one that will not happen."""
        self._interrupted.add(event.job)
        self.set_next(event)

    def forget(self, job: int) -> None:
        """Drop the next event of a job that ended, unless replaced events must still be skipped."""
        if job not in self._interrupted:
            self.next.pop(job, None)

    def advance(self) -> list[Event]:
        """Advance the clock to the next time and return the events of that time."""
        self.now = heappop(self.times)
        events = self._events.pop(self.now)
        if self.next:
            return [event for event in events if self._is_current(event)]
        return events

    def _is_current(self, event: Event) -> bool:
        """Whether an event has not been replaced; a request of a program is none of these."""
        next_one = self.next.get(event.job, event) if isinstance(event, JobEvent) else event
        return next_one is event or type(event) is SizesRequested
