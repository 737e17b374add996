"""Jobs of other jobs: the tasks of arrays, and the steps of job scripts.

An array is one submission of many tasks, which differ by their index alone. The array is one job.
Its tasks are jobs with the numbers that follow its own; they come to the queue one after the other,
as many as could start, so that an array costs little until they run.

A step is a program that the script of a job starts on the processors of the job. It is a job too,
with a number, groups and resizes of its own. Its first group is on processors that are lent by the
job of the script, which keeps them.
"""

from __future__ import annotations

import re

import msgspec

from reshape.key_values import whole_number

FORM = "0-9, 0-99:2 (step 2) or 1,5,7-8, and with %N at most N tasks at a time"
#: Tasks of an array, and the largest index. A service may accept fewer tasks.
MOST_TASKS, LARGEST = 1_000_000, 2**31 - 1
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?::(\d{1,18}))?)?", re.ASCII)


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
        if percent and not whole_number(most, LARGEST):
            raise ValueError(f"{most!r} in {text!r} is no number of tasks >= 1: write {FORM}")
        ranges = []
        for part in indices.split(","):
            match = _RANGE.fullmatch(part.strip())
            if match is None:
                raise ValueError(f"{part!r} is no index or range: write {FORM}")
            first, last, step = (int(word) if word else None for word in match.groups())
            assert first is not None
            last, step = first if last is None else last, 1 if step is None else step
            if not first <= last <= LARGEST or step < 1:
                raise ValueError(f"{part!r} must ascend, to {LARGEST} at most, by a step >= 1")
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
