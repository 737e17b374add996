"""Messages between the agents of nodes and the service."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec

from reshape.wire.access import AccessFile
from reshape.wire.messages import MessageBase

# ---------------------------------------------------------------- agent -> service

#: What the start of a group failed for: a reason of the job or of the node, or an order to end the
#: group before its program began; "": not known.
Fault: TypeAlias = Literal["", "job", "node", "order"]


class GroupEnd(msgspec.Struct, kw_only=True):
    """How a group has ended on a node.

    Attributes
    ----------
    why : reason of its end.
    began : whether the program of a rank on the node has begun.
    rank : rank on the node that failed first, with `exit_code` or `signal`; -1: no rank failed by
        itself, and they are those of mpiexec.
    fault : see `Fault`, of a group with a rank that could not be started.
    """

    exit_code: int = 0
    signal: int = 0
    why: str = ""
    began: bool = True
    rank: int = -1
    fault: Fault = ""

    @property
    def has_failed(self) -> bool:
        """Whether it ended with an exit code other than 0 or by a signal."""
        return bool(self.exit_code or self.signal)


class GroupStatus(GroupEnd):
    """State of a group on a node: alive, or how it ended when all its processes are gone.

    `pid` is the process of the group's mpiexec. `cpus` has the CPUs to which its ranks on the node
    were bound, by rank. `proxies` has the commands that start its processes
    on its further hosts, as soon as its mpiexec has named them.

    Attributes
    ----------
    output_end : end of the output of a group that failed or was ended.
    signalled : serial of the last signal that it was sent; 0: none.
    """

    job: int
    group: int
    alive: bool
    pid: int = 0
    proxies: list[list[str]] = []
    cpus: dict[int, list[int]] = {}
    output_end: str = ""
    signalled: int = 0


#: An amount of memory; amounts of all nodes can be added.
Mebibytes = Annotated[int, msgspec.Meta(ge=0, le=2**40)]


class RanksAt(msgspec.Struct):
    """Ranks of a job on a node that are at the same place of its program.

    Attributes
    ----------
    loop : number of the loop, from 0.
    iteration : number of the iteration of the loop; -1: they have left the loop.
    at_point : whether they have finished it, and are at the resize point after it.
    ranks : first and last rank of each interval.
    idle_s : time since the last of them has come to a resize point or left the loop, seconds.
    """

    loop: int
    iteration: int
    at_point: bool
    ranks: list[tuple[int, int]]
    idle_s: float


class AgentHello(MessageBase):
    """The state of a node, sent at every change and once a second as a heartbeat.

    It repeats how groups ended until ForgetGroups or SweepJob, so that a service that restarts
    receives it too. `folders` lists all jobs that have shared memory on the node, `restart_points`
    those of them that have a restart point, which means that they are within a resize.

    Attributes
    ----------
    host : name of the host of the agent; empty: the host of the service.
    incarnation : identifies this process among all agents that the node ever had, on any host.
    address : address under which other hosts of the service reach this host.
    ends : whether the agent ends after this report.
    keeps_memory : whether it then leaves the shared memory of jobs to the next agent of the node.
    max_memory_mib : largest memory of the processes of each job on the node together, MiB.
    cores : CPUs of the host that the agent may use, by core.
    probe : number of the last `ProbeNode` that was carried out; 0: none.
    probe_failure : why the node cannot start groups, as that has found; empty if it can.
    positions : where the ranks are of the jobs that LocateRanks has named in the last minute.
    """

    senders: ClassVar = frozenset({"agent"})
    kind: ClassVar = "report"
    supersedes: ClassVar = True
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
    keeps_memory: bool = False
    max_memory_mib: dict[int, Mebibytes] = {}
    cores: list[list[int]] = []
    probe: int = 0
    probe_failure: str = ""
    positions: dict[int, list[RanksAt]] = {}


class AgentArrival(MessageBase):
    """The agent of another host asks how to serve its node; answered by AgentSettings."""

    senders: ClassVar = frozenset({"agent"})
    node: str
    host: str
    release: str


class AgentSettings(MessageBase):
    """How an agent on another host serves its node.

    Attributes
    ----------
    memory : name of the folder in /dev/shm for the shared memory of jobs (`JobFolders.name`).
    heartbeat_s : interval of reports without a change, seconds.
    job_access : what the processes of jobs need to reach the service.
    """

    memory: str
    heartbeat_s: float
    job_access: AccessFile


# ---------------------------------------------------------------- service -> agent


class JobBounds(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the processes of a job run and write, and what they inherit.

    Attributes
    ----------
    cwd : working directory; "": that of the agent.
    output, error : files for standard output and error. "": the output is that of the agent, and
        errors go where the output goes.
    truncate : whether these files are emptied; otherwise the output is appended to them.
    own_folders : folders of the service; neither these files nor `cwd` may be there.
    umask : None: that of the agent.
    limits : soft resource limits by name (`scheduler.node.launching.job_bounds`); the others are
        those of the agent.
    """

    cwd: str = ""
    output: str = ""
    error: str = ""
    truncate: bool = False
    own_folders: list[str] = []
    umask: int | None = None
    limits: dict[str, int] = {}


class StartGroup(MessageBase):
    """Start `size` processes of `argv` under one mpiexec; ignored if the group exists.

    Attributes
    ----------
    environment : the agent adds paths in shared memory: that of the job as RESHAPE_SHM, and that of
        the access file as RESHAPE_SERVER if this is empty.
    hosts : names of the hosts of a group, that of the agent first; empty: all processes are there.
    rank_hosts : number of the host of each rank, if there are several.
    address : address under which the other hosts reach this one.
    cpus : CPUs of the ranks on this host, by rank; empty: they are not bound.
    script : whether `argv` runs once, without an mpiexec, and `size` is 1. It runs on the first of
        `hosts`.
    text : contents of a script that the agent copies, for which `argv` has the name and arguments;
        "": it runs `argv`.
    wrapper : program and arguments that start a script, whose command follows; []: none.
    is_proxy : whether the mpiexec of the group is on another host, and `argv` starts its processes
        on this one, in the environment of the agent.
    """

    job: int
    group: int
    size: int
    argv: list[str]
    bounds: JobBounds
    environment: dict[str, str] = {}
    hosts: list[str] = []
    rank_hosts: list[int] = []
    address: str = ""
    cpus: dict[int, list[int]] = {}
    script: bool = False
    text: str = ""
    wrapper: list[str] = []
    is_proxy: bool = False


class KillGroup(MessageBase):
    """End all processes of a group: SIGTERM, and SIGKILL `grace_s` seconds later (0: at once)."""

    job: int
    group: int
    grace_s: float
    why: str = ""


class SignalGroup(MessageBase):
    """Send the signal `number` to the programs of a group, as soon as they have begun.

    Attributes
    ----------
    serial : of the signal; ignored if the group has had it, or a later one.
    to_script : whether the script of the group gets it, and none of the processes that it started.
    """

    job: int
    group: int
    serial: int
    number: int
    to_script: bool = False


class LocateRanks(MessageBase):
    """The job is late: report where its ranks on the node are, for a minute."""

    job: int


class ForgetGroups(MessageBase):
    """The service has recorded the end of these groups; reports need not name them any more."""

    job: int
    groups: list[int]


class ReportEnd(MessageBase):
    """Report how a group has ended that the journal has, and the reports do not.

    The service asks for it if it has lost a part of its journal. An agent that does not know the
    group reports that it was killed.

    Attributes
    ----------
    token : that of the job, which another job of the same number does not have.
    """

    job: int
    group: int
    token: str


class WatchJoin(MessageBase):
    """A resize of the job begins: kill the job if its restart point exists for too long.

    The application writes the restart point when the program has closed what depends on the size,
    and removes it when the resize is committed.

    Attributes
    ----------
    deadline_s : time for which the restart point may exist, without the transfer of `app.state`.
    bytes_per_s : lowest acceptable rate of that transfer. The restart point holds the pickled
        values, so that its size / rate is added to `deadline_s`.
    """

    job: int
    serial: int
    deadline_s: float
    bytes_per_s: float


class ProbeNode(MessageBase):
    """Find out whether the node can start groups: room in shared memory, an idle program.

    Attributes
    ----------
    serial : number that the next report names as its `probe`.
    processes : number of MPI processes for which there has to be room.
    """

    serial: int
    processes: int


class CancelAccept(MessageBase):
    """Release a job that is blocked in Accept on `port` for a dead group."""

    job: int
    serial: int
    port: str
    environment: dict[str, str]


class RunHook(MessageBase):
    """The job has ended: run a command of the shell, in the directory of the job.

    It comes before SweepJob, and is ignored if the groups of the job are forgotten.
    """

    job: int
    command: str
    environment: dict[str, str]
    bounds: JobBounds


class SweepJob(MessageBase):
    """The job has ended: remove its shared memory and forget its groups."""

    job: int


class AgentStop(MessageBase):
    """Kill all groups, remove their shared memory, and end.

    Attributes
    ----------
    is_replaced : whether another agent of the node has ended the groups, and uses the shared memory
        on this host.
    """

    is_replaced: bool = False


AgentMessage: TypeAlias = (
    AgentHello
    | AgentArrival
    | AgentSettings
    | StartGroup
    | KillGroup
    | SignalGroup
    | LocateRanks
    | ForgetGroups
    | ReportEnd
    | WatchJoin
    | ProbeNode
    | CancelAccept
    | RunHook
    | SweepJob
    | AgentStop
)
