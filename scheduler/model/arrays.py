"""Arrays and steps, and how users name them: 17, a task 17_4, tasks 17_[3-7], a step 17.0.

An array is one submission of many tasks, which differ by their index alone. The array is one job.
Its tasks are jobs with the numbers that follow its own; they come to the queue one after the other,
as many as could start, so that an array costs little until they run. Until then they are held and
cancelled as sets of positions, so that an array of 100,000 tasks remains one record. The position
of a task is its place in the array, from 0 on.

A step is a program that the script of a job starts on the processors of the job. It is a job too,
with a number, groups and resizes of its own. Its first group is on processors that are lent by the
job of the script, which keeps them.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from reshape.key_values import whole_number
from scheduler.model.procset import ProcSet

#: Who has held a job; "": it is not held.
Hold: TypeAlias = Literal["", "user", "administrator"]

ARRAY_FORM = "0-9, 0-99:2 (step 2) or 1,5,7-8, and with %N at most N tasks at a time"
#: Tasks of an array, and the largest index. A service may accept fewer tasks.
MOST_TASKS, LARGEST_INDEX = 1_000_000, 2**31 - 1
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?::(\d{1,18}))?)?", re.ASCII)
#: Intervals that the sets of an array may have together.
MOST_INTERVALS = 10_000
NAME_FORM = "17, 'last', a task 17_4, tasks 17_[3-7], or a step 17.0"
#: Stands for the number of the job that was submitted last.
LAST = 0
#: Largest number of a job.
LARGEST_NUMBER = 2**63 - 1
_NAME = re.compile(r"(last|\d{1,19})(?:_(?:(\d{1,19})|\[([^]]+)\]))?(?:\.(\d{1,19}))?", re.ASCII)
#: What follows a mark that is not within brackets.
_OUTSIDE = r"(?![^\[\]]*\])"


class TaskArray(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The tasks of an array.

    Parameters
    ----------
    ranges : (first index, last index, step) in the order of the tasks; no index comes twice.
    at_once : tasks that may be queued or run at a time; 0: any number.
    """

    ranges: tuple[tuple[int, int, int], ...]
    at_once: int = 0

    @classmethod
    def parse(cls, text: str) -> TaskArray:
        """Read an array such as ``0-99:2%10``.

        Raises
        ------
        ValueError : it is no array, has an index twice, or too many tasks.
        """
        indices, percent, most = text.partition("%")
        if percent and not whole_number(most, LARGEST_INDEX):
            raise ValueError(f"{most!r} in {text!r} is no number of tasks >= 1: write {ARRAY_FORM}")
        ranges = []
        for part in indices.split(","):
            match = _RANGE.fullmatch(part.strip())
            if match is None:
                raise ValueError(f"{part!r} is no index or range: write {ARRAY_FORM}")
            first, last, step = (int(word) if word else None for word in match.groups())
            assert first is not None
            last, step = first if last is None else last, 1 if step is None else step
            if not first <= last <= LARGEST_INDEX or step < 1:
                raise ValueError(
                    f"{part!r} must ascend, to {LARGEST_INDEX} at most, by a step >= 1"
                )
            ranges.append((first, last - (last - first) % step, step))
        made = cls(tuple(ranges), int(most) if percent else 0)
        if made.count > MOST_TASKS:
            raise ValueError(f"{text!r} has {made.count} tasks: an array has at most {MOST_TASKS}")
        if len(ranges) > 1 and len(set(made.indices())) < made.count:
            raise ValueError(f"{text!r} has an index twice")
        return made

    @property
    def count(self) -> int:
        """Number of tasks."""
        return sum((last - first) // step + 1 for first, last, step in self.ranges)

    def indices(self) -> list[int]:
        """Indices of the tasks, in order."""
        return [i for first, last, step in self.ranges for i in range(first, last + 1, step)]

    @property
    def smallest(self) -> int:
        """Smallest index."""
        return min(first for first, _, _ in self.ranges)

    @property
    def largest(self) -> int:
        """Largest index."""
        return max(last for _, last, _ in self.ranges)

    def index(self, position: int) -> int:
        """Index of the task at a position, from 0 on."""
        for first, last, step in self.ranges:
            count = (last - first) // step + 1
            if position < count:
                return first + position * step
            position -= count
        raise IndexError(f"the array has no task at position {position}")

    def position(self, index: int) -> int | None:
        """Place of the task with an index; None if there is none."""
        before = 0
        for first, last, step in self.ranges:
            if first <= index <= last and (index - first) % step == 0:
                return before + (index - first) // step
            before += (last - first) // step + 1
        return None

    def __str__(self) -> str:
        """The array as a user writes it, and as `parse` reads it."""
        limit = f"%{self.at_once}" if self.at_once else ""
        return ",".join(map(_written, self.ranges)) + limit


def _written(part: tuple[int, int, int]) -> str:
    first, last, step = part
    if first == last:
        return str(first)
    return f"{first}-{last}{f':{step}' if step > 1 else ''}"


class TaskOf(msgspec.Struct, frozen=True, gc=False):
    """What makes a job a task.

    Parameters
    ----------
    array : number of the job that is the array.
    index : index of the task in it.
    """

    array: int
    index: int

    def __str__(self) -> str:
        """The task as users write it, such as 17_4."""
        return f"{self.array}_{self.index}"


class StepOf(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What makes a job a step.

    Parameters
    ----------
    job : number of the job whose script starts it.
    index : number of the step among those of the job, from 0 on.
    task : how users write the job if it is a task, 17_4; "" for others, which are written as their
        number.
    """

    job: int
    index: int
    task: str = ""

    def __str__(self) -> str:
        """The step as users write it, such as 17.0."""
        return f"{self.task or self.job}.{self.index}"


class JobName(msgspec.Struct, frozen=True):
    """A job, some tasks of an array, or a step, as a user names it.

    Parameters
    ----------
    job : number of the job or of the array, or `LAST`.
    tasks : the tasks of the array that are meant; None: the job itself.
    step : index of the step of this job or task that is meant; None: none.
    """

    job: int
    tasks: TaskArray | None = None
    step: int | None = None

    @classmethod
    def parse(cls, text: str) -> JobName:
        """Read a name such as ``17_[3-7]``.

        Raises
        ------
        ValueError : it is none.
        """
        match = _NAME.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a job: write {NAME_FORM}")
        job, task, several, step = match.groups()
        number = LAST if job == "last" else int(job)
        if job != "last" and not LAST < number <= LARGEST_NUMBER:
            raise ValueError(f"{text!r} is not a job: write {NAME_FORM}")
        if step is not None and (several or int(step) > LARGEST_NUMBER):
            raise ValueError(f"{text!r} is not a step: write 17.0, or 17_4.0 for that of a task")
        try:
            tasks = TaskArray.parse(task or several) if task or several else None
        except ValueError as error:
            raise ValueError(f"{text!r} is not a job: {error}") from None
        return cls(number, tasks, None if step is None else int(step))

    def __str__(self) -> str:
        """The name as `parse` reads it."""
        text = "last" if self.job == LAST else str(self.job)
        if self.tasks is not None:
            text += f"_{self.tasks}" if self.is_one else f"_[{self.tasks}]"
        return text if self.step is None else f"{text}.{self.step}"

    @property
    def is_one(self) -> bool:
        """Whether it stands for one job, task or step, and not for several tasks."""
        return self.tasks is None or self.tasks.count == 1


def names(text: str, mark: str = ",") -> list[str]:
    """Divide a list such as ``3,17_[1,5-8]`` at the marks that are not within brackets."""
    return re.split(re.escape(mark) + _OUTSIDE, text)


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
        name = {"": "ready", "user": "held"}.get(hold, "held_by_administrator")
        return replace(rest, **{name: getattr(rest, name) | affected})

    def after_cancellation(self, positions: ProcSet) -> TasksToCome:
        """The same with tasks cancelled; others are left as they are."""
        affected = positions & self.left
        rest = self.without(affected)
        return replace(rest, cancelled=rest.cancelled | affected)


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
