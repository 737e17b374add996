"""The messages between applications, commands, agents and the service.

`reshape.wire.messages` describes those of applications, and what all messages share.

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

from reshape.wire.messages import (
    Abandon,
    AtResizePoint,
    Connect,
    Done,
    Facts,
    Failure,
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
from scheduler.protocol.agent_messages import (
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
from scheduler.protocol.command_messages import (
    Cancel,
    CheckSubmission,
    Explain,
    Explanation,
    ForecastJob,
    ForecastResult,
    ForecastStarts,
    Info,
    JobInfo,
    JobListing,
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
from scheduler.protocol.machine_messages import (
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
    | JobListing
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
    "JobListing",
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
