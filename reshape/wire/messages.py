"""The messages between applications, commands, agents and the service.

The `type` of a message names its class (:mod:`reshape.wire.codec` encodes it). A request has an
`id`, which its answer repeats. The answer to a peer of another version, and to an unknown or
malformed message, is :class:`Failure`.

    from an application       Hello, AtResizePoint, JoinPort, ResizeReport, Facts
    from a joining group      GroupReady, repeated until the answer is Connect or Abandon
    from a node agent         AgentArrival (from other hosts), AgentHello, at each change and as a
                              heartbeat
    to a node agent           StartGroup, StartProxy, KillGroup, WatchJoin, CancelAccept, SweepJob,
                              AgentStop
    from commands             Submit, RequestQuote, ForecastStarts, ForecastJob, Cancel, ListJobs,
                              Explain, Wait, ServerInfo, ListNodes, ChangeNode, Stop
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from reshape.topology import Topology
from reshape.wire.access_file import AccessFile
from reshape.wire.outcome import ResizeTimes

Placement: TypeAlias = Literal["block", "cyclic"]

#: What happens to an output file that exists: it is emptied, or appended to.
OpenMode: TypeAlias = Literal["truncate", "append"]


class _Message(msgspec.Struct, tag=True, kw_only=True):
    """Base of all messages; `id` pairs an answer with its request."""

    id: int = 0


# ---------------------------------------------------------------- application -> service


class Hello(_Message):
    """The first group of a job, or a restarted one, has started on `size` processes."""

    job: int
    group: int
    token: str
    size: int
    pid: int
    topology: Topology | None = None


class ResizeReport(_Message):
    """The application has committed a resize (`ok`), or rolled it back for the reason `why`."""

    job: int
    token: str
    serial: int
    ok: bool
    why: str = ""
    times: ResizeTimes = ResizeTimes()


class AtResizePoint(_Message):
    """The job is at a resize point; answered by Proceed, Join or Leave.

    Attributes
    ----------
    epoch : serial number of the last committed resize (0: none). It shows the service whether a
        resize was committed, even if the report was lost.
    registered_bytes : data that a resize has to move, over all processes; it determines how long a
        resize may take.
    iteration : number of finished iterations.
    iteration_s : mean time of the iterations since the last request (:mod:`reshape.wire.pace`).
    iterations : number of all iterations of the job; 0 if not known.
    """

    job: int
    token: str
    epoch: int
    size: int
    registered_bytes: int
    iteration: int
    iteration_s: float
    topology: Topology | None = None
    iterations: int = 0


class JoinPort(_Message):
    """The job has opened an MPI port, on which it is about to accept the group."""

    job: int
    token: str
    serial: int
    port: str


class Facts(_Message):
    """Facts of the program's result, such as `verified` or `residual`."""

    job: int
    token: str
    facts: dict[str, bool | int | float | str]


class GroupReady(_Message):
    """A joining group has started and registered its arrays, and waits for a port."""

    job: int
    group: int
    token: str
    size: int
    pid: int


# ---------------------------------------------------------------- service -> application


class Welcome(_Message):
    """Answer to Hello; `topology` is that of the submission, None if it has none."""

    topology: Topology | None = None
    verify: bool = False


class Proceed(_Message):
    """Continue with the next iteration."""


class Join(_Message):
    """Expand by this group now: open a port, send JoinPort, accept, merge, move the data."""

    serial: int
    group: int
    size: int


class Leave(_Message):
    """Contract by these groups now: move their data to the others, commit; end the groups."""

    serial: int
    groups: list[int]


class Connect(_Message):
    """A joining group must connect to this port."""

    port: str


class Abandon(_Message):
    """A joining group is not needed any more and must end."""

    why: str


# ---------------------------------------------------------------- agent -> service


class GroupStatus(msgspec.Struct):
    """State of a group on a node: alive, or how it ended when all its processes are gone.

    `pid` is the process of the group's mpiexec. `proxies` has the commands that start its processes
    on its further hosts, as soon as its mpiexec has named them.
    """

    job: int
    group: int
    alive: bool
    pid: int = 0
    exit_code: int = 0
    signal: int = 0
    why: str = ""
    proxies: list[list[str]] = []


class AgentHello(_Message):
    """The state of a node, sent at every change and once a second as a heartbeat.

    It repeats how groups ended until ForgetGroups or SweepJob, so that a service that restarts
    receives it too. `folders` lists all jobs that have shared memory on the node, `restart_points`
    those of them that have a restart point, which means that they are within a resize.

    Attributes
    ----------
    host : name of the host of the agent; empty: the host of the service.
    incarnation : identifies this process among all agents of the node, on any host; empty: `pid`
        does.
    address : address under which other hosts of the service reach this host.
    ends : whether the agent ends after this report.
    max_memory_mib : largest memory of the processes of each job on the node together, MiB.
    """

    node: str
    pid: int
    secret: str
    groups: list[GroupStatus]
    restart_points: list[int]
    folders: list[int] = []
    host: str = ""
    incarnation: str = ""
    address: str = ""
    ends: bool = False
    max_memory_mib: dict[int, int] = {}


class AgentArrival(_Message):
    """The agent of another host asks how to serve its node; answered by AgentSettings."""

    node: str
    host: str
    release: str


class AgentSettings(_Message):
    """How an agent on another host serves its node.

    Attributes
    ----------
    memory : name of the folder in /dev/shm for the shared memory of jobs, the same on all hosts.
    heartbeat_s : interval of reports without a change, seconds.
    job_access : what the processes of jobs need to reach the service.
    """

    memory: str
    heartbeat_s: float
    job_access: AccessFile


# ---------------------------------------------------------------- service -> agent


class StartGroup(_Message):
    """Start `size` processes of `argv` under one mpiexec; ignored if the group exists.

    Attributes
    ----------
    hosts : names of the hosts of a group, that of the agent first; empty: all processes are there.
    rank_hosts : number of the host of each rank, if there are several.
    address : address under which the other hosts reach this one.
    truncate : whether the output file is emptied; otherwise the output is appended to it.
    """

    job: int
    group: int
    size: int
    argv: list[str]
    cwd: str
    environment: dict[str, str]
    output: str
    hosts: list[str] = []
    rank_hosts: list[int] = []
    address: str = ""
    truncate: bool = False


class StartProxy(_Message):
    """Start the processes of a group on this host, whose mpiexec is on another one."""

    job: int
    group: int
    size: int
    command: list[str]
    cwd: str


class KillGroup(_Message):
    """End all processes of a group: SIGTERM, and SIGKILL `grace_s` seconds later (0: at once)."""

    job: int
    group: int
    grace_s: float
    why: str = ""


class ForgetGroups(_Message):
    """The service has recorded the end of these groups; reports need not name them any more."""

    job: int
    groups: list[int]


class WatchJoin(_Message):
    """A resize of the job begins: kill the job if its restart point exists after `deadline_s`.

    The application removes the restart point when the resize is committed. A `deadline_s` of 0 ends
    the watch.
    """

    job: int
    serial: int
    deadline_s: float


class CancelAccept(_Message):
    """Release a job that is blocked in Accept on `port` for a dead group."""

    job: int
    serial: int
    port: str
    environment: dict[str, str]


class SweepJob(_Message):
    """The job has ended: remove its shared memory and forget its groups."""

    job: int


class AgentStop(_Message):
    """Kill all groups, remove their shared memory, and end."""


# ---------------------------------------------------------------- commands


class Submission(msgspec.Struct):
    """A job as a user submits it.

    Attributes
    ----------
    walltime_s : run time limit, seconds.
    priority : a number or a name of the service's configuration; None: the user's default.
    user : set by the service, from the connection on which the submission arrives.
    queue : name of a queue; "": the first of the service.
    placement : ranks of a group on several hosts: consecutive on each host, or dealt out in turn.
    output : path of the output file; it may contain %{JOB_ID}.
    open_mode : whether the first start of the job empties an output file that exists, or appends to
        it; further groups and restarts of the job always append.
    resources : amounts of resources besides processors, by name.
    requeue : whether the job goes back to the queue when its processes die.
    performance : performance model, as `reshape.speedup.named` reads it; "": none.
    shared : what each process demands of the shared resources of its node, by name.
    key : submission key, a name that the client uses once; "": none. A submission with the key of
        an earlier one of the same user creates no job and is answered with the earlier one.
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
    requeue: bool = False
    performance: str = ""
    shared: dict[str, int] = {}


class Submit(_Message):
    """Answered by Submitted once the job is durable."""

    submission: Submission


class Submitted(_Message):
    """Number of the new job."""

    job: int


class ForecastStarts(_Message):
    """Forecast all queued jobs; answered by ForecastResult, with a list of `JobForecast`.

    Attributes
    ----------
    horizon_s : the forecast ends so many seconds from now; None: it has no end.
    """

    horizon_s: float | None = None


class ForecastJob(_Message):
    """Forecast a queued job; answered by ForecastResult, with a `Waiting`.

    Attributes
    ----------
    futures, seed : number of forecasts with drawn run times, and the seed of the draws.
    arrivals : whether further jobs are submitted in them, at the rate of the latest ones.
    """

    job: int
    horizon_s: float | None = None
    futures: int = 0
    seed: int = 0
    arrivals: bool = False


class RequestQuote(_Message):
    """Forecast a job that is not submitted; answered by ForecastResult, with a `Quote`.

    The other fields are those of `ForecastJob`.
    """

    submission: Submission
    horizon_s: float | None = None
    futures: int = 0
    seed: int = 0
    arrivals: bool = False


class ForecastResult(_Message):
    """A structure of `scheduler.forecasts` as data."""

    found: Any


class Cancel(_Message):
    """Cancel a job."""

    job: int


class ListJobs(_Message):
    """Answered by Jobs: `job` alone, or the queued and running jobs, or all with `ended`.

    The other fields choose among the ended jobs.

    Attributes
    ----------
    live : whether to include the jobs that have not ended.
    since, until : the jobs that ended within these times, Unix seconds.
    user, state, name : the jobs with this user, final state (long name) or name.
    limit : how many ended jobs at most: those that ended last. None: as many as the service allows.
    before : the jobs that ended before the job of this number.
    """

    job: int | None = None
    ended: bool = False
    live: bool = True
    since: float | None = None
    until: float | None = None
    user: str | None = None
    state: str | None = None
    name: str | None = None
    limit: int | None = None
    before: int | None = None


class ResizeInfo(msgspec.Struct):
    """One resize of a job; times in seconds."""

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


class RankPlace(msgspec.Struct):
    """Where a rank of a group is: its node, and the number of its processor on that node."""

    group: int
    rank: int
    node: str
    core: int


class JobInfo(msgspec.Struct):
    """A job as tables show it; times are Unix seconds.

    Attributes
    ----------
    state, code : long and short name of the job state.
    priority : sum of the user-assigned priority and that of the queue.
    resources : requested amounts of resources besides processors.
    shared : declared demand of each process for the shared resources of its node.
    processor_seconds : sum over time of the processors that it has held, those of starting and
        leaving groups included.
    processor_seconds_by_size : the same as (size, processor-seconds), by the size on which the job
        computed meanwhile.
    ranks : place of each rank, by group; empty if the job does not hold processors.
    resize_count, pause_s : committed resizes, and the time for which they stopped the job, seconds.
    max_memory_mib : largest resident memory of its processes together, MiB; 0 if not measured.
    requeues : how often it went back to the queue because its processes died.
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
    processor_seconds: float = 0.0
    processor_seconds_by_size: list[tuple[int, float]] = []
    resize_count: int = 0
    pause_s: float = 0.0
    max_memory_mib: int = 0
    ranks: list[RankPlace] = []
    requeues: int = 0
    shared: dict[str, int] = {}


class Jobs(_Message):
    """Answer to ListJobs, by job number; `now` is the service's clock.

    `before` is set if more ended jobs match: ask for those that ended before the job of this
    number.
    """

    now: float
    jobs: list[JobInfo]
    before: int | None = None


class Explain(_Message):
    """Answered by Explanation."""

    job: int


class Story(msgspec.Struct):
    """One line of an explanation; `at` in Unix seconds."""

    at: float
    text: str


class Explanation(_Message):
    """What happened to a job and why, oldest first."""

    job: int
    lines: list[Story]


class Wait(_Message):
    """Answered by Jobs (one job) when the job has ended."""

    job: int


class ServerInfo(_Message):
    """Answered by Info."""


class Info(_Message):
    """State of the service.

    Attributes
    ----------
    resources : (amount, free) of resources besides processors, by name.
    shared : capacity of each node for resources that its processes share, by name.
    awaited : nodes whose agents the service starts and that have not reported, each with the fault
        of the last start, if any.
    unreadable : records of the journal that the service ignores because it cannot read them.
    refused : number of refused connections and messages by kind: "connection" (no or broken
        handshake), "key" (unknown, revoked or expired), "message" (malformed or too large),
        "permission".
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


class ListNodes(_Message):
    """Answered by Nodes."""


class NodeInfo(msgspec.Struct):
    """A node as tables show it.

    Attributes
    ----------
    host : name of the host of its agent; empty: that of the service, or not known.
    allocated : processors that jobs hold.
    state : idle, mix, alloc, drng, drain or down, as in sinfo.
    jobs : numbers of the jobs that hold processors of the node.
    reason : why it drains, or why its agent could not be started.
    """

    name: str
    host: str
    processors: int
    allocated: int
    state: str
    launcher: str
    jobs: list[int]
    reason: str = ""


class Nodes(_Message):
    """Answer to ListNodes, in the order of the configuration."""

    nodes: list[NodeInfo]


class ChangeNode(_Message):
    """Let a node drain, for a reason, or resume it; answered by Done."""

    node: str
    drains: bool
    why: str = ""


class Stop(_Message):
    """End the service; with `kill`, its jobs and agents too (otherwise refused if jobs run)."""

    kill: bool = False


class Done(_Message):
    """The request is done, or recorded."""


class Failure(_Message):
    """The request is refused; one sentence says why, and how to correct it."""

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
    | AgentArrival
    | AgentSettings
    | StartGroup
    | StartProxy
    | KillGroup
    | ForgetGroups
    | WatchJoin
    | CancelAccept
    | SweepJob
    | AgentStop
    | Submit
    | Submitted
    | ForecastStarts
    | ForecastJob
    | RequestQuote
    | ForecastResult
    | Cancel
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
    | Stop
    | Done
    | Failure
)
