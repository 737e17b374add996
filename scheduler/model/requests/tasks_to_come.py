"""The tasks of an array that have not come to the queue, and are therefore no jobs yet.

They are held and cancelled as sets of positions, so that an array of 100,000 tasks remains one
record. The position of a task is its place in the array, from 0 on.
"""

from __future__ import annotations

import msgspec

from scheduler.model.procset import ProcSet
from scheduler.model.requests.conditions import Hold
from scheduler.model.requests.task_array import TaskArray

#: Intervals that the sets of an array may have together.
MOST_INTERVALS = 10_000


class TasksToCome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The tasks of an array that are no jobs yet, by their positions; no position is in two sets.

    Parameters
    ----------
    ready : come to the queue when they could start, lowest positions first.
    held, held_by_administrator : do not come before they are released.
    cancelled : never come.
    """

    ready: ProcSet = ProcSet()
    held: ProcSet = ProcSet()
    held_by_administrator: ProcSet = ProcSet()
    cancelled: ProcSet = ProcSet()

    @property
    def left(self) -> ProcSet:
        """The tasks that may still come."""
        return self.ready | self.all_held if self.held or self.held_by_administrator else self.ready

    @property
    def all_held(self) -> ProcSet:
        """The tasks that are held, by whomever."""
        return self.held | self.held_by_administrator

    @property
    def intervals(self) -> int:
        """Number of the intervals of all sets, by which the size of a record grows."""
        sets = (self.ready, self.held, self.held_by_administrator, self.cancelled)
        return sum(len(each.intervals) for each in sets)

    def hold_of(self, position: int) -> Hold:
        """Who holds a task; "": it is not held."""
        if position in self.held:
            return "user"
        return "administrator" if position in self.held_by_administrator else ""

    def without(self, positions: ProcSet) -> TasksToCome:
        """The same without tasks that come to the queue now."""
        return TasksToCome(
            self.ready - positions,
            self.held - positions,
            self.held_by_administrator - positions,
            self.cancelled,
        )

    def changed(self, positions: ProcSet, hold: Hold) -> TasksToCome:
        """The same with tasks held, or released if `hold` is empty.

        A user does not take over what an administrator holds.
        """
        affected = positions & self.left
        if hold == "user":
            affected -= self.held_by_administrator
        rest = self.without(affected)
        return TasksToCome(
            rest.ready | affected if not hold else rest.ready,
            rest.held | affected if hold == "user" else rest.held,
            rest.held_by_administrator | affected
            if hold == "administrator"
            else rest.held_by_administrator,
            rest.cancelled,
        )

    def after_cancellation(self, positions: ProcSet) -> TasksToCome:
        """The same with tasks cancelled; others are left as they are."""
        affected = positions & self.left
        rest = self.without(affected)
        return TasksToCome(
            rest.ready, rest.held, rest.held_by_administrator, rest.cancelled | affected
        )


def positions_of(array: TaskArray, tasks: TaskArray) -> ProcSet:
    """Positions in an array of the tasks with the indices of another one.

    Raises
    ------
    ValueError : there is no task of such an index.
    """
    spans, places = [], dict[int, int]()
    for first, last, step in tasks.ranges:
        span = _span(array, first, last, step)
        if span is None:
            places = places or {index: place for place, index in enumerate(array.indices())}
            indices = range(first, last + 1, step)
            missing = next((index for index in indices if index not in places), None)
            if missing is not None:
                raise ValueError(f"it has no task {missing}: it has {array}")
            span = ProcSet.of(places[index] for index in indices)
        spans.append(span)
    return ProcSet.union(spans)


def _span(array: TaskArray, first: int, last: int, step: int) -> ProcSet | None:
    """Positions of a range of indices within one range of the array; None if it is in none."""
    before = 0
    for own_first, own_last, own_step in array.ranges:
        away = first - own_first
        is_within = own_first <= first <= last <= own_last and away % own_step == 0
        if is_within and (step == own_step or first == last):
            return ProcSet.span(before + away // own_step, (last - first) // step + 1)
        before += (own_last - own_first) // own_step + 1
    return None


def tasks_at(array: TaskArray, positions: ProcSet) -> TaskArray | None:
    """Tasks of an array at some positions, in their order; None if there are none."""
    ranges, before = [], 0
    for first, last, step in array.ranges:
        count = (last - first) // step + 1
        for begin, end in positions.between(before, before + count - 1).intervals:
            low, high = first + (begin - before) * step, first + (end - before) * step
            ranges.append((low, high, step if begin < end else 1))
        before += count
    return TaskArray(tuple(ranges), array.at_once) if ranges else None
