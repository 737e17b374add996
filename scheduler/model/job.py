"""Jobs: their states, the legal transitions, and the record that the core keeps.

                      +------------------------------- ResizeFailed(restart) ----------------+
                      v                                                                      |
    PENDING ------> STARTING ------> RUNNING <------> EXPANDING | CONTRACTING ---------------+
       |               |                |                      |
       |               +-------+--------+----------------------+
       v                       v
    CANCELLED              COMPLETING -----> COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL
                               |
    PENDING (redirected) <-----+

A job in COMPLETING has been ordered to end and still holds its processors. A job that ends in order
to be redirected then becomes PENDING again. So does a job with `requeue` whose processes died, from
any state in which it holds processors, and a job whose program could not be started. A
PENDING job is in the queue if it is eligible (`scheduler.model.requests`). The names
are those of Slurm.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from math import inf
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from reshape.speedup import speedup_by
from reshape.topology import SizeBounds, Topology
from scheduler.model.arrays import TasksToCome
from scheduler.model.events import JobEnded, JobSpec, JobSubmitted
from scheduler.model.groups import leaving_groups
from scheduler.model.history import History
from scheduler.model.intervals import count
from scheduler.model.orders import Continue, Reason, Resize, Start
from scheduler.model.procset import ProcSet
from scheduler.model.requests import Conditions, SentSignal
from scheduler.model.resources import Quantity


class JobState(Enum):
    """State of a job; the value is Slurm's short code."""

    PENDING = "PD"
    STARTING = "CF"
    RUNNING = "R"
    EXPANDING = "RX"
    CONTRACTING = "RC"
    COMPLETING = "CG"
    COMPLETED = "CD"
    FAILED = "F"
    CANCELLED = "CA"
    TIMEOUT = "TO"
    NODE_FAIL = "NF"

    __hash__ = object.__hash__  # members are singletons; the hash of Enum is slow


S = JobState
#: States of every job, for hot paths: looking up a member of an Enum is slow.
PENDING: Final = S.PENDING
STARTING: Final = S.STARTING
COMPLETED: Final = S.COMPLETED
#: Classes for hot paths: compiled code looks up an imported name each time, and no constant.
JOB_ENDED: Final = JobEnded
JOB_SUBMITTED: Final = JobSubmitted
START: Final = Start
CONTINUE: Final = Continue
REASON: Final = Reason
FINAL = frozenset({S.COMPLETED, S.FAILED, S.CANCELLED, S.TIMEOUT, S.NODE_FAIL})
RESIZING = frozenset({S.EXPANDING, S.CONTRACTING})
#: States in which the application computes (an expansion starts its group in the background).
ACTIVE = frozenset({S.RUNNING}) | RESIZING
#: Sort key of a job in a queue: the key of the queue order, then the job number.
QueuePosition: TypeAlias = Any
NO_BOUNDS: Final = SizeBounds()
_ENDINGS = FINAL | {S.COMPLETING}

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    S.PENDING: frozenset({S.STARTING, S.CANCELLED}),
    S.STARTING: frozenset({S.RUNNING, S.PENDING}) | _ENDINGS,
    S.RUNNING: RESIZING | {S.PENDING} | _ENDINGS,
    S.EXPANDING: frozenset({S.RUNNING, S.STARTING, S.PENDING}) | _ENDINGS,
    S.CONTRACTING: frozenset({S.RUNNING, S.STARTING, S.PENDING}) | _ENDINGS,
    S.COMPLETING: FINAL | {S.PENDING},
    **dict.fromkeys(FINAL, frozenset[JobState]()),
}


@lru_cache(maxsize=4096)
def sizes_of(topology: Topology | None, request: int, maximum: int, minimum: int) -> Sequence[int]:
    """`Topology.valid_sizes`, cached; empty if a job cannot start; None: any size is valid."""
    try:
        return (topology or Topology()).valid_sizes(request, maximum, minimum)
    except ValueError:
        return ()


#: Whether the latest requests are plain, by the identity of their `JobSpec`, which is kept alive.
_PLAIN: Final[dict[int, tuple[JobSpec, bool]]] = {}
_MOST_REQUESTS: Final = 4096


def is_plain(spec: JobSpec) -> bool:
    """Whether a request demands processors for a time and nothing else.

    The job states no other sizes, may run on any processors of the first partition, and depends on
    nothing. Many jobs have one request, so that the answer is kept.
    """
    cached = _PLAIN.get(id(spec))
    if cached is None:
        if len(_PLAIN) >= _MOST_REQUESTS:
            _PLAIN.clear()
        cached = _PLAIN[id(spec)] = (
            spec,
            not (
                spec.max_processors is not None
                or spec.min_processors is not None
                or spec.resources
                or spec.is_placed
                or spec.partition
                or spec.topology is not None
                or spec.conditions is not None
                or spec.array is not None
                or spec.task_of is not None
                or spec.step_of is not None
                or spec.end_signal is not None
            ),
        )
    return cached[1]


class SizeLimits:
    """What follows from the request, the topology and the minimum of a job.

    Attributes
    ----------
    largest : largest size by the request.
    valid_sizes : as of `Job`.
    smallest : the first of these, if it is below the request; otherwise the request.
    """

    def __init__(self, spec: JobSpec, topology: Topology | None, minimum: int) -> None:
        self.spec, self.topology, self.minimum = spec, topology, minimum
        self.largest = spec.largest
        least = min(minimum or spec.processors, spec.processors)
        sizes = sizes_of(topology, spec.processors, spec.largest, least)
        self.valid_sizes = sizes
        self.count = len(sizes)
        self.smallest = min(sizes[0], spec.processors) if sizes else spec.processors
        #: Of a range, which has neither to be searched nor to make an object of each size.
        self._first, self._step = 0, 0
        if isinstance(sizes, range):
            self._first, self._step = sizes.start, sizes.step

    def below(self, size: int) -> int:
        """Count the valid sizes below a size."""
        if not self._step:
            return bisect_left(self.valid_sizes, size)
        return max(0, min(self.count, -((self._first - size) // self._step)))

    def at(self, place: int) -> int:
        """Return the valid size at a place, from 0 to `count` - 1."""
        return self._first + place * self._step if self._step else self.valid_sizes[place]


class Job:
    """A job. Only the core changes it; policies read it (`scheduler.model.job_view`).

    Fields that few jobs use are class attributes until they are set: a simulation makes a million
    jobs.

    Attributes
    ----------
    id : job number.
    spec, is_plain : request of the user, and whether it is plain; see `is_plain`.
    state : job state.
    topology : rule for the valid sizes; None: it is not known.
    submitted_at, started_at, ended_at : times, s; None: not yet.
    processors : processors of its starting configuration: as in its `spec`, or fewer if it is
        malleable and has started on fewer.
    minimum : smallest size by its request, or by a scenario that lets jobs start on fewer
        processors; 0: none, so that it never has fewer than it starts on.
    walltime_s : run time limit, s: that of its request, and longer while it has fewer processors.
    estimate_s : expected run time, s: the walltime, or less if the scenario predicts run times.
    demand : amounts of all resources that the job requests, processors included.
    queue_position : sort key in the queue.
    groups : group number -> processors that the group holds, oldest first; joining and leaving
        groups are included.
    size : processors of the committed configuration, on which the application computes.
    sizes : (time, size) of the start and of each change of the committed size.
    resize : the resize under way, if there is one.
    resizes, restarts : number of its resizes begun so far, and of its restarts.
    exit_code, signal : of its end.
    first_estimate_s, misses : prediction at submission, s (0: there was none), and how often the
        prediction expired.
    backfilled : whether it started before the head of the queue.
    committed, paused_s, most_moved_bytes : number of its resizes that were committed, how long
        they paused the program together (s), and the most data that one of them moved.
    cause, why : final state that a job in COMPLETING will take, and a sentence on the cause.
    queued_at, redirected_at : when it first entered the queue that it was in last; when it left
        the queue of the principal group to be redirected, None if it was not.
    first_group : number of the first group since it was redirected or requeued.
    requeues : how often it was requeued.
    stalled : how often its processes died since its last new checkpoint, and it was requeued.
    failed_starts : how often its program could not be started for a reason of a node.
    checkpoint : iteration of its last checkpoint when it was last requeued.
    requeued_why : why it was last requeued.
    bounds : what its program requests of its size.
    progress : at its last resize point the time (s), the iterations that were left, and the time of
        an iteration (s); None: it does not report how many are left.
    partition : name of the partition in which it is queued, runs or ran; "": the first one.
    conditions : what it still waits for before it is eligible; None: it is eligible.
    requeue_asked : whether it was ended to be queued again, at the request of a user.
    tasks_queued, tasks_failed : of an array: tasks that have come to the queue so far, and
        those that have ended without completing.
    to_come : of an array: the tasks that are no jobs yet; None: it is no array.
    sent : the last signal that was ordered for its processes.
    warned : whether it has got the signal before the end of its walltime.
    left : of a malleable job, at a time (s): the run time that it was estimated to need from then
        on, and that its walltime allowed from then on, both on the requested size (s).
    is_lent : whether the processors of its first group belong to the job whose step it is.
    resizable : whether its request says so; decisions read it for every running job.
    recorded_history : its `history`; None: it has none yet.
    shown : what user-defined code sees of it; see `scheduler.model.job_view.shown`.
    """

    state: JobState
    demand: Quantity = 0
    queue_position: QueuePosition = None
    topology: Topology | None = None
    started_at: float | None = None
    ended_at: float | None = None
    size: int = 0
    resize: Resize | None = None
    resizes: int = 0
    first_group: int = 1
    next_group: int = 1
    restarts: int = 0
    first_estimate_s: float = 0.0
    misses: int = 0
    backfilled: bool = False
    sizes: tuple[tuple[float, int], ...] = ()
    committed: int = 0
    paused_s: float = 0.0
    most_moved_bytes: int = 0
    cause: JobState | None = None
    why: str = ""
    exit_code: int = 0
    signal: int = 0
    redirected_at: float | None = None
    requeues: int = 0
    stalled: int = 0
    failed_starts: int = 0
    checkpoint: int = 0
    requeued_why: str = ""
    bounds: SizeBounds = NO_BOUNDS
    progress: tuple[float, int, float] | None = None
    partition: str = ""
    conditions: Conditions | None = None
    requeue_asked: bool = False
    tasks_queued: int = 0
    tasks_failed: int = 0
    to_come: TasksToCome | None = None
    sent: SentSignal | None = None
    warned: bool = False
    is_lent: bool = False
    resizable: bool = False
    minimum: int = 0
    left: tuple[float, float, float] = (0.0, 0.0, 0.0)
    shown: Any = None
    recorded_history: History | None = None
    _limits: SizeLimits | None = None
    _smaller: tuple[tuple[int, int, int, bool, int], tuple[int, ...]] | None = None  # (key, sizes)
    _sums: tuple[tuple[int, int, bool], int] | None = None  # (key, processors that groups make up)

    def __init__(self, id: int, spec: JobSpec, submitted_at: float) -> None:
        self.id = id
        self.spec = spec
        self.is_plain = is_plain(spec)
        self.processors = spec.processors
        self.state = PENDING
        self.submitted_at = self.queued_at = submitted_at
        self.estimate_s = self.walltime_s = spec.walltime_s
        if not self.is_plain:
            self.topology = spec.topology
            self.partition = spec.partition
            self.resizable = spec.resizable
            self.minimum = spec.min_processors or 0
            if spec.array is not None:
                self.to_come = TasksToCome(ProcSet.span(0, spec.array.count))
        self.groups: dict[int, ProcSet] = {}

    def start_on(self, processors: int) -> None:
        """Start on fewer processors than requested, and expect a later end."""
        slower = self.slowness(processors)
        self.estimate_s *= slower
        self.walltime_s *= slower
        self.processors = processors

    def expect_on(self, size: int, now: float) -> None:
        """Expect another end, since the committed size changes to `size` now.

        The estimate is prolonged or shortened by the work that is left. The walltime is the time
        that the user allows on the requested size, so that it is prolonged for the time on fewer
        processors, and is not shortened for that on more. What the time on the present size was
        worth is known by now; so an end that was expected by a wrong guess is corrected.
        """
        if not self.minimum or self.started_at is None:
            return
        at, work_s, allowed_s = self.left
        slower, passed = self.slowness(self.size), now - self.started_at
        work_s -= (now - at) / slower
        allowed_s -= (now - at) / max(slower, 1.0)
        self.left = now, work_s, allowed_s
        slower = self.slowness(size)
        self.estimate_s = passed + max(0.0, work_s) * slower
        self.walltime_s = passed + max(0.0, allowed_s) * max(slower, 1.0)

    def _allow_more(self, more_s: float, *, is_estimate: bool) -> None:
        """Prolong the walltime of a malleable job that has started by so much; see `expect_on`."""
        assert self.started_at is not None
        at, work_s, allowed_s = self.left
        least_s = at - self.started_at
        self.walltime_s = max(least_s, self.walltime_s + more_s * self.stretch)
        if is_estimate:
            work_s += more_s
            self.estimate_s = max(least_s, self.estimate_s + more_s * self.slowness(self.size))
        self.left = at, work_s, allowed_s + more_s

    @property
    def stretch(self) -> float:
        """Seconds of its run time limit, on its present size, for each second of its walltime."""
        return max(self.slowness(self.size), 1.0) if self.minimum else 1.0

    def slowness(self, size: int) -> float:
        """Expected time on a size as a multiple of that on the requested one.

        By its measurements, else by its performance model, else in inverse proportion to the size.
        """
        requested = self.spec.processors
        if size == requested:
            return 1.0
        history = self.recorded_history
        if history is not None and history.measured:
            size_s, requested_s = history.predict_s(size), history.predict_s(requested)
            if size_s and requested_s:
                return size_s / requested_s
        if self.spec.performance:
            gain = speedup_by(self.spec.performance, size, requested)
            if gain:
                return gain
        return requested / size

    def become(self, state: JobState) -> None:
        """Change to a state by a legal transition.

        Raises
        ------
        ValueError : the table has no such transition.
        """
        if state not in TRANSITIONS[self.state]:
            raise ValueError(f"job {self.id} cannot go from {self.state.name} to {state.name}")
        self.state = state

    def cancel(self, at: float, why: str) -> None:
        """End without having started; the tasks of an array that are no jobs yet end with it."""
        self.become(S.CANCELLED)
        self.conditions, self.why, self.ended_at = None, why, at
        if self.to_come is not None:
            self.to_come = self.to_come.after_cancellation(self.to_come.left)

    def redirect(self, at: float, partition: str) -> None:
        """Become PENDING again in another partition, as if newly submitted."""
        self._wait_again(at)
        self.redirected_at = self.queued_at = at
        self.partition = partition

    def requeue(self, at: float, why: str) -> None:
        """Become PENDING again in the same queue, where it keeps its place."""
        self._wait_again(at)
        self.requeues += 1
        self.requeued_why = why

    def change_request(self, spec: JobSpec) -> None:
        """Take another request while it is PENDING and in no queue."""
        self.change_limits(spec, is_estimate=True)
        self.processors, self.topology = spec.processors, spec.topology
        self.minimum = spec.min_processors or 0
        self.first_estimate_s = 0.0
        self.conditions, self.partition = spec.conditions, spec.partition

    def change_limits(self, spec: JobSpec, *, is_estimate: bool = False) -> None:
        """Take a request with other limits and labels; the rest of the record stays.

        So does the array whose task the job is, which no user requests.

        Parameters
        ----------
        is_estimate : whether the walltime is the estimate of the job, too.
        """
        if spec.task_of != self.spec.task_of:
            spec = replace(spec, task_of=self.spec.task_of)
        if self.minimum and self.started_at is not None:
            self._allow_more(spec.walltime_s - self.spec.walltime_s, is_estimate=is_estimate)
        else:
            self.walltime_s = spec.walltime_s
            if is_estimate:
                self.estimate_s = spec.walltime_s
        if spec.min_processors != self.spec.min_processors:
            self.minimum = spec.min_processors or 0
        self.spec = spec
        self.is_plain = is_plain(spec)
        self.resizable = spec.resizable

    def _wait_again(self, at: float) -> None:
        """Become PENDING and forget the last start.

        Group numbers and resize serials continue, so that they stay unique; so does `sizes`, with a
        size of 0 for the time in the queue.
        """
        self.become(S.PENDING)
        self.processors, self.minimum = self.spec.processors, self.spec.min_processors or 0
        self.requeue_asked = False
        self.first_group = self.next_group
        self.sizes += ((at, 0),)
        self.started_at = self.cause = self.recorded_history = None
        self.size = self.restarts = self.misses = self.exit_code = self.signal = 0
        self.estimate_s = self.walltime_s = self.spec.walltime_s
        self.first_estimate_s = 0.0
        self.topology, self.backfilled, self.why = self.spec.topology, False, ""
        self.bounds, self.progress, self.warned = NO_BOUNDS, None, False

    @property
    def own_groups(self) -> dict[int, ProcSet]:
        """Groups that may leave the job and that its end releases: all but a lent one."""
        if not self.is_lent:
            return self.groups
        lent = next(iter(self.groups))
        return {group: held for group, held in self.groups.items() if group != lent}

    @property
    def leavable(self) -> dict[int, ProcSet]:
        """Groups that leave it in a contraction, unless others are asked for.

        The oldest group stays, so that the job can always return to the size on which it started.
        """
        groups = self.own_groups
        if not groups or (self.is_lent and not self.minimum):
            return groups
        oldest = next(iter(groups))
        return {group: held for group, held in groups.items() if group != oldest}

    @property
    def least(self) -> int:
        """Smallest size that a resize may lead to."""
        least = self.minimum or self.processors
        return least if self.bounds is NO_BOUNDS else max(least, self.bounds.minimum)

    @property
    def most(self) -> int:
        """Largest size that a resize may lead to; 0 for a rigid job."""
        most = self._size_limits().largest if self.resizable else 0
        if self.bounds is NO_BOUNDS:
            return most
        return min(most, self.bounds.maximum) if self.bounds.maximum else most

    @property
    def history(self) -> History:
        """Performance history of the job."""
        if self.recorded_history is None:
            self.recorded_history = History(performance=self.spec.performance)
        return self.recorded_history

    @property
    def smaller(self) -> tuple[int, ...]:
        """Sizes that a running job may contract to, the largest first (PRIO 2).

        The job ran on them before, they are not below its starting size and the minimum that its
        program requests, and some of the groups that may leave make up the difference. The result
        is cached: a decision reads it for every running job.
        """
        given_up = self.history.failed_contractions.given_up
        state = self.resizes, self.restarts, self.size, given_up, self.bounds.minimum
        if self._smaller is None or self._smaller[0] != state:
            sizes = [to for to in self.history.contractions() if to >= self.least]
            groups = self.leavable
            leave = (to for to in sizes if leaving_groups(groups, self.size - to) is not None)
            self._smaller = state, tuple(leave)
        return self._smaller[1]

    @property
    def valid_sizes(self) -> Sequence[int]:
        """Valid sizes from its smallest to its largest one, ascending; empty if it has none.

        Any size counts as valid while its topology is not known.
        """
        return self._size_limits().valid_sizes

    def _size_limits(self) -> SizeLimits:
        """What its request, topology and minimum allow; kept, since each decision asks for it."""
        cached = self._limits
        if (
            cached is None
            or cached.spec is not self.spec
            or cached.topology is not self.topology
            or cached.minimum != self.minimum
        ):
            cached = self._limits = SizeLimits(self.spec, self.topology, self.minimum)
        return cached

    def valid_from(self, size: int) -> int | None:
        """Smallest valid size from this one on, within the bounds of its program; None: none."""
        limits = self._size_limits()
        place = limits.below(max(size, self.least))
        if place == limits.count or limits.at(place) > self.most:
            return None
        return limits.at(place)

    def valid_up_to(self, size: int) -> int | None:
        """Largest valid size up to this one, within the bounds of its program; None: none."""
        limits = self._size_limits()
        place = limits.below(min(size, self.most) + 1) - 1
        if place < 0 or limits.at(place) < self.least:
            return None
        return limits.at(place)

    @property
    def start_least(self) -> int:
        """Fewest processors on which it may start."""
        if not self.minimum:
            return self.processors
        smallest = self._size_limits().smallest
        return smallest if smallest < self.processors else self.processors

    def starts_on(self, free: int) -> int | None:
        """Largest size up to its request on which it may start on so many processors."""
        requested = self.processors
        if free >= requested:
            return requested
        limits = self._size_limits()
        below = limits.below(free + 1) if self.minimum else 0
        return limits.at(below - 1) if below else None

    def estimate_on_s(self, size: int) -> float:
        """Estimate if it starts on a size, s."""
        if size == self.processors:
            return self.estimate_s
        return self.estimate_s * self.slowness(size)

    def contracts_to(self, size: int) -> int | None:
        """Smallest size from this one on to which it can contract by whole groups; None: none."""
        sums, limits, present = self._group_sums(), self._size_limits(), self.size
        for place in range(limits.below(max(size, self.least)), limits.count):
            to = limits.at(place)
            if to >= present:
                return None
            if sums >> (present - to) & 1:
                return to
        return None

    def contracts_within(self, size: int) -> int | None:
        """Largest size up to this one to which it can contract by whole groups; None: none."""
        sums, limits, present, least = (
            self._group_sums(),
            self._size_limits(),
            self.size,
            self.least,
        )
        for place in range(limits.below(min(size + 1, present)) - 1, -1, -1):
            to = limits.at(place)
            if to < least:
                return None
            if sums >> (present - to) & 1:
                return to
        return None

    def _group_sums(self) -> int:
        """Bit s: some of the groups that may leave have s processors together."""
        if self.history.failed_contractions.given_up:
            return 0
        key = self.next_group, len(self.groups), self.resize is None
        if self._sums is None or self._sums[0] != key:
            joining = () if self.resize is None else self.resize.joining
            sums = 1
            for group, held in self.leavable.items():
                if group not in joining:
                    sums |= sums << count(held.intervals)
            self._sums = key, sums
        return self._sums[1]

    @property
    def expected_end(self) -> float:
        """Time (s) by which a started job ends if its walltime is right."""
        assert self.started_at is not None
        return self.started_at + self.walltime_s

    @property
    def ends_by_progress(self) -> float:
        """Time (s) by which the iterations that are left pass at its speed; inf: unknown."""
        if self.progress is None:
            return inf
        at, left, iteration_s = self.progress
        if self.recorded_history is not None:
            iteration_s = self.recorded_history.predict_s(self.size) or iteration_s
        return at + left * iteration_s

    @property
    def estimated_end(self) -> float:
        """Time (s) by which a started job ends if its estimate is right."""
        assert self.started_at is not None
        return self.started_at + self.estimate_s
