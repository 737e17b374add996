"""How users name a job: by its number, a task as 17_4, a step as 17.0, the last job as ``last``."""

from __future__ import annotations

#: Stands for the number of the job that was submitted last.
LAST = 0


class TaskNumber(int):
    """Number of an array, with the index of one of its tasks."""

    index: int

    @classmethod
    def of(cls, array: int, index: int) -> TaskNumber:
        """Make it from both."""
        made = cls(array)
        made.index = index
        return made


class StepNumber(int):
    """A job as a command names it, with the index of one of its steps."""

    job: int
    index: int

    @classmethod
    def of(cls, job: int, index: int) -> StepNumber:
        """Make it from both; the job may be a task, or `LAST`."""
        made = cls(job)
        made.job, made.index = job, index
        return made
