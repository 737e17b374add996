"""Messages with which users change jobs that they have submitted."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from reshape.wire.messages import MessageBase, Question, UserCommand


class HoldJob(UserCommand):
    """Hold a queued job, or release it. Only an administrator releases what one has held.

    Attributes
    ----------
    tasks : indices of tasks of the array `job`, as `TaskArray` reads them; "": the whole job.
    """

    job: int
    hold: bool
    tasks: str = ""

    def log_text(self) -> str:
        """Say what the message changes."""
        return f"job {self.job} is {'held' if self.hold else 'released'}"


class ReadArray(Question):
    """Answered by ArrayTasks."""

    job: int


class ArrayTasks(MessageBase):
    """The tasks of an array, as they were submitted."""

    array: str


class RequeueJob(UserCommand):
    """End a running job, or running tasks of an array, and queue them again.

    Attributes
    ----------
    tasks : as of `HoldJob`.
    """

    job: int
    tasks: str = ""

    def log_text(self) -> str:
        """Say what the message changes."""
        return f"job {self.job} is requeued"


class SignalJob(UserCommand):
    """Send a signal to the processes of a running job; answered by Done.

    Attributes
    ----------
    number : of the signal.
    to_script : whether the script of the job gets it, and none of the processes that it started.
    tasks : as of `HoldJob`.
    """

    job: int
    number: int
    to_script: bool = False
    tasks: str = ""


class RequestChanges(msgspec.Struct, frozen=True, omit_defaults=True):
    """Parts of a submission that change; None leaves a part as it is.

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

    @property
    def given(self) -> dict[str, float | str]:
        """The parts that change, by name."""
        parts = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in parts.items() if value is not None}


class UpdateJob(UserCommand):
    """Change the request of a job that has not ended; answered by Done, or nothing is changed."""

    job: int
    changes: RequestChanges

    def log_text(self) -> str:
        """Say what the message changes."""
        parts = (f"{name} {value}" for name, value in self.changes.given.items())
        return f"job {self.job} is updated: {', '.join(parts)}"


ChangeMessage: TypeAlias = HoldJob | RequeueJob | SignalJob | UpdateJob | ReadArray | ArrayTasks
