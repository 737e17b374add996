"""Steps of job scripts: programs that a script starts on the processors of its job.

A step is a job with a number, groups and resizes of its own. Its first group is on processors that
are lent by the job of the script, which keeps them.
"""

from __future__ import annotations

import msgspec


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
