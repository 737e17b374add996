"""Events: every decision is a function of the ordered stream of them.

A live service receives them from sockets and agents, the simulator from a trace and a virtual
clock, a replay from a journal. Times are in seconds on the driver's clock; the core reads no clock.

Events of one instant are handled together, in the order of
:func:`scheduler.partition.passes.instant_order`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from reshape.errors import check_ranges
from reshape.topology import Topology
from reshape.wire.messages import ResizeTimes
from scheduler.model.arrays import Hold, StepOf, TaskArray, TaskOf
from scheduler.model.procset import ProcSet
from scheduler.model.requests import Conditions, EndSignal, NodeRequest
from scheduler.model.resources import checked

#: Name of the partition for redirected jobs, unless the rule of redirection names another one.
REDIRECTION = "redirection"


#: Who lets a node drain that failed to start jobs; see `DrainChanged.by`.
SERVICE = "the service"


class JobSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a user requests.

    Parameters
    ----------
    processors : processors of the preferred configuration, >= 1; the job starts on them, or on
        fewer if `min_processors` says so.
    walltime_s : estimated (and, unless configured otherwise, enforced) run time in seconds.
    max_processors : largest configuration; None: `processors`.
    min_processors : smallest configuration, on which the job may start and to which it may
        contract; None: the one on which it starts.
    topology : valid sizes; None: those that the program declares, "arbitrary" without any.
    name, user, queue : labels for users, policies and tables.
    priority : user-assigned priority (PRIO 3.1), larger is more urgent.
    resources : amounts that it holds besides processors from start to end, by name.
    shared : what each of its processes demands of the shared resources of its node, by name; see
        `scheduler.model.sharing`.
    group, executable : other labels, for predictors and policies; "" if not known.
    memory_kib : memory that was requested for each processor, KiB, for predictors; 0 if not known.
        It is no demand; see `resources`.
    requeue : whether the job goes back to the queue when its processes die.
    performance : performance model of the job, as `reshape.speedup.named` reads it; "": none.
    reservation : advance reservation in which alone the job may run; "": none.
    partition : name of the partition whose processors the job gets; "": the first one.
    conditions : what has to happen before the job is eligible; None: nothing.
    array : tasks of the array that the job is; None: it is none.
    task_of : the array that the job is a task of; None: it is none.
    nodes : which nodes it may get processors of; None: any.
    end_signal : signal that it gets before the end of its walltime; None: none.
    step_of : the job whose script starts the job as a step; None: it is none.

    Raises
    ------
    ValueError : a number is out of range.
    """

    processors: int
    walltime_s: float
    max_processors: int | None = None
    topology: Topology | None = None
    name: str = ""
    user: str = ""
    queue: str = "main"
    priority: float = 0.0
    resources: Mapping[str, int] = {}
    shared: Mapping[str, int] = {}
    group: str = ""
    executable: str = ""
    memory_kib: int = 0
    requeue: bool = False
    performance: str = ""
    reservation: str = ""
    partition: str = ""
    conditions: Conditions | None = None
    array: TaskArray | None = None
    task_of: TaskOf | None = None
    end_signal: EndSignal | None = None
    step_of: StepOf | None = None
    nodes: NodeRequest | None = None
    min_processors: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.processors < 1:
            raise ValueError(f"processors must be >= 1, got {self.processors}")
        if not self.walltime_s > 0:
            raise ValueError(f"walltime_s must be > 0, got {self.walltime_s}")
        most = self.max_processors
        if most is not None and most < self.processors:
            raise ValueError(
                f"max_processors must be >= the {self.processors} it starts on, got {most}"
            )
        least = self.min_processors
        if least is not None and not 1 <= least <= self.processors:
            raise ValueError(
                f"min_processors must be from 1 to the {self.processors} requested, got {least}"
            )
        if self.resources:
            checked(self.resources)
        if self.shared:
            checked(self.shared)

    @property
    def is_placed(self) -> bool:
        """Whether it matters which processors the job gets, and not only how many."""
        return self.nodes is not None or bool(self.reservation)

    @property
    def resizable(self) -> bool:
        """Whether the job may ever run on more than one size."""
        return self.largest > self.processors or self.malleable

    @property
    def malleable(self) -> bool:
        """Whether the job may run on fewer processors than it requests."""
        return self.min_processors is not None and self.min_processors < self.processors

    @property
    def largest(self) -> int:
        """Processors of the largest configuration."""
        return self.max_processors or self.processors


class JobEvent(msgspec.Struct, frozen=True, gc=False):
    """What happens to one job, at a time in seconds."""

    at: float
    job: int


class JobSubmitted(JobEvent, frozen=True, tag=True, gc=False):
    """A job enters the queue. The driver numbers jobs in ascending order."""

    spec: JobSpec


class JobStarted(JobEvent, frozen=True, tag=True, gc=False):
    """The first group of a job has started (after `Start`, also after a restart)."""


class ResizePoint(JobEvent, frozen=True, tag=True, gc=False):
    """A job is between two iterations and reports the last one.

    `iteration` is the number of iterations finished so far, `iteration_s` the time of the last one,
    or the mean time of those since the last resize point that was reported.
    `iterations` is the number of all iterations that the program declares; 0 if not known.
    `topology` is what the program declares; it is used if the submission names none.
    `data_bytes` is what a resize would have to move, over all processes; 0 if not known.
    `failed` describes an exception of the policy; a live driver adds it when it handles the event
    again. The job then continues, and the policy is not called.
    """

    iteration: int
    iteration_s: float
    topology: Topology | None = None
    data_bytes: int = 0
    failed: str = ""
    iterations: int = 0


class SizesRequested(JobEvent, frozen=True, tag=True, gc=False):
    """The program of a job requests bounds on its size from now on; 0: no bound.

    Its resize points meet them when there are processors; `AnswerRequest` says whether they apply.
    """

    minimum: int = 0
    maximum: int = 0


class ResizeDone(JobEvent, frozen=True, tag=True, gc=False):
    """A resize is committed, and the leaving processes have ended."""

    serial: int
    times: ResizeTimes = ResizeTimes()


class ResizeFailed(JobEvent, frozen=True, tag=True, gc=False):
    """A resize was rolled back: the job keeps its old configuration.

    With `restart` its processes have ended too, and it must be started again, on its old
    processors, from the state at the resize point.
    """

    serial: int
    why: str
    restart: bool = False


class JobEnded(JobEvent, frozen=True, tag=True, gc=False):
    """All processes of a job have ended, by `signal` if it is not 0 (Slurm's code:signal).

    `died` says that they did not end by themselves: a signal ended one of them, or a node was lost.
    `checkpoint` is the iteration of the last checkpoint that the job has reported; 0 if none.
    `last_lines` are the last lines of the output of a job that failed or was ended.
    `began` says whether its program has begun since the job was queued last. `at_fault` is the node
    on which a program that has not begun could not be started; "": its agent was lost or ended.
    """

    exit_code: int = 0
    signal: int = 0
    why: str = ""
    died: bool = False
    checkpoint: int = 0
    last_lines: str = ""
    began: bool = True
    at_fault: str = ""


class JobCancelled(JobEvent, frozen=True, tag=True, gc=False):
    """A user cancels a job, queued or running.

    `tasks` are positions of the tasks of an array that are cancelled; None: the whole array.
    """

    why: str = "cancelled by its user"
    tasks: ProcSet | None = None


class HoldChanged(JobEvent, frozen=True, tag=True, gc=False):
    """A queued job is held, or released if `hold` is empty.

    `tasks` are positions of the tasks of an array that are held; None: the whole array.
    """

    hold: Hold
    tasks: ProcSet | None = None


class JobRequeued(JobEvent, frozen=True, tag=True, gc=False):
    """A user lets a job that holds processors end and be queued again, for the reason `why`."""

    why: str = "requeued by its user"


class JobUpdated(JobEvent, frozen=True, tag=True, gc=False):
    """The request of a job that has not ended is `spec` from now on.

    A queued job may get any other request. Of a job that holds processors only the limits, labels
    and the priority may change; it remains in its partition, and rigid or resizable as it is.
    """

    spec: JobSpec


class JobSignalled(JobEvent, frozen=True, tag=True, gc=False):
    """A user sends a signal to the processes of a job, or of the running tasks of an array.

    `to_script` says that the script of the job gets it, and none of the processes that it started.
    """

    number: int
    to_script: bool = False
    why: str = "sent by its user"


class NodeJoined(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A node joins, for the first time or again, with processors, further resources and features.

    `shares` has the processors of other partitions than the first one, by name, which get the same
    fractions of the further resources. At `until` (s) the node expires: no job is started there
    that would end later by its estimate, and resizable jobs contract off it before. None: it does
    not.
    """

    at: float
    node: str
    processors: int
    resources: Mapping[str, int] = {}
    until: float | None = None
    shares: Mapping[str, int] = {}
    features: tuple[str, ...] = ()


class NodeLost(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A node and all processes on it are lost.

    `restart_points` lists the jobs that have a restart point on the node. They are not ended,
    because they restart when the node has joined again. None: it is not known yet which jobs have
    one, so no job that is being resized is ended; a second loss of the node says it. `ended` lists
    the jobs whose groups on the node had ended before: their ends are reported.
    """

    at: float
    node: str
    restart_points: tuple[int, ...] | None = ()
    ended: tuple[int, ...] = ()


class DrainChanged(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A node begins to drain (`drains`) for the reason `why`, or is resumed.

    No group starts on a node that drains. Resizable jobs contract off it at their resize points, as
    far as their groups allow; all other processes there end with their jobs.

    Attributes
    ----------
    by : who changed it: "user NAME", "pool NAME" or `SERVICE`; "": not known (release 0.1.0).
    """

    at: float
    node: str
    drains: bool
    why: str = ""
    by: str = ""


class SilenceChanged(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The agent of a node that is up is silent, or reports again (`until` is None).

    No group starts on the free processors of the node before it reports again or is lost, at
    `until` (s) at the latest. Jobs that run there stay.
    """

    at: float
    node: str
    until: float | None


class NodeRemoved(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An administrator removes a node from the machine; its processors count as not installed.

    No group starts there. Jobs that still hold processors of the node leave it as if it drained.
    Its processors keep their numbers. The node belongs to the machine again after `NodeJoined`, or
    after `DrainChanged` with `drains` false.
    """

    at: float
    node: str


class Wakeup(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The time of a `WakeAt` order has come."""

    at: float


class DepthChanged(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The driver limits scheduling passes to the first `jobs` queued jobs; None: no limit.

    A live driver measures passes and limits their depth so that they take no more than a given
    time. As an event the limit is a part of the journal, so a replay decides by the same depth.
    """

    at: float
    jobs: int | None = None


class ClockSet(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The wall clock was set forward by `by_s` seconds, or back if that is negative.

    The driver's clock continues unchanged, so durations do not change. Advance reservations and
    expiries of nodes are agreed on by wall clock: on the driver's clock they move by as much.
    """

    at: float
    by_s: float


class ReservationRequested(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An administrator or operator requests an advance reservation.

    It is of `processors`, or of all processors of `nodes`, from `begin` (s) for `duration_s`, in
    `partition` ("": the first one, or the one that has the nodes). The jobs of `users` may be
    submitted to it; () stands for all users. The core answers with `Reserve` or `Refuse`.
    """

    at: float
    name: str
    begin: float
    duration_s: float
    processors: int = 0
    nodes: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    partition: str = ""

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_ranges(self, duration_s="> 0 and finite", begin="finite")
        if (self.processors > 0) == bool(self.nodes):
            raise ValueError("a reservation is either of processors or of nodes")


class ReservationCancelled(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An advance reservation is cancelled; its processors are available to all jobs again."""

    at: float
    name: str


Event: TypeAlias = (
    JobSubmitted
    | JobStarted
    | ResizePoint
    | SizesRequested
    | ResizeDone
    | ResizeFailed
    | JobEnded
    | JobCancelled
    | HoldChanged
    | JobRequeued
    | JobSignalled
    | JobUpdated
    | NodeJoined
    | NodeLost
    | Wakeup
    | DepthChanged
    | ClockSet
    | DrainChanged
    | SilenceChanged
    | NodeRemoved
    | ReservationRequested
    | ReservationCancelled
)
