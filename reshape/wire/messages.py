"""The wire: every message between applications, commands, agents and the service.

A message travels as two frames, the protocol's name and version (:data:`PROTOCOL`) and one
msgpack object whose `type` names the message. Requests carry an `id` that the answer repeats.
A peer of another version is refused with one clear :class:`Failure`; an unknown or malformed
message likewise.

    application, first rank   Hello, AtResizePoint, JoinPort, ResizeReport, Facts
    a joining group           GroupReady (repeated until it is answered by Connect or Abandon)
    node agent                AgentHello, at every change and as a heartbeat: all it knows
      ... is told             StartGroup, KillGroup, WatchJoin, CancelAccept, SweepJob, AgentStop
    commands                  Submit, Cancel, ListJobs, Explain, Wait, ServerInfo, Stop
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from reshape.errors import ProtocolError
from reshape.topology import Topology
from reshape.wire.outcome import ResizeTimes

PROTOCOL = b"reshape/1"


class _Message(msgspec.Struct, tag=True, kw_only=True):
    """Base of all messages; `id` pairs an answer with its request."""

    id: int = 0


# ---------------------------------------------------------------- application -> service


class Hello(_Message):
    """The first (or restarted) group of a job is up; `size` as its communicator says."""

    job: int
    group: int
    token: str
    size: int
    pid: int
    topology: Topology | None = None


class ResizeReport(_Message):
    """A resize is committed (`ok`) or rolled back at the application (`why` says the reason)."""

    job: int
    token: str
    serial: int
    ok: bool
    why: str = ""
    times: ResizeTimes = ResizeTimes()


class AtResizePoint(_Message):
    """The job stands between two iterations; answered by Proceed, Join or Leave.

    `epoch` is the serial of the last resize the application committed (0: none), so that the
    service knows where the job stands even if a report got lost. `registered_bytes` is the data a
    resize has to move, over all processes; the time a resize may take follows from it.
    `iteration` counts the iterations finished, `iteration_s` is the mean time of those since the
    last question (:mod:`reshape.wire.pace`).
    """

    job: int
    token: str
    epoch: int
    size: int
    registered_bytes: int
    iteration: int
    iteration_s: float
    topology: Topology | None = None


class JoinPort(_Message):
    """The job has opened an MPI port and is about to accept the group on it."""

    job: int
    token: str
    serial: int
    port: str


class Facts(_Message):
    """What the program wants people to know of its result, such as `verified` or `residual`."""

    job: int
    token: str
    facts: dict[str, bool | int | float | str]


class GroupReady(_Message):
    """A joining group is up, its arrays are registered, and it waits for a port."""

    job: int
    group: int
    token: str
    size: int
    pid: int


# ---------------------------------------------------------------- service -> application


class Welcome(_Message):
    """Answer to Hello. `topology` is what the submission says, None if nothing."""

    topology: Topology | None = None
    verify: bool = False


class Proceed(_Message):
    """Go on with the next iteration."""


class Join(_Message):
    """Accept this group now: open a port, say JoinPort, accept, merge, move the data."""

    serial: int
    group: int
    size: int


class Leave(_Message):
    """These groups leave now: move their data to the others, commit, and let them end."""

    serial: int
    groups: list[int]


class Connect(_Message):
    """A joining group is to connect to this port."""

    port: str


class Abandon(_Message):
    """A joining group is not wanted any more and is to end."""

    why: str


# ---------------------------------------------------------------- agent -> service


class GroupStatus(msgspec.Struct):
    """What an agent knows of a group: `alive`, or how it ended once all its processes are gone.

    `pid` is the group's mpiexec.
    """

    job: int
    group: int
    alive: bool
    pid: int = 0
    exit_code: int = 0
    signal: int = 0
    why: str = ""


class AgentHello(_Message):
    """All an agent knows, sent at every change and once a second as its heartbeat.

    It repeats how groups ended until ForgetGroups or SweepJob, so that no news is lost with a
    service. `folders` lists all jobs that have shared memory on the node, `restart_points` those of
    them that have a restart point, which means that they are within a resize.
    """

    node: str
    pid: int
    secret: str
    groups: list[GroupStatus]
    restart_points: list[int]
    folders: list[int] = []


# ---------------------------------------------------------------- service -> agent


class StartGroup(_Message):
    """Start `size` processes of `argv` under one mpiexec. Known groups are left as they are."""

    job: int
    group: int
    size: int
    argv: list[str]
    cwd: str
    environment: dict[str, str]
    output: str


class KillGroup(_Message):
    """End every process of a group: SIGTERM, then SIGKILL after `grace_s` seconds; 0: at once."""

    job: int
    group: int
    grace_s: float
    why: str = ""


class ForgetGroups(_Message):
    """The service has recorded the end of these groups; reports need not name them any more."""

    job: int
    groups: list[int]


class WatchJoin(_Message):
    """A resize of the job begins: if its restart point still stands after `deadline_s`, kill.

    The application removes the restart point (a file in the job's shared-memory folder) when the
    resize is committed. `deadline_s` of 0 ends the watch.
    """

    job: int
    serial: int
    deadline_s: float


class CancelAccept(_Message):
    """Release a job that waits in Accept on `port` for a group that is dead."""

    job: int
    serial: int
    port: str
    environment: dict[str, str]


class SweepJob(_Message):
    """The job is over: remove its shared memory and forget its groups."""

    job: int


class AgentStop(_Message):
    """Kill whatever still runs, sweep, and end."""


# ---------------------------------------------------------------- commands


class Submission(msgspec.Struct):
    """A job as a user submits it; `output` may hold %{JOB_ID}. Times are seconds.

    `priority` is a number or a name that the service knows, None: what its user has. `queue` "" is
    the service's first. `resources` is what it holds besides processors, by name.
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
    resources: dict[str, int] = {}


class Submit(_Message):
    """Answered by Submitted once the job is durable."""

    submission: Submission


class Submitted(_Message):
    """The job's number."""

    job: int


class Cancel(_Message):
    """Take a job back."""

    job: int


class ListJobs(_Message):
    """Answered by Jobs: `job` alone, or those queued and running, or (`ended`) all."""

    job: int | None = None
    ended: bool = False


class ResizeInfo(msgspec.Struct):
    """One resize of a job in tables; seconds."""

    at: float
    serial: int
    old: int
    new: int
    outcome: str
    reason: str
    start_s: float = 0.0
    join_s: float = 0.0
    plan_s: float = 0.0
    move_s: float = 0.0
    resume_s: float = 0.0
    moved_bytes: int = 0


class JobInfo(msgspec.Struct):
    """A job as tables show it. Times are Unix seconds; `state` is the long name.

    `priority` is the user-assigned one and its queue's; `resources` is what it asks for besides
    processors.
    """

    job: int
    name: str
    user: str
    state: str
    code: str
    requested: int
    max_processors: int | None
    size: int
    walltime_s: float
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    processors: str
    nodes: str
    reason: str
    exit_code: int
    signal: int
    restarts: int
    iteration: int
    iteration_s: float
    sizes: list[tuple[float, int]]
    resizes: list[ResizeInfo]
    allocation: list[tuple[float, str]]
    facts: dict[str, bool | int | float | str]
    output: str
    argv: list[str]
    redirected_at: float | None = None
    queue: str = ""
    priority: float = 0.0
    resources: dict[str, int] = {}


class Jobs(_Message):
    """Answer to ListJobs; `now` is the service's clock."""

    now: float
    jobs: list[JobInfo]


class Explain(_Message):
    """Answered by Explanation: the story of one job."""

    job: int


class Story(msgspec.Struct):
    """One line of a job's story."""

    at: float
    text: str


class Explanation(_Message):
    """The story of one job, oldest first."""

    job: int
    lines: list[Story]


class Wait(_Message):
    """Answered by Jobs (one job) when the job has ended."""

    job: int


class ServerInfo(_Message):
    """Answered by Info."""


class Info(_Message):
    """The service in figures; `resources`: (amount, free) besides processors, by name.

    `unreadable` lists records of the journal that were left out because they cannot be read.
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


class Stop(_Message):
    """End the service; with `kill`, its jobs and agents too (otherwise refused if jobs run)."""

    kill: bool = False


class Done(_Message):
    """It is done, or noted."""


class Failure(_Message):
    """It cannot be done; one sentence says why and how to mend it."""

    message: str


Message: TypeAlias = (
    Hello
    | AtResizePoint
    | JoinPort
    | ResizeReport
    | Facts
    | GroupReady
    | Welcome
    | Proceed
    | Join
    | Leave
    | Connect
    | Abandon
    | AgentHello
    | StartGroup
    | KillGroup
    | ForgetGroups
    | WatchJoin
    | CancelAccept
    | SweepJob
    | AgentStop
    | Submit
    | Submitted
    | Cancel
    | ListJobs
    | Jobs
    | Explain
    | Explanation
    | Wait
    | ServerInfo
    | Info
    | Stop
    | Done
    | Failure
)

_encoder = msgspec.msgpack.Encoder()


class _StartNumbers(msgspec.Struct, tag="StartGroup"):
    job: int
    group: int


_start_decoder = msgspec.msgpack.Decoder(_StartNumbers)
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> list[bytes]:
    """Give the two frames of a message."""
    return [PROTOCOL, _encoder.encode(message)]


def decode(frames: list[bytes]) -> Message:
    """Read a message from its two frames.

    Raises
    ------
    ProtocolError : another version, not two frames, an unknown type or a field of a wrong type.
    """
    if len(frames) != 2 or not frames[0].startswith(b"reshape/"):
        raise ProtocolError(f"not a message of this protocol: {len(frames)} frames")
    if frames[0] != PROTOCOL:
        raise ProtocolError(
            f"the peer speaks {frames[0].decode(errors='replace')!r}, this side speaks "
            f"{PROTOCOL.decode()!r}: use the same release on both sides"
        )
    try:
        return _decoder.decode(frames[1])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"malformed message: {error}") from None


def is_other_release(frames: list[bytes]) -> bool:
    """Whether frames are a message of this protocol in another version."""
    return len(frames) > 0 and frames[0].startswith(b"reshape/") and frames[0] != PROTOCOL


def start_of(frames: list[bytes]) -> tuple[int, int] | None:
    """Job and group that a malformed StartGroup of this version names; None if it names none."""
    if len(frames) != 2 or frames[0] != PROTOCOL:
        return None
    try:
        start = _start_decoder.decode(frames[1])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return start.job, start.group
