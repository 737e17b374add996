"""The message with which users change jobs that they have submitted, and its answer.

One message serves all changes: it names jobs, and the change, which is the same for all of them.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from reshape.wire.messages import MessageBase, UserCommand

#: Jobs of one request that the log of the service names, at most.
LOGGED = 20


class JobTasks(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job, or some tasks of an array.

    Parameters
    ----------
    job : number of the job or the array.
    tasks : indices of the tasks, as `TaskArray` reads them; "": the job itself.
    """

    job: int
    tasks: str = ""

    def __str__(self) -> str:
        """The name as users write it."""
        return f"{self.job}_[{self.tasks}]" if self.tasks else str(self.job)


class _JobChange(msgspec.Struct, tag=True, frozen=True, omit_defaults=True):
    """A change of jobs; `log_text` is the participle for it."""

    participle: ClassVar[str]

    def log_text(self) -> str:
        """Say what is done with the jobs."""
        return self.participle


class CancelJob(_JobChange, frozen=True):
    """End a job, whether it is queued or runs."""

    participle: ClassVar = "cancelled"


class HoldJob(_JobChange, frozen=True):
    """Hold a queued job, so that it does not start."""

    participle: ClassVar = "held"


class ReleaseJob(_JobChange, frozen=True):
    """Release a held job. Only an administrator releases what one has held."""

    participle: ClassVar = "released"


class RequeueJob(_JobChange, frozen=True):
    """End a running job, and queue it again."""

    participle: ClassVar = "requeued"


class SignalJob(_JobChange, frozen=True):
    """Send a signal to the processes of a running job.

    Attributes
    ----------
    number : of the signal.
    to_script : whether the script of the job gets it, and none of the processes that it started.
    """

    number: int
    to_script: bool = False
    participle: ClassVar = "sent a signal"

    def log_text(self) -> str:
        """Say what is done with the jobs."""
        return f"sent signal {self.number}"


class UpdateJob(_JobChange, frozen=True):
    """Change parts of the submission of a job that has not ended; None leaves a part as it is.

    Attributes
    ----------
    walltime_s : run time limit, as in a submission.
    processors, max_processors, min_processors : of the preferred, largest and smallest
        configuration.
    dependency : as in a submission; "" removes the dependency.
    begin : Unix seconds of the wall clock.
    """

    walltime_s: float | None = None
    processors: int | None = None
    max_processors: int | None = None
    priority: float | str | None = None
    name: str | None = None
    queue: str | None = None
    partition: str | None = None
    dependency: str | None = None
    begin: float | None = None
    min_processors: int | None = None
    participle: ClassVar = "updated"

    @property
    def given(self) -> dict[str, float | str]:
        """The parts that change, by name."""
        parts = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in parts.items() if value is not None}

    def log_text(self) -> str:
        """Say what is done with the jobs."""
        return f"updated: {', '.join(f'{name} {value}' for name, value in self.given.items())}"


JobChange: TypeAlias = CancelJob | HoldJob | ReleaseJob | RequeueJob | SignalJob | UpdateJob


class ChangeJobs(UserCommand):
    """Change jobs at one moment, so that no job starts before the last of them is changed.

    The answer is Done if all are changed, and UnchangedJobs if some are not. If only one job is
    named, Failure has the reason.
    """

    jobs: list[JobTasks]
    change: JobChange

    @classmethod
    def one(cls, job: int, change: JobChange, tasks: str = "") -> ChangeJobs:
        """Make the message for a job, or for some tasks of an array."""
        return cls(jobs=[JobTasks(job, tasks)], change=change)

    def log_text(self) -> str:
        """Say what the message changes."""
        named = ", ".join(map(str, self.jobs[:LOGGED])) + ", ..." * (len(self.jobs) > LOGGED)
        several = len(self.jobs) != 1
        return f"job{'s' * several} {named} {'are' if several else 'is'} {self.change.log_text()}"


class UnchangedJobs(MessageBase):
    """Why some of the jobs that a request names are not changed; the others are.

    Attributes
    ----------
    refused : (place in the list, why) of each of them.
    """

    refused: list[tuple[int, str]]


ChangeMessage: TypeAlias = ChangeJobs | UnchangedJobs
