"""The virtual clock, and what will happen at which time."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

from scheduler.model.events import Event, JobEnded, JobStarted, ResizeDone, ResizePoint


class Agenda:
    """What will happen, in order of time; at one time in the order in which it was noted.

    Some jobs have one next event at a time, which stands instead of any noted before.

    Attributes
    ----------
    now : seconds.
    times : a heap of those at which something happens.
    next : the next event of each job that has one.
    """

    def __init__(self) -> None:
        self.now = -inf
        self.times: list[float] = []
        self.next: dict[int, Event] = {}
        self._events: dict[float, list[Event]] = {}
        self._interrupted: set[int] = set()  # jobs of which replaced events are still noted

    def add(self, event: Event) -> None:
        """Note that an event happens."""
        at = event.at
        events = self._events.get(at)
        if events is None:
            self._events[at] = [event]
            heappush(self.times, at)
        else:
            events.append(event)

    def wake(self, at: float) -> None:
        """Let there be an instant at this time, though nothing may happen to a job then."""
        if at not in self._events:
            self._events[at] = []
            heappush(self.times, at)

    def follow(self, event: JobStarted | ResizePoint | ResizeDone | JobEnded) -> None:
        """Let this be the next event of its job."""
        self.next[event.job] = event
        self.add(event)

    def interrupt(self, event: JobEnded) -> None:
        """Let this be the next event of a job that was to go on to another."""
        self._interrupted.add(event.job)
        self.follow(event)

    def forget(self, job: int) -> None:
        """Forget a job that ended, unless events of it are still noted."""
        if job not in self._interrupted:
            self.next.pop(job, None)

    def advance(self) -> list[Event]:
        """Go on to the next time of all, and tell what happens then."""
        self.now = heappop(self.times)
        events = self._events.pop(self.now)
        if self.next:
            return [event for event in events if self._stands(event)]
        return events

    def _stands(self, event: Event) -> bool:
        """Whether an event is not replaced."""
        return self.next.get(getattr(event, "job", 0), event) is event
