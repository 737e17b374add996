"""How users name jobs: 17, a task 17_4, several tasks 17_[3-7], a step 17.0, and ``last``."""

from __future__ import annotations

import re

import msgspec

from scheduler.model.requests.task_array import TaskArray

FORM = "17, 'last', a task 17_4, tasks 17_[3-7], or a step 17.0"
#: Stands for the number of the job that was submitted last.
LAST = 0
#: Largest number of a job.
LARGEST_NUMBER = 2**63 - 1
_NAME = re.compile(r"(last|\d{1,19})(?:_(?:(\d{1,19})|\[([^]]+)\]))?(?:\.(\d{1,19}))?", re.ASCII)
#: What follows a mark that is not within brackets.
_OUTSIDE = r"(?![^\[\]]*\])"


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
            raise ValueError(f"{text!r} is not a job: write {FORM}")
        job, task, several, step = match.groups()
        number = LAST if job == "last" else int(job)
        if job != "last" and not LAST < number <= LARGEST_NUMBER:
            raise ValueError(f"{text!r} is not a job: write {FORM}")
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
