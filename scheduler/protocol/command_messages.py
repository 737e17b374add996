"""Messages between the commands and the service."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from reshape.topology import Topology
from reshape.wire.messages import AdministratorCommand, MessageBase, Question, UserCommand

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
        `scheduler.model.requests.conditions` reads it; "": nothing.
    kill_on_invalid : whether it ends when its dependency can never be met.
    script : whether the program runs once, on the first processor, in place of on each processor.
    text : contents of a job script, which are copied; `argv` has its name and its arguments then.
        "": `argv` is run.
    wrapper : program and arguments that start a job script, whose command follows; []: none.
    signal : signal before the end of the walltime, as `scheduler.model.requests.signals` reads it;
        "": none.
    ignored : options of the job script that have no effect; "": none.
    constraint : features of its nodes, as `scheduler.model.requests.nodes` reads them; "": any.
    exclusive : whether it gets whole nodes.
    hook_end : command of the shell that its first node runs when it has ended; "": none.
    array : tasks of an array, as `scheduler.model.requests.task_array` reads them; "": it is none.
    umask : that of the processes and of their output files; None: that of the agent.
    limits : soft resource limits of the processes, by name (`scheduler.node.launching.inherited`).
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


class Submit(UserCommand):
    """Answered by Submitted once the job is durable."""

    submission: Submission


class CheckSubmission(Question):
    """Answered by Done if the submission would be accepted now; nothing is submitted."""

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


class RequestForecast(Question):
    """Run the core forward from its present state; answered by ForecastResult.

    Attributes
    ----------
    of : number of a queued job (`Waiting`); or a job that is not submitted (`Quote`); None: all
        queued jobs (`Starts`).
    horizon_s : time from now at which the forecast ends, seconds; None: it has no end.
    limit_s : seconds that it may take; then it ends with what it has found. None: the longest time
        that the service allows.
    futures, seed : number of forecasts of a job with drawn run times, and the seed of the draws.
    arrivals : whether further jobs are submitted in them, at the rate of the latest ones.
    """

    of: int | Submission | None = None
    horizon_s: float | None = None
    limit_s: float | None = None
    futures: int = 0
    seed: int = 0
    arrivals: bool = False


class ForecastResult(MessageBase):
    """A structure of `scheduler.forecasts` as data."""

    found: Any


class ListJobs(Question):
    """Answered by JobListing: `job` alone, or the queued and running jobs, or all with `ended`.

    The other fields choose among the ended jobs.

    Attributes
    ----------
    live : whether to include the jobs that have not ended.
    steps : whether to include the steps of jobs that have not ended; ended ones are always there.
    since, until : the jobs that ended within these times, Unix seconds.
    user, state, name : the jobs with this user, final state (long name) or name.
    limit : how many ended jobs at most: those that ended last. None: as many as the service allows.
    before : the jobs that ended before the job of this number.
    """

    job: int | None = None
    ended: bool = False
    live: bool = True
    steps: bool = False
    since: float | None = None
    until: float | None = None
    user: str | None = None
    state: str | None = None
    name: str | None = None
    limit: int | None = None
    before: int | None = None


class ResizeInfo(msgspec.Struct):
    """One resize of a job; times in seconds.

    Attributes
    ----------
    at : time of the decision, Unix seconds.
    serial : number of the resize in its job, from 1.
    old, new : sizes before and after it.
    outcome : what has become of it.
    reason : why it was decided, or why it failed.
    start_s : from the decision until the new group has started.
    close_s, join_s, plan_s, move_s, resume_s : parts of the pause: closing what depends on the
        size, joining or leaving, planning the moves, moving the data, and continuing.
    moved_bytes : bytes that moved between processes.
    spare_bytes : memory that the processes keep beside the data.
    """

    at: float
    serial: int
    old: int
    new: int
    outcome: str
    reason: str
    start_s: float = 0.0
    close_s: float = 0.0
    join_s: float = 0.0
    plan_s: float = 0.0
    move_s: float = 0.0
    resume_s: float = 0.0
    moved_bytes: int = 0
    spare_bytes: int = 0

    @property
    def pause_s(self) -> float:
        """Pause of the job, seconds."""
        return self.close_s + self.join_s + self.plan_s + self.move_s + self.resume_s


class RankPlace(msgspec.Struct):
    """Where a rank of a group is.

    Attributes
    ----------
    group, rank : number of the group in its job, and of the rank in it.
    node : name of the node.
    core : number of its processor on the node.
    cpus : CPUs of the host to which it is bound; empty: it is not bound.
    """

    group: int
    rank: int
    node: str
    core: int
    cpus: list[int] = []


class JobInfo(msgspec.Struct):
    """A job as tables show it; times are Unix seconds.

    Attributes
    ----------
    job : its number.
    name, user, queue : labels of its submission.
    state, code : long and short name of the job state.
    requested, min_processors, max_processors : requested, smallest and largest size; None: it has
        no other one.
    size : present number of processors; 0 if it holds none.
    walltime_s : limit of the run time; longer than requested if it has had fewer processors.
    submitted_at, started_at, ended_at : None: not yet.
    processors, nodes : numbers of its processors, and names of its nodes, as intervals.
    reason : why it waits, or how it has ended.
    exit_code, signal : of its end; 0 before.
    restarts : how often it was started again after its processes died in a resize.
    iteration, iteration_s : iterations that it has done, and the mean time of one on its size.
    sizes : (time, size) of each change.
    resizes : its resizes, the oldest first.
    allocation : (time, numbers of processors) of each change.
    facts : what the program has reported, by name.
    output : path of the file for its standard output.
    argv : program and arguments.
    redirected_at : time at which it was ended for redirection; None: it was not.
    priority : sum of the user-assigned priority and that of the queue.
    resources : requested amounts of resources besides processors.
    shared : declared demand of each process for the shared resources of its node.
    processor_seconds : sum over time of the processors that it has held, those of starting and
        leaving groups included.
    processor_seconds_by_size : the same as (size, processor-seconds), by the size on which the job
        computed meanwhile.
    ranks : place of each rank, by group; empty if the job does not hold processors.
    unbound : why ranks are not bound to CPUs, by node, where they could be.
    resize_count, pause_s : committed resizes, and the time for which they stopped the job, seconds.
    max_memory_mib : largest resident memory of its processes together, MiB; 0 if not measured.
    requeues : how often it went back to the queue because its processes died or never began.
    last_lines : last lines of its output, without characters that are not printable, if it failed
        or was ended.
    failed_resizes : the resizes that failed in succession, with the reason of the last one; empty
        if there are none.
    partition : name of its partition; "" if the service has none.
    iterations : number of all iterations, as far as it is known; 0 if it is not.
    label : how users write a task, 17_4, an array with tasks to come, 17_[5-9], and a step, 17.0;
        "" for others, which are written as their number.
    array, pending_tasks, held_tasks, held_by_admin : of an array, the indices of its tasks, of
        those that are to come, and of those among them that are held, and that an administrator
        holds, as `TaskArray` reads them; "": none.
    error : path of the file for its standard error; "": that of its output.
    ignored : options of its script that have no effect; "": none.
    step_of : number of the job whose script has started it as a step; 0: it is no step.
    steps : index and job number of each step; only in the answer to a question for one job.
    on_nodes : features of its nodes, and whether it gets them whole; "": any part of any node.
    late : since when it had no resize point, if that is unusual, and where its ranks are; only in
        the answer to a question for one job.
    min_processors : of its smallest configuration; None: the one on which it starts.
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
    unbound: dict[str, str] = {}
    requeues: int = 0
    shared: dict[str, int] = {}
    last_lines: str = ""
    failed_resizes: str = ""
    partition: str = ""
    iterations: int = 0
    label: str = ""
    error: str = ""
    ignored: str = ""
    step_of: int = 0
    steps: list[tuple[int, int]] = []
    on_nodes: str = ""
    array: str = ""
    pending_tasks: str = ""
    held_tasks: str = ""
    held_by_admin: str = ""
    late: str = ""
    min_processors: int | None = None


class JobListing(MessageBase, tag="Jobs"):
    """Answer to ListJobs, by job number; `now` is the wall clock of the service.

    `before` is set if more ended jobs match: ask for those that ended before the job of this
    number.
    """

    now: float
    jobs: list[JobInfo]
    before: int | None = None


class Explain(Question):
    """Answered by Explanation."""

    job: int


class Story(msgspec.Struct, omit_defaults=True):
    """One line of an explanation.

    Attributes
    ----------
    at : time, Unix seconds.
    text : what happened.
    rule : rule of the policy that decided; "": there was no decision.
    facts : the numbers behind the decision, by name.
    """

    at: float
    text: str
    rule: str = ""
    facts: dict[str, int | float | str] = {}


class Explanation(MessageBase):
    """What happened to a job and why, oldest first.

    Attributes
    ----------
    present : number of the last lines, which say how the job is now.
    """

    job: int
    lines: list[Story]
    present: int = 0


class Wait(Question):
    """Answered by JobListing (one job) when the job has ended."""

    job: int


class ServerInfo(Question):
    """Answered by Info."""

    senders: ClassVar = Question.senders | {"agent"}


class PartitionInfo(msgspec.Struct):
    """A partition as tables show it.

    Attributes
    ----------
    name, scenario : of the partition.
    processors, free : of its nodes that are up; those that no job holds.
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
    processors, free : of the nodes that are up; those that no job holds.
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


class Stop(AdministratorCommand):
    """End the service; with `kill`, its jobs and agents too (otherwise refused if jobs run)."""

    kill: bool = False

    def log_text(self) -> str:
        """Say what the message changes."""
        return f"the service is stopped{', with its jobs' * self.kill}"


CommandMessage: TypeAlias = (
    Submit
    | CheckSubmission
    | Submitted
    | RequestForecast
    | ForecastResult
    | ListJobs
    | JobListing
    | Explain
    | Explanation
    | Wait
    | ServerInfo
    | Info
    | Stop
)
