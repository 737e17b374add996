"""What policies see of a job: protocols whose members cannot be assigned and change nothing.

Policies of this package get the job itself. User-defined code gets a `ReadOnlyJob`, which refuses
what the protocols do not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Protocol, cast

import msgspec

from reshape.topology import Topology
from scheduler.model.events import JobSpec
from scheduler.model.history import History, Moves
from scheduler.model.job import Job, JobState
from scheduler.model.orders import Resize
from scheduler.model.procset import ProcSet


class HistoryView(Protocol):
    """Performance history of one job, for reading; see `scheduler.model.history.History`."""

    @property
    def visits(self) -> Sequence[int]:
        """The latest configurations in the order visited, 32 at most."""

    @property
    def start(self) -> int:
        """Size of the starting configuration."""

    @property
    def visited(self) -> Mapping[int, int]:
        """Size that it ran on -> place of the latest visit among all visits."""

    @property
    def points(self) -> int:
        """Resize points seen so far."""

    @property
    def settled(self) -> int:
        """Iterations measured since the job came to its present configuration."""

    @property
    def next_point_at(self) -> float:
        """Expected time of the next resize point, s."""

    @property
    def sweet_spot(self) -> int | None:
        """Size beyond which an expansion brought nothing, once found."""

    @property
    def failures(self) -> Mapping[int, int]:
        """Size -> `points` when a resize to it last failed."""

    @property
    def data_bytes(self) -> int:
        """Data of the job that a resize moves, over all its processes; 0 if not known."""

    def time_s(self, size: int) -> float | None:
        """Typical iteration time on a size it ran on, s."""

    def expanded_from(self) -> int | None:
        """Size from which the job last expanded to its present one."""

    def contractions(self) -> Sequence[int]:
        """Sizes below the present one on which the job already ran, the largest first."""

    def comparable_s(self, one: int, other: int) -> tuple[float, float]:
        """Iteration times on two measured sizes, s, for the comparison of the sizes."""

    def benefited(self, min_benefit: float = 0.0) -> bool | None:
        """Whether the expansion to the present size shortened the iterations."""

    def expand_potential(self, window: int) -> float | None:
        """Speedup that a further processor is expected to bring."""

    def predict_s(self, size: int) -> float | None:
        """Expected iteration time on a size, s."""

    def predict_pause_s(self, everybody: Moves) -> float | None:
        """Expected pause of a resize, s."""


class JobView(Protocol):
    """A job, for reading; see `scheduler.model.job.Job`."""

    @property
    def id(self) -> int:
        """Job number."""

    @property
    def spec(self) -> JobSpec:
        """What the user requests."""

    @property
    def state(self) -> JobState:
        """Job state."""

    @property
    def processors(self) -> int:
        """Processors of the starting configuration."""

    @property
    def walltime_s(self) -> float:
        """Run time limit, s."""

    @property
    def size(self) -> int:
        """Processors of the present configuration."""

    @property
    def smaller(self) -> Sequence[int]:
        """Sizes that the job ran on and may contract to, the largest first."""

    @property
    def minimum(self) -> int:
        """Smallest size by its request; 0: the one on which it starts."""

    @property
    def least(self) -> int:
        """Smallest size that a resize may lead to."""

    @property
    def most(self) -> int:
        """Largest size that a resize may lead to; 0 for a rigid job."""

    @property
    def valid_sizes(self) -> Sequence[int]:
        """Valid sizes from its smallest to its largest one, ascending."""

    @property
    def start_least(self) -> int:
        """Fewest processors on which it may start."""

    def valid_from(self, size: int) -> int | None:
        """Smallest valid size from this one on; None: there is none."""

    def valid_up_to(self, size: int) -> int | None:
        """Largest valid size up to this one; None: there is none."""

    def contracts_to(self, size: int) -> int | None:
        """Smallest size from this one on to which it can contract by whole groups; None: none."""

    def starts_on(self, free: int) -> int | None:
        """Largest size up to its request on which it may start on so many processors."""

    def slowness(self, size: int) -> float:
        """Expected time on a size as a multiple of that on the requested one."""

    def estimate_on_s(self, size: int) -> float:
        """Estimate if it starts on a size, s."""

    @property
    def groups(self) -> Mapping[int, ProcSet]:
        """Group number -> processors, oldest first."""

    @property
    def topology(self) -> Topology | None:
        """Rule for the valid sizes, if it is known."""

    @property
    def resize(self) -> Resize | None:
        """The resize under way, if there is one."""

    @property
    def resizes(self) -> int:
        """Number of resizes begun so far."""

    @property
    def restarts(self) -> int:
        """Number of restarts so far."""

    @property
    def submitted_at(self) -> float:
        """Time of submission, s."""

    @property
    def queued_at(self) -> float:
        """Time at which it first entered the queue that it was in last, s."""

    @property
    def started_at(self) -> float | None:
        """Time of the start, s."""

    @property
    def estimate_s(self) -> float:
        """Expected run time, s."""

    @property
    def expected_end(self) -> float:
        """Time (s) by which a started job ends if its walltime is right."""

    @property
    def estimated_end(self) -> float:
        """Time (s) by which a started job ends if its estimate is right."""

    @property
    def ends_by_progress(self) -> float:
        """Time (s) by which the iterations that are left pass at its speed; inf: unknown."""

    @property
    def history(self) -> HistoryView:
        """Performance history."""


class _ReadOnly:
    """Part of the scheduler state as user-defined code sees it."""

    __slots__ = ("_own",)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse to change what the core decides on."""
        raise AttributeError(f"a policy cannot change {name!r} of {self!r}: it only reads jobs")

    __delattr__ = __setattr__  # type: ignore[assignment]


def _reads(cls: type, names: str) -> None:
    """Give a class properties that read the attributes of what it shows."""
    for name in names.split():
        setattr(
            cls, name, property(attrgetter(f"_own.{name}"), doc=f"See `{name}` of the original.")
        )


class ReadOnlyHistory(_ReadOnly):
    """Performance history of a job, as a `HistoryView`."""

    __slots__ = ()
    _own: History

    def __init__(self, history: History) -> None:
        object.__setattr__(self, "_own", history)

    def __repr__(self) -> str:
        """Name it."""
        return "the history of a job"

    @property
    def visits(self) -> Sequence[int]:
        """The latest configurations in the order visited."""
        return tuple(self._own.visits)

    @property
    def visited(self) -> Mapping[int, int]:
        """Size that it ran on -> place of the latest visit."""
        return MappingProxyType(self._own.visited)

    @property
    def failures(self) -> Mapping[int, int]:
        """Size -> `points` when a resize to it last failed."""
        return MappingProxyType(self._own.failures)


_reads(ReadOnlyHistory, "start points settled next_point_at sweet_spot data_bytes measured")
_reads(ReadOnlyHistory, "performance time_s expanded_from contractions comparable_s benefited")
_reads(ReadOnlyHistory, "expand_potential predict_s predict_pause_s failures_text")


class ReadOnlyJob(_ReadOnly):
    """A job, as a `JobView` with the further fields of `scheduler.model.job.Job`."""

    __slots__ = ("_specs",)
    _own: Job
    _specs: tuple[JobSpec | None, JobSpec]  # the request, and what is shown of it

    def __init__(self, job: Job) -> None:
        object.__setattr__(self, "_own", job)
        object.__setattr__(self, "_specs", (None, job.spec))

    def __repr__(self) -> str:
        """Name it."""
        return f"job {self._own.id}"

    @property
    def spec(self) -> JobSpec:
        """What the user requests."""
        spec = self._own.spec
        if self._specs[0] is not spec:
            resources, shared = MappingProxyType(spec.resources), MappingProxyType(spec.shared)
            read_only = msgspec.structs.replace(spec, resources=resources, shared=shared)
            object.__setattr__(self, "_specs", (spec, read_only))
        return self._specs[1]

    @property
    def groups(self) -> Mapping[int, ProcSet]:
        """Group number -> processors, oldest first."""
        return MappingProxyType(self._own.groups)

    @property
    def own_groups(self) -> Mapping[int, ProcSet]:
        """Groups that may leave the job."""
        return MappingProxyType(self._own.own_groups)

    @property
    def history(self) -> HistoryView:
        """Performance history."""
        return cast("HistoryView", ReadOnlyHistory(self._own.history))

    @property
    def recorded_history(self) -> HistoryView | None:
        """Performance history, if the job has one yet."""
        return None if self._own.recorded_history is None else self.history


_reads(ReadOnlyJob, "id is_plain processors estimate_s demand state topology resizable size sizes")
_reads(ReadOnlyJob, "submitted_at queued_at redirected_at started_at ended_at walltime_s smaller")
_reads(ReadOnlyJob, "expected_end estimated_end ends_by_progress progress bounds least most")
_reads(ReadOnlyJob, "minimum valid_sizes valid_from valid_up_to contracts_to start_least")
_reads(ReadOnlyJob, "left leavable starts_on slowness estimate_on_s")
_reads(ReadOnlyJob, "resize resizes restarts committed paused_s most_moved_bytes backfilled")
_reads(ReadOnlyJob, "first_estimate_s misses requeues requeued_why stalled failed_starts")
_reads(ReadOnlyJob, "checkpoint cause why exit_code signal partition conditions is_lent")
_reads(ReadOnlyJob, "first_group next_group queue_position requeue_asked tasks_queued tasks_failed")
_reads(ReadOnlyJob, "to_come sent warned")


def shown(job: Job) -> Any:
    """Return what user-defined code sees of a job, the same object each time."""
    if job.shown is None:
        job.shown = ReadOnlyJob(job)
    return job.shown


def original(job: object) -> Job:
    """Return the job that policies see.

    Raises
    ------
    TypeError : it is no job.
    """
    if isinstance(job, Job):
        return job
    if not isinstance(job, ReadOnlyJob):
        raise TypeError(f"{job!r} is no job")
    return job._own


def is_ours(policy: object) -> bool:
    """Whether a policy belongs to this package, so that it may get the jobs themselves."""
    return _is_of_package(type(policy).__module__)


@cache
def _is_of_package(module: str) -> bool:
    return module.partition(".")[0] == __name__.partition(".")[0]
