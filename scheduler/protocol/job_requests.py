"""What users request of jobs: to submit one, to start a step of one, and to change them.

`Submission` is what a user asks for. `scheduler.client.requests.job_options` declares the options
that become its fields, and `scheduler.service.components.admission` makes the request in the core
of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal, TypeAlias, TypeVar

import msgspec

from reshape.errors import ReshapeError
from reshape.topology import Topology
from reshape.wire.messages import EVERY_USER, JobMessage, MessageBase
from scheduler.model.arrays import TaskArray
from scheduler.model.requests import Dependency, EndSignal, parse_constraint

_T = TypeVar("_T")
Placement: TypeAlias = Literal["block", "cyclic"]

#: What happens to an output file that exists: it is emptied, or appended to.
OpenMode: TypeAlias = Literal["truncate", "append"]

#: Walltime of jobs that request none, in queues that do not set another one, seconds.
DEFAULT_WALLTIME_S = 3600.0
#: Walltime of a request for the longest one of the partition or queue, in place of seconds.
LONGEST_WALLTIME_S = -1.0


class Submission(msgspec.Struct, omit_defaults=True):
    """A job as a user submits it.

    Attributes
    ----------
    processors, max_processors : of the preferred and of the largest configuration.
    walltime_s : run time limit, seconds. The service fills in the default of the partition or queue
        for 0, and the longest one for `LONGEST_WALLTIME_S`.
    priority : a number or a name of the service's configuration; None: the user's default.
    user : set by the service, from the connection on which the submission arrives.
    queue : name of a queue; "": the first of the service.
    placement : ranks of a group on several hosts: consecutive on each host, or dealt out in turn.
    per_process : processors of each process, on one node, by which `processors` is divisible; more
        than 1 only for programs that are not resized.
    bind : whether ranks may be bound to the CPUs of their processors.
    output : path of the output file, with placeholders (`scheduler.text.job_output`).
    error : path of a file for the standard error, with placeholders; "": that of the output.
    open_mode : whether the first start of the job empties output files that exist, or appends to
        them; further groups and restarts of the job always append.
    resources : amounts of resources besides processors, by name.
    requeue : whether the job goes back to the queue when its processes die.
    performance : performance model, as `reshape.speedup.named` reads it; "": none.
    shared : what each process demands of the shared resources of its node, by name.
    reservation : advance reservation in which alone the job runs; "": none.
    partition : name of a partition; "": the first of the service.
    hold : whether the job is held from the beginning.
    begin : time before which it does not start, Unix seconds of the wall clock; None: none.
    dependency : what has to become of other jobs before it starts, as
        `scheduler.model.requests` reads it; "": nothing.
    kill_on_invalid : whether it ends when its dependency can never be met.
    script : whether the program runs once, on the first processor, in place of on each processor.
    text : contents of a job script, which are copied; `argv` has its name and its arguments then.
        "": `argv` is run.
    wrapper : program and arguments that start a job script, whose command follows; []: none.
    signal : signal before the end of the walltime, as `scheduler.model.requests` reads it;
        "": none.
    ignored : options of the job script that have no effect; "": none.
    constraint : features of its nodes, as `scheduler.model.requests` reads them; "": any.
    exclusive : whether it gets whole nodes.
    hook_end : command of the shell that its first node runs when it has ended; "": none.
    array : tasks of an array, as `scheduler.model.arrays` reads them; "": it is none.
    umask : that of the processes and of their output files; None: that of the agent.
    limits : soft resource limits of the processes, by name (`scheduler.node.launching.job_bounds`).
    key : submission key, a name that the client uses once; "": none. A submission with the key of
        an earlier one of the same user creates no job and is answered with the earlier one.
    min_processors : of the smallest configuration; None: the one on which the job starts.
    """

    argv: list[str]
    processors: int
    walltime_s: float
    max_processors: int | None = None
    topology: Topology | None = None
    name: str = ""
    user: str = ""
    priority: float | str | None = None
    queue: str = ""
    cwd: str = "."
    environment: dict[str, str] = {}
    output: str = "reshape-%{JOB_ID}.out"
    open_mode: OpenMode = "truncate"
    resources: dict[str, int] = {}
    key: str = ""
    placement: Placement = "block"
    per_process: int = 1
    bind: bool = True
    requeue: bool = False
    performance: str = ""
    shared: dict[str, int] = {}
    reservation: str = ""
    partition: str = ""
    hold: bool = False
    begin: float | None = None
    dependency: str = ""
    kill_on_invalid: bool = False
    script: bool = False
    text: str = ""
    wrapper: list[str] = []
    array: str = ""
    error: str = ""
    signal: str = ""
    ignored: str = ""
    constraint: str = ""
    exclusive: bool = False
    hook_end: str = ""
    umask: int | None = None
    limits: dict[str, int] = {}
    min_processors: int | None = None

    @property
    def smallest(self) -> int:
        """Processors of the smallest configuration."""
        return min(self.processors, self.min_processors or self.processors)

    @property
    def largest(self) -> int:
        """Processors of the largest configuration."""
        return max(self.processors, self.max_processors or self.processors)

    @property
    def resizable(self) -> bool:
        """Whether the job may run on more than one size."""
        return self.smallest < self.largest

    def read_array(self) -> TaskArray | None:
        """Read the tasks of the array; None: it is none. See `read_signal`."""
        return _read("--array", self.array, TaskArray.parse)

    def read_constraint(self) -> tuple[tuple[str, ...], ...]:
        """Read the features of its nodes; (): any nodes. See `read_signal`."""
        return _read("--constraint", self.constraint, parse_constraint) or ()

    def read_dependency(self) -> Dependency | None:
        """Read the dependency; None: it has none. See `read_signal`."""
        if self.kill_on_invalid and not self.dependency:
            raise ReshapeError("--kill-on-invalid-dep needs --dependency")
        return _read("--dependency", self.dependency, Dependency.parse)

    def read_signal(self) -> EndSignal | None:
        """Read the signal before the end of the walltime; None: none.

        Raises
        ------
        ReshapeError : the text cannot be read, or has no effect with the others; it names the
            option.
        """
        signal = _read("--signal", self.signal, EndSignal.parse)
        if signal is not None and signal.to_script and not self.script:
            raise ReshapeError("--signal: B: is for a job script (reshape batch): leave B: out")
        return signal


def _read(option: str, text: str, parse: Callable[[str], _T]) -> _T | None:
    try:
        return parse(text) if text else None
    except ValueError as error:
        raise ReshapeError(f"{option}: {error}") from None


class Submit(MessageBase):
    """Answered by Submitted once the job is durable."""

    senders: ClassVar = EVERY_USER
    submission: Submission


class Submitted(MessageBase):
    """A job or a step was submitted.

    Attributes
    ----------
    job : its number.
    label : how users write a step, such as 17.0; "": of another job.
    """

    job: int
    label: str = ""


# ---------------------------------------------------------------- steps, from job scripts


class RunStep(JobMessage):
    """Request a step; answered by Submitted once the request is durable.

    A repetition with the same key requests no further step.

    Attributes
    ----------
    job, token : of the script.
    key : a name that the script uses once.
    submission : program, processors, environment and output of the step; what it does not say, such
        as user and queue, is that of the job.
    """

    key: str
    submission: Submission


class WaitStep(JobMessage):
    """Answered by JobListing, with the step alone, when the step has ended."""

    step: int


class EndStep(JobMessage):
    """Cancel a step; answered by Done, also if it has ended."""

    step: int


# ---------------------------------------------------------------- changes


#: Jobs that one request names, at most: the service decides nothing else meanwhile.
MOST_CHANGED = 100_000


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


class Change(msgspec.Struct, tag=True, frozen=True, omit_defaults=True):
    """A change of jobs or of the machine.

    Changes of jobs have `told`, what commands print of each job; a signal has words of its own.
    """


class CancelJob(Change, frozen=True):
    """End a job, whether it is queued or runs."""

    told: ClassVar = "cancelled"


class HoldJob(Change, frozen=True):
    """Hold a queued job, so that it does not start."""

    told: ClassVar = "held"


class ReleaseJob(Change, frozen=True):
    """Release a held job. Only an administrator releases what one has held."""

    told: ClassVar = "released"


class RequeueJob(Change, frozen=True):
    """End a running job, and queue it again."""

    told: ClassVar = "requeued"


class SignalJob(Change, frozen=True):
    """Send a signal to the processes of a running job.

    Attributes
    ----------
    number : of the signal.
    to_script : whether the script of the job gets it, and none of the processes that it started.
    """

    number: int
    to_script: bool = False


class UpdateJob(Change, frozen=True):
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
    told: ClassVar = "updated"

    @property
    def given(self) -> dict[str, float | str]:
        """The parts that change, by name."""
        parts = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in parts.items() if value is not None}


JobChange: TypeAlias = CancelJob | HoldJob | ReleaseJob | RequeueJob | SignalJob | UpdateJob


class ChangeJobs(MessageBase):
    """Change jobs at one moment, so that no job starts before the last of them is changed.

    A job that is named several times is changed once. The answer is Done if all are changed, and
    UnchangedJobs if some are not. If only one job is named, Failure has the reason.
    """

    senders: ClassVar = EVERY_USER
    jobs: Annotated[list[JobTasks], msgspec.Meta(max_length=MOST_CHANGED)]
    change: JobChange

    @classmethod
    def one(cls, job: int, change: JobChange, tasks: str = "") -> ChangeJobs:
        """Make the message for a job, or for some tasks of an array."""
        return cls(jobs=[JobTasks(job, tasks)], change=change)


class UnchangedJobs(MessageBase):
    """Why some of the jobs that a request names are not changed; the others are.

    Attributes
    ----------
    refused : (place in the list, why) of each of them.
    """

    refused: list[tuple[int, str]]


JobRequest: TypeAlias = (
    Submit | Submitted | RunStep | WaitStep | EndStep | ChangeJobs | UnchangedJobs
)
