"""The messages between applications, commands, agents and the service.

The `type` of a message names its class (:mod:`reshape.wire.codec` encodes it). A request has an
`id`, which its answer repeats. The answer to a peer of another version, and to an unknown or
malformed message, is :class:`Failure`.

    from an application       Hello, AtResizePoint, JoinPort, ResizeReport, Facts, ProgramFault
    from a joining group      GroupReady, repeated until the answer is Connect or Abandon
    from a node agent         AgentArrival (from other hosts), AgentHello, at each change and as a
                              heartbeat
    to a node agent           StartGroup, StartProxy, KillGroup, ForgetGroups, ReportEnd, WatchJoin,
                              CancelAccept, SweepJob, AgentStop
    from commands             Submit, CheckSubmission, RequestQuote, ForecastStarts, ForecastJob,
                              Cancel, Withdraw, ReadSubmission, ListJobs, Explain, Wait, ServerInfo,
                              ListNodes, ChangeNode, RemoveNode, CreateReservation,
                              CancelReservation, ListReservations, AddPool, ListPools, ChangePool,
                              Stop
"""

from __future__ import annotations

from typing import TypeAlias

from reshape.wire.agent_messages import (
    AgentArrival,
    AgentHello,
    AgentSettings,
    AgentStop,
    CancelAccept,
    ForgetGroups,
    GroupStatus,
    KillGroup,
    ReportEnd,
    StartGroup,
    StartProxy,
    SweepJob,
    WatchJoin,
)
from reshape.wire.application_messages import (
    Abandon,
    AtResizePoint,
    Connect,
    Facts,
    GroupReady,
    Hello,
    Join,
    JoinPort,
    Leave,
    Proceed,
    ProgramFault,
    ResizeReport,
    Welcome,
)
from reshape.wire.command_messages import (
    Cancel,
    CheckSubmission,
    Explain,
    Explanation,
    ForecastJob,
    ForecastResult,
    ForecastStarts,
    Info,
    JobInfo,
    Jobs,
    ListJobs,
    OpenMode,
    Placement,
    RankPlace,
    ReadSubmission,
    RecordedSubmission,
    RequestQuote,
    ResizeInfo,
    ServerInfo,
    Stop,
    Story,
    Submission,
    Submit,
    Submitted,
    Wait,
    Withdraw,
)
from reshape.wire.machine_messages import (
    AddPool,
    AllocationInfo,
    CancelReservation,
    ChangeNode,
    ChangePool,
    CreateReservation,
    ListNodes,
    ListPools,
    ListReservations,
    NodeInfo,
    Nodes,
    PoolAdded,
    PoolInfo,
    PoolList,
    RemoveNode,
    ReservationInfo,
    Reservations,
)
from reshape.wire.message_base import MessageBase


class Done(MessageBase):
    """The request is done, or recorded."""


class Failure(MessageBase):
    """The request is refused; one sentence says why, and how to correct it."""

    message: str


Message: TypeAlias = (
    Hello
    | AddPool
    | ChangePool
    | ListPools
    | PoolAdded
    | PoolList
    | AtResizePoint
    | JoinPort
    | ResizeReport
    | Facts
    | ProgramFault
    | GroupReady
    | Welcome
    | Proceed
    | Join
    | Leave
    | Connect
    | Abandon
    | AgentHello
    | AgentArrival
    | AgentSettings
    | StartGroup
    | StartProxy
    | KillGroup
    | ForgetGroups
    | ReportEnd
    | WatchJoin
    | CancelAccept
    | SweepJob
    | AgentStop
    | Submit
    | CheckSubmission
    | Submitted
    | ForecastStarts
    | ForecastJob
    | RequestQuote
    | ForecastResult
    | Cancel
    | Withdraw
    | ReadSubmission
    | RecordedSubmission
    | ListJobs
    | Jobs
    | Explain
    | Explanation
    | Wait
    | ServerInfo
    | Info
    | ListNodes
    | Nodes
    | ChangeNode
    | RemoveNode
    | CreateReservation
    | CancelReservation
    | ListReservations
    | Reservations
    | Stop
    | Done
    | Failure
)

__all__ = [
    "Abandon",
    "AddPool",
    "AgentArrival",
    "AgentHello",
    "AgentSettings",
    "AgentStop",
    "AllocationInfo",
    "AtResizePoint",
    "Cancel",
    "CancelAccept",
    "CancelReservation",
    "ChangeNode",
    "ChangePool",
    "CheckSubmission",
    "Connect",
    "CreateReservation",
    "Done",
    "Explain",
    "Explanation",
    "Facts",
    "Failure",
    "ForecastJob",
    "ForecastResult",
    "ForecastStarts",
    "ForgetGroups",
    "GroupReady",
    "GroupStatus",
    "Hello",
    "Info",
    "JobInfo",
    "Jobs",
    "Join",
    "JoinPort",
    "KillGroup",
    "Leave",
    "ListJobs",
    "ListNodes",
    "ListPools",
    "ListReservations",
    "Message",
    "NodeInfo",
    "Nodes",
    "OpenMode",
    "Placement",
    "PoolAdded",
    "PoolInfo",
    "PoolList",
    "Proceed",
    "ProgramFault",
    "RankPlace",
    "ReadSubmission",
    "RecordedSubmission",
    "RemoveNode",
    "ReportEnd",
    "RequestQuote",
    "ReservationInfo",
    "Reservations",
    "ResizeInfo",
    "ResizeReport",
    "ServerInfo",
    "StartGroup",
    "StartProxy",
    "Stop",
    "Story",
    "Submission",
    "Submit",
    "Submitted",
    "SweepJob",
    "Wait",
    "WatchJoin",
    "Welcome",
    "Withdraw",
]
