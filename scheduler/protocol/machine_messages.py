"""Messages from commands about nodes, advance reservations and pools, and their answers."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from reshape.wire.messages import AdministratorCommand, MessageBase, Question


class ListNodes(Question):
    """Answered by Nodes."""


class NodeInfo(msgspec.Struct):
    """A node as tables show it.

    Attributes
    ----------
    name : of the node.
    processors : number of its processors.
    host : name of the host of its agent; empty: that of the service, or not known.
    allocated : processors that jobs hold.
    state : idle, mix, alloc, drng, drain or down, as in sinfo; * follows if its agent is silent.
    launcher : how its agent is started: local, ssh, slurm, pool (by a batch job of a pool) or none.
    jobs : numbers of the jobs that hold processors of the node.
    reason : for how long its agent is silent, why it drains, or why it has no agent.
    drained_by : who lets it drain: "user NAME", "pool NAME" or "the service", which resumes it when
        its agent can start processes again; "": it does not drain, or that is not known.
    until : time at which it is given back, Unix time in seconds; None: it stays.
    partitions : its processors in each partition, by name; empty if there is only one.
    features : what jobs may request of it.
    """

    name: str
    host: str
    processors: int
    allocated: int
    state: str
    launcher: str
    jobs: list[int]
    reason: str = ""
    until: float | None = None
    partitions: dict[str, int] = {}
    features: list[str] = []
    drained_by: str = ""


class Nodes(MessageBase):
    """Answer to ListNodes, in the order of the configuration."""

    nodes: list[NodeInfo]


class ChangeNode(AdministratorCommand):
    """Let a node drain, for a reason, or resume it; answered by Done."""

    node: str
    drains: bool
    why: str = ""

    def log_text(self) -> str:
        """Say what the message changes."""
        if self.drains:
            return f"node {self.node} drains ({self.why or 'no reason given'})"
        return f"node {self.node} is resumed"


class RemoveNode(AdministratorCommand):
    """Remove a node from the service; answered by Done.

    It is refused while jobs hold processors of the node, unless the node drains. A node that drains
    is removed as soon as its jobs have left it.
    """

    node: str

    def log_text(self) -> str:
        """Say what the message changes."""
        return f"node {self.node} is removed"


class CreateReservation(AdministratorCommand):
    """Request an advance reservation; answered by Reservations with this one, or by Failure.

    It is either of a number of processors or of all processors of nodes.

    Attributes
    ----------
    name : "": the name of the user and a number.
    start : Unix seconds; None: now.
    duration_s : seconds.
    users : whose jobs may use it; none: those of all users.
    partition : of the processors; "": the first one, or the one that has the nodes.
    """

    duration_s: float
    name: str = ""
    start: float | None = None
    processors: int = 0
    nodes: list[str] = []
    users: list[str] = []
    partition: str = ""

    def log_text(self) -> str:
        """Say what the message changes."""
        return f"reservation {self.name or 'without a name'} is requested"


class CancelReservation(AdministratorCommand):
    """Cancel an advance reservation; answered by Done."""

    name: str

    def log_text(self) -> str:
        """Say what the message changes."""
        return f"reservation {self.name} is cancelled"


class ListReservations(Question):
    """List the advance reservations that have not ended; answered by Reservations."""


class ReservationInfo(msgspec.Struct, frozen=True):
    """An advance reservation.

    Attributes
    ----------
    name : of the reservation.
    state : ACTIVE or INACTIVE, as in Slurm.
    begin, end : Unix seconds.
    processors, numbers : how many, and their numbers as intervals.
    nodes : nodes that they are on.
    users : whose jobs may use it; none: those of all users.
    running, queued : numbers of the jobs that name it.
    partition : of its processors; "" if there is only one.
    """

    name: str
    state: str
    begin: float
    end: float
    processors: int
    nodes: list[str]
    numbers: str
    users: list[str]
    running: list[int]
    queued: list[int]
    partition: str = ""


class Reservations(MessageBase):
    """Advance reservations, in order of their begins.

    Attributes
    ----------
    now : time of the service, Unix seconds.
    """

    now: float
    reservations: list[ReservationInfo]


class AddPool(AdministratorCommand):
    """Add a pool; answered by PoolAdded when its batch system would accept an allocation.

    Attributes
    ----------
    system : name of the batch system.
    options : as `scheduler.pools.options.parse_pool_options` reads them.
    arguments : further options of the submission command of the batch system.
    """

    name: str
    system: str
    options: dict[str, str]
    arguments: tuple[str, ...] = ()

    def log_text(self) -> str:
        """Say what the message changes."""
        return f"pool {self.name} is added"


class PoolAdded(MessageBase):
    """The pool is there; `said` is what the batch system answered to the dry run."""

    name: str
    said: str


class ListPools(Question):
    """Answered by PoolList."""


class AllocationInfo(msgspec.Struct):
    """An allocation of a pool; times in Unix seconds.

    Attributes
    ----------
    number : of the allocation in its pool.
    submitted_at : time of its submission.
    id : of its batch job; empty until the batch system has answered.
    state : submitting, queued, starting, running or leaving.
    nodes : names of its nodes in the service.
    started_at, ends_at : None: not yet.
    idle : processors that no job holds.
    """

    number: int
    id: str
    state: str
    nodes: list[str]
    submitted_at: float
    started_at: float | None
    ends_at: float | None
    idle: int


class PoolInfo(msgspec.Struct):
    """A pool as tables show it; times in seconds.

    Attributes
    ----------
    name, system : of the pool, and of its batch system.
    max_nodes : most nodes that it may have.
    arguments : further options of the submission command.
    allocations : its allocations.
    state : active, waiting (after a failure), paused or removing.
    reason : why it is in this state, or what the batch system answered last in case of an error.
    wanted : nodes that the queue could use in addition.
    options : name -> value.
    """

    name: str
    system: str
    state: str
    reason: str
    max_nodes: int
    wanted: int
    options: dict[str, bool | float]
    arguments: list[str]
    allocations: list[AllocationInfo]


class PoolList(MessageBase):
    """Answer to ListPools, in the order in which the pools were added."""

    pools: list[PoolInfo]


class ChangePool(AdministratorCommand):
    """Pause, resume or remove a pool; answered by Done.

    Attributes
    ----------
    why : why it is paused.
    at_once : remove it without waiting for the jobs on its nodes.
    """

    name: str
    action: Literal["pause", "resume", "remove"]
    why: str = ""
    at_once: bool = False

    def log_text(self) -> str:
        """Say what the message changes."""
        return f"pool {self.name}: {self.action}{f' ({self.why})' if self.why else ''}"


MachineMessage: TypeAlias = (
    ListNodes
    | Nodes
    | ChangeNode
    | RemoveNode
    | CreateReservation
    | CancelReservation
    | ListReservations
    | Reservations
    | AddPool
    | PoolAdded
    | ListPools
    | PoolList
    | ChangePool
)
