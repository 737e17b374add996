"""The agenda: the virtual clock, and the events that will happen, by time."""

from __future__ import annotations

from math import inf
from typing import Final

from scheduler.model.events import (
    Event,
    JobEnded,
    JobStarted,
    ResizeDone,
    ResizePoint,
)

#: As in `scheduler.model.job`.
RESIZE_POINT: Final = ResizePoint


class AgendaEntry:
    """An event of the agenda, or a time without one; entries of one time are numbered.

    Attributes
    ----------
    job : job whose next event it is; it is skipped if another one has replaced it. 0: of none.
    """

    def __init__(self, at: float, serial: int, event: Event | None, job: int) -> None:
        self.at = at
        self.serial = serial
        self.event = event
        self.job = job


class Agenda:
    """Future events in order of time; events of one time stay in the order of their entry.

    A job may have one next event. Setting another one replaces it: the old event stays in the
    agenda and is skipped when its time comes.

    Attributes
    ----------
    now : seconds; -inf before the first instant.
    next : the next event of each job that has one.
    """

    def __init__(self) -> None:
        self.now = -inf
        self.next: dict[int, Event] = {}
        self._heap: list[AgendaEntry] = []
        self._serial = 0
        self._interrupted: set[int] = set()  # jobs with replaced events in the agenda

    def __len__(self) -> int:
        """Count the entries."""
        return len(self._heap)

    @property
    def next_at(self) -> float:
        """Time of the first entry, seconds. Precondition: there is one."""
        return self._heap[0].at

    def add(self, event: Event) -> None:
        """Enter an event."""
        self.enter(event.at, event)

    def enter(self, at: float, event: Event | None, job: int = 0) -> None:
        """Enter an event with its time (s), or a time alone, at which the clock then stops.

        Parameters
        ----------
        job : see `AgendaEntry`.
        """
        heap = self._heap
        entry = AgendaEntry(at, self._serial, event, job)
        self._serial += 1
        place = len(heap)
        heap.append(entry)
        while place:  # the latest of its time stays behind the others
            above = (place - 1) >> 1
            other = heap[above]
            if other.at <= at:
                break
            heap[place] = other
            place = above
        heap[place] = entry

    def set_next(self, event: JobStarted | ResizePoint | ResizeDone | JobEnded) -> None:
        """Enter the next event of a job, in place of any that was set before."""
        self.next[event.job] = event
        self.enter(event.at, event, event.job)

    def enter_end(self, at: float, event: JobEnded) -> None:
        """Enter the end of a job at its time (s), in place of any next event of the job.

        An end that replaces nothing is no `next` event, which keeps rigid jobs fast.
        """
        if self.next and event.job in self.next:
            self.next[event.job] = event
        self.enter(at, event, event.job)

    @property
    def first_point(self) -> ResizePoint | None:
        """The first entry, if it is the next event of a job and a resize point."""
        heap = self._heap
        event = heap[0].event if heap else None
        if type(event) is not RESIZE_POINT or self.next.get(heap[0].job) is not event:
            return None
        return event

    @property
    def second_at(self) -> float:
        """Time of the second entry, seconds; inf if there is none."""
        heap = self._heap
        at = heap[1].at if len(heap) > 1 else inf
        return min(at, heap[2].at) if len(heap) > 2 else at

    def replace_first(self, event: ResizePoint) -> None:
        """Enter the next event of a job in place of its present one, which is the first entry."""
        self.next[event.job] = event
        self._sink(AgendaEntry(event.at, self._serial, event, event.job))
        self._serial += 1

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
        heap, following = self._heap, self.next
        now = self.now = heap[0].at
        events: list[Event] = []
        while heap and heap[0].at == now:
            entry = self._pop()
            event = entry.event
            if event is None:
                continue
            if not entry.job or not following or following.get(entry.job, event) is event:
                events.append(event)
        return events

    def _pop(self) -> AgendaEntry:
        """Remove the first entry and return it."""
        heap = self._heap
        last = heap.pop()
        if not heap:
            return last
        first = heap[0]
        self._sink(last)
        return first

    def _sink(self, last: AgendaEntry) -> None:
        """Put an entry in place of the first one, behind all that come before it."""
        heap = self._heap
        count, place, below = len(heap), 0, 1
        while below < count:
            entry = heap[below]
            if below + 1 < count:
                other = heap[below + 1]
                if other.at < entry.at or (other.at == entry.at and other.serial < entry.serial):
                    entry = other
                    below += 1
            if last.at < entry.at or (last.at == entry.at and last.serial < entry.serial):
                break
            heap[place] = entry
            place, below = below, 2 * below + 1
        heap[place] = last
