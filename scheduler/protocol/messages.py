"""The messages between applications, commands, agents and the service, and their decoding.

`reshape.wire.messages` describes those of applications, and what all messages share;
`reshape.wire.codec` encodes them.

    from a node agent         AgentArrival (from other hosts), AgentHello, at each change and as a
                              heartbeat
    to a node agent           StartGroup, StartProxy, KillGroup, SignalGroup, LocateRanks,
                              ForgetGroups, ReportEnd, WatchJoin, ProbeNode, CancelAccept, RunHook,
                              SweepJob, AgentStop
    from commands             Submit, CheckSubmission, ChangeJobs, RequestForecast, ListJobs,
                              Explain, Wait, ServerInfo, ListMachine, ChangeMachine, Stop
    from job scripts          RunStep, WaitStep, EndStep
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from reshape.wire.codec import MAX_REQUEST_BYTES, PROTOCOL, UNREADABLE, decode_frames
from reshape.wire.messages import *
from scheduler.protocol.agent_messages import *
from scheduler.protocol.job_questions import *
from scheduler.protocol.job_requests import *
from scheduler.protocol.machine_messages import *

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


def decode(frames: Sequence[bytes], max_bytes: int = MAX_REQUEST_BYTES) -> Message:
    """Decode any message; see `decode_frames`."""
    return decode_frames(_decoder, frames, max_bytes)


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
