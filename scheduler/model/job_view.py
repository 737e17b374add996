"""What policies see of a job: `JobView`, which they read and cannot change.

Policies of this package get the `Job` itself. User-defined code gets a `ReadOnlyJob`, a restriction
to the attributes and to the methods that change nothing. So a policy reads the members of `Job`,
and a type checker refuses an assignment to one of them, as the restriction does when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from scheduler.model.events import JobSpec
from scheduler.model.history import History
from scheduler.model.job import Job


class ReadOnly:
    """A part of the scheduler state, or a site, as user-defined code sees it."""

    __slots__ = ("_own",)

    def __init__(self, own: object) -> None:
        object.__setattr__(self, "_own", own)

    if TYPE_CHECKING:  # without a `__setattr__`, so that an assignment is an error of types

        def __getattr__(self, name: str) -> Any:
            """Read a member that `reads` adds."""

    else:

        def __setattr__(self, name: str, value: object = None) -> None:
            """Refuse to change what the core decides on."""
            raise AttributeError(f"a policy cannot change {name!r} of {self!r}, only read it")

        __delattr__ = __setattr__


class ReadOnlyHistory(ReadOnly):
    """Performance history of a job, for reading; its members are those of `History`."""

    __slots__ = ()
    _own: History

    def __repr__(self) -> str:
        """Name it."""
        return "the history of a job"


class ReadOnlyJob(ReadOnly):
    """A job, for reading; its members are those of `Job`."""

    __slots__ = ("_specs",)
    _own: Job
    _specs: tuple[JobSpec | None, JobSpec]  # the request, and what is shown of it

    def __init__(self, job: Job) -> None:
        super().__init__(job)
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


#: What is shown of members whose values could be changed.
_SHOWN: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("groups", "own_groups", "leavable", "visited", "failures"), MappingProxyType),
    "visits": tuple,
    "history": ReadOnlyHistory,
    "recorded_history": lambda history: None if history is None else ReadOnlyHistory(history),
}


def reads(cls: type, names: Iterable[str]) -> None:
    """Give a class properties that read the members of what it shows."""
    for name in names:
        read: Callable[[Any], Any] = attrgetter(f"_own.{name}")
        if name in _SHOWN:
            read = partial(_converted, _SHOWN[name], read)
        setattr(cls, name, property(read, doc=f"See `{name}` of the original."))


def _converted(shown: Callable[[Any], Any], read: Callable[[Any], Any], view: object) -> Any:
    return shown(read(view))


reads(
    ReadOnlyHistory,
    (
        *("start", "points", "settled", "next_point_at", "sweet_spot", "data_bytes", "measured"),
        *("performance", "time_s", "expanded_from", "contractions", "comparable_s", "benefited"),
        *("expand_potential", "predict_s", "predict_pause_s", "failures_text"),
        *("visits", "visited", "failures"),
    ),
)

#: Methods of a job that change nothing.
_READING = {
    *("valid_from", "valid_up_to", "contracts_to", "contracts_within", "starts_on", "slowness"),
    "estimate_on_s",
}


def _members() -> set[str]:
    """Members of a job that policies may read: its attributes, and the methods in `_READING`."""
    job = Job(0, JobSpec(1, 1.0), 0.0)
    public = {name for name in dir(job) if not name.startswith("_")} - {"shown"}
    return {name for name in public if not callable(getattr(Job, name, None))} | _READING


reads(ReadOnlyJob, _members() - vars(ReadOnlyJob).keys())

#: A job, for reading.
JobView: TypeAlias = Job | ReadOnlyJob
#: The performance history of a job, for reading.
HistoryView: TypeAlias = History | ReadOnlyHistory


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
