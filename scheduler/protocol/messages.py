"""The messages between applications, commands, agents and the service, and their decoding.

`reshape.wire.messages` describes those of applications, and what all messages share;
`reshape.wire.codec` encodes them.

    from a node agent         AgentArrival (from other hosts), AgentHello, at each change and as a
                              heartbeat
    to a node agent           StartGroup, KillGroup, SignalGroup, LocateRanks, ForgetGroups,
                              ReportEnd, WatchJoin, ProbeNode, CancelAccept, RunHook, SweepJob,
                              AgentStop
    from commands             Submit, ChangeJobs, RequestForecast, ListJobs, Explain, Wait,
                              ServerInfo, ListMachine, ChangeMachine, Stop
    from job scripts          RunStep, WaitStep, EndStep

Those about the service and its machine are here. The machine has nodes, advance reservations and
pools; one question lists any of them, and one command has any change of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal, TypeAlias

import msgspec

from reshape.wire.codec import PROTOCOL, UNREADABLE, decode_frames
from reshape.wire.messages import *
from scheduler.protocol.agent_messages import *
from scheduler.protocol.job_questions import *
from scheduler.protocol.job_requests import *


class ServerInfo(Question):
    """Answered by Info."""

    senders: ClassVar = Question.senders | {"agent"}


class PartitionInfo(msgspec.Struct):
    """A partition as tables show it.

    Attributes
    ----------
    name, scenario : of the partition.
    processors, free : of its nodes that are up; the ones that no job holds.
    queued, running : numbers of its jobs.
    max_processors, max_walltime_s, default_walltime_s : its limits; None: it sets none.
    """

    name: str
    scenario: str
    processors: int
    free: int
    queued: int
    running: int
    max_processors: int | None = None
    max_walltime_s: float | None = None
    default_walltime_s: float | None = None


class Info(MessageBase):
    """State of the service.

    Attributes
    ----------
    pid : number of its process.
    started_at, now : Unix seconds.
    scenario : name of its scenario.
    processors, free : of the nodes that are up; the ones that no job holds.
    nodes : (name, processors, state) of each node.
    queued, running, ended : numbers of jobs.
    directory : service directory.
    version : release of this package.
    resources : (amount, free) of resources besides processors, by name.
    shared : capacity of each node for resources that its processes share, by name.
    awaited : nodes whose agents the service starts and that have not reported, each with the fault
        of the last start, if any.
    unreadable : records of the journal that the service ignores because it cannot read them.
    refused : number of refused connections and messages by kind: "connection" (no or broken
        handshake), "key" (unknown, revoked or expired), "message" (malformed or too large),
        "permission".
    halted : why the journal cannot be written, so that the service decides nothing; empty if it
        can.
    partitions : named partitions; the first one takes submissions that name none.
    last : number of the job that was submitted last, 0 if there was none.
    """

    pid: int
    started_at: float
    now: float
    scenario: str
    processors: int
    free: int
    nodes: list[tuple[str, int, str]]
    queued: int
    running: int
    ended: int
    directory: str
    version: str
    resources: dict[str, tuple[int, int]] = {}
    unreadable: list[str] = []
    awaited: dict[str, str] = {}
    refused: dict[str, int] = {}
    shared: dict[str, int] = {}
    halted: str = ""
    partitions: list[PartitionInfo] = []
    last: int = 0


class ListMachine(Question):
    """List a part of the machine; answered by Nodes, Reservations or PoolList.

    Of the advance reservations, those are listed that have not ended.
    """

    part: Literal["nodes", "reservations", "pools"]


class NodeInfo(msgspec.Struct):
    """A node as tables show it.

    Attributes
    ----------
    name : of the node.
    processors : number of its processors.
    host : name of the host of its agent; empty: the host of the service, or not known.
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
    """The nodes, in the order of the configuration."""

    nodes: list[NodeInfo]


class ReservationInfo(msgspec.Struct, frozen=True):
    """An advance reservation.

    Attributes
    ----------
    name : of the reservation.
    state : ACTIVE or INACTIVE, as in Slurm.
    begin, end : Unix seconds.
    processors, numbers : how many, and their numbers as intervals.
    nodes : nodes that they are on.
    users : whose jobs may use it; none: jobs of all users may.
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
    name : of the pool.
    max_nodes : most nodes that it may have.
    arguments : other options of sbatch.
    allocations : its allocations.
    state : active, waiting (after a failure), paused or removing.
    reason : why it is in this state, or what the batch system answered last in case of an error.
    wanted : nodes that the queue could use in addition.
    options : name -> value.
    """

    name: str
    state: str
    reason: str
    max_nodes: int
    wanted: int
    options: dict[str, bool | float]
    arguments: list[str]
    allocations: list[AllocationInfo]


class PoolList(MessageBase):
    """The pools, in the order in which the pools were added."""

    pools: list[PoolInfo]


# ---------------------------------------------------------------- changes by administrators


class DrainNode(Change, frozen=True):
    """Let a node drain, for a reason."""

    node: str
    why: str = ""


class ResumeNode(Change, frozen=True):
    """Let jobs start again on a node that drains or was removed."""

    node: str


class RemoveNode(Change, frozen=True):
    """Remove a node from the service.

    It is refused while jobs hold processors of the node, unless the node drains. A node that drains
    is removed as soon as its jobs have left it.
    """

    node: str


class CreateReservation(Change, frozen=True):
    """Grant an advance reservation, or refuse it; answered by Reservations with this one.

    It is either of a number of processors or of all processors of nodes.

    Attributes
    ----------
    name : "": the name of the user and a number.
    start : Unix seconds; None: now.
    duration_s : seconds.
    users : whose jobs may use it; none: jobs of all users may.
    partition : of the processors; "": the first one, or the one that has the nodes.
    """

    duration_s: float
    name: str = ""
    start: float | None = None
    processors: int = 0
    nodes: list[str] = []
    users: list[str] = []
    partition: str = ""


class CancelReservation(Change, frozen=True):
    """End an advance reservation."""

    name: str


class AddPool(Change, frozen=True):
    """Add a pool; answered by PoolAdded as soon as Slurm would accept an allocation.

    Attributes
    ----------
    options : as `scheduler.policies.pools.options.parse_pool_options` reads them.
    arguments : other options of sbatch.
    """

    name: str
    options: dict[str, str]
    arguments: tuple[str, ...] = ()


class PausePool(Change, frozen=True):
    """Let a pool submit nothing, for a reason, until it is resumed."""

    name: str
    why: str = ""


class ResumePool(Change, frozen=True):
    """Let a pool submit again, also after failures."""

    name: str


class RemovePool(Change, frozen=True):
    """Give the nodes of a pool back, and forget it.

    Attributes
    ----------
    at_once : without waiting for the jobs on its nodes.
    """

    name: str
    at_once: bool = False


NodeChange: TypeAlias = DrainNode | ResumeNode | RemoveNode
ReservationChange: TypeAlias = CreateReservation | CancelReservation
PoolChange: TypeAlias = AddPool | PausePool | ResumePool | RemovePool


class ChangeMachine(MessageBase):
    """Change nodes, advance reservations or pools; answered by Done unless the change says more."""

    senders: ClassVar = frozenset({"administrator"})
    change: NodeChange | ReservationChange | PoolChange


class PoolAdded(MessageBase):
    """The pool is there; `said` is what the batch system answered to the dry run."""

    name: str
    said: str


class Stop(MessageBase):
    """End the service; with `kill`, its jobs and agents too (otherwise refused if jobs run)."""

    senders: ClassVar = frozenset({"administrator"})
    kill: bool = False


MachineMessage: TypeAlias = (
    ServerInfo
    | Info
    | ListMachine
    | Nodes
    | Reservations
    | PoolList
    | ChangeMachine
    | PoolAdded
    | Stop
)

Message: TypeAlias = ApplicationMessage | AgentMessage | JobRequest | JobQuestion | MachineMessage


class _StartNumbers(msgspec.Struct, tag="StartGroup"):
    job: int
    group: int


class _Header(msgspec.Struct):
    """The part of a message that pairs an answer with it."""

    id: int = 0


_header_decoder = msgspec.msgpack.Decoder(_Header)
_start_decoder = msgspec.msgpack.Decoder(_StartNumbers)
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


#: Decodes the frames of any message; see `decode_frames`.
decode = partial(decode_frames, _decoder)


def is_other_release(frames: Sequence[bytes]) -> bool:
    """Whether frames are a message of this protocol in another version."""
    return len(frames) > 0 and frames[0].startswith(b"reshape/") and frames[0] != PROTOCOL


def request_of(frames: Sequence[bytes]) -> int:
    """Return the number of a request that cannot be decoded, 0 if it cannot be read."""
    try:
        return _header_decoder.decode(frames[1]).id
    except (*UNREADABLE, IndexError):
        return 0


def start_of(frames: Sequence[bytes]) -> tuple[int, int] | None:
    """Job and group that a malformed StartGroup of this version names; None if it names none."""
    if len(frames) != 2 or frames[0] != PROTOCOL:
        return None
    try:
        start = _start_decoder.decode(frames[1])
    except UNREADABLE:
        return None
    return start.job, start.group
