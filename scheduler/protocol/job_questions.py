"""Questions about jobs and their answers: lists, explanations, waits and forecasts."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from reshape.wire.messages import MessageBase, Question, ResizeTimes
from scheduler.protocol.job_requests import Submission


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


class ResizeInfo(ResizeTimes, frozen=True):
    """One resize of a job, with its times.

    Attributes
    ----------
    at : time of the decision, Unix seconds.
    serial : number of the resize in its job, from 1.
    old, new : sizes before and after it.
    outcome : what has become of it.
    reason : why it was decided, or why it failed.
    """

    at: float
    serial: int
    old: int
    new: int
    outcome: str
    reason: str


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
    priority : sum of the user-assigned priority and the priority of the queue.
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
    iterations : number of all iterations; 0 if it is not known.
    label : how users write a task, 17_4, an array with tasks to come, 17_[5-9], and a step, 17.0;
        "" for others, which are written as their number.
    array, pending_tasks, held_tasks, held_by_admin : of an array, the indices of its tasks, of
        those that are to come, and of those among them that are held, and that an administrator
        holds, as `TaskArray` reads them; "": none.
    error : path of the file for its standard error; "": as its output.
    ignored : options of its script that have no effect; "": none.
    step_of : number of the job whose script has started it as a step; 0: it is no step.
    steps : index and job number of each step; only in the answer to a question for one job.
    on_nodes : features of its nodes, and whether it gets them whole; "": any part of any node.
    late : since when it had no resize point, if that is unusual, and where its ranks are; only in
        the answer to a question for one job.
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
    """Answered by JobListing (one job) when the job has ended.

    A peer repeats it every few minutes at least, so that the service knows that it still waits.
    """

    job: int


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


JobQuestion: TypeAlias = (
    ListJobs | JobListing | Explain | Explanation | Wait | RequestForecast | ForecastResult
)
