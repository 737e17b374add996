"""Records of jobs and of the scheduler state, for durable storage.

A service writes the record of each job that an instant changed together with the events and orders
of that instant. Recovery loads the records; it decides nothing again, so the code that decided may
have changed meanwhile. Records are encoded as MessagePack with field names: a later release may add
fields with defaults. (JSON has no infinite numbers, which expected times need.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import Any

import msgspec

from reshape.topology import SizeBounds, Topology
from scheduler.model.arrays import TasksToCome
from scheduler.model.events import JobSpec
from scheduler.model.history import Failures, History, Moves, Timing
from scheduler.model.job import Job, JobState
from scheduler.model.machine import Node
from scheduler.model.orders import Resize
from scheduler.model.procset import ProcSet
from scheduler.model.requests import Conditions, SentSignal
from scheduler.state.exclusions import Exclusion


class JobRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job as it is stored; the fields are the attributes of `scheduler.model.job.Job`.

    They are declared a second time because a compiled class has no types when it runs, by which
    records are checked. A test compares the two. Times are seconds on the service's clock.

    Parameters
    ----------
    earlier_sizes : number of changes of the size before `sizes`, which are stored elsewhere.
    """

    id: int
    spec: JobSpec
    state: JobState
    submitted_at: float
    queued_at: float
    estimate_s: float
    processors: int = 0
    topology: Topology | None = None
    groups: dict[int, ProcSet] = {}
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
    checkpoint: int = 0
    requeued_why: str = ""
    failed_starts: int = 0
    bounds: SizeBounds = SizeBounds()
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
    minimum: int = 0
    walltime_s: float = 0.0
    left: tuple[float, float, float] = (0.0, 0.0, 0.0)
    history: History | None = None
    earlier_sizes: int = 0

    @classmethod
    def of(cls, job: Job, earlier_sizes: int = 0) -> JobRecord:
        """Record a job as it is now, apart from so many of its first changes of the size."""
        record = cls(*_values(job))
        if not earlier_sizes:
            return record
        sizes = record.sizes[earlier_sizes:]
        return msgspec.structs.replace(record, sizes=sizes, earlier_sizes=earlier_sizes)

    def job(self) -> Job:
        """Make the job that this is the record of."""
        job = Job(self.id, self.spec, self.submitted_at)
        for name in _PLAIN:
            setattr(job, name, getattr(self, name))
        job.walltime_s = self.walltime_s or self.spec.walltime_s
        if self.history is not None:
            job.recorded_history = self.history
        return job


#: Fields of a record that are attributes of a job.
_FIELDS = tuple(name for name in JobRecord.__struct_fields__ if name != "earlier_sizes")
_PLAIN = tuple(name for name in _FIELDS if name != "history")
#: Reads the values of all fields of a record from a job, in order.
_values = attrgetter(*("recorded_history" if name == "history" else name for name in _FIELDS))


#: Attributes of a performance history and its parts that are stored. The classes are compiled, and
#: msgspec does not know their attributes.
_HISTORY: dict[type, tuple[str, ...]] = {
    Timing: ("first", "later"),
    Moves: ("fixed_s", "byte_s"),
    Failures: ("count", "at", "why", "given_up"),
    History: (
        "visits", "start", "visited", "came_from", "points", "settled", "next_point_at",
        "sweet_spot", "forgotten_at", "spots", "failures",
        "failed_expansions", "failed_contractions", "data_bytes", "moves", "performance",
        "_timings", "_typical_s",
    ),
}  # fmt: skip
_PARTS = {"failed_expansions": Failures, "failed_contractions": Failures, "moves": Moves}


def _stored(part: Any) -> dict[str, Any]:
    """Attributes of a performance history, or of a part of one, by name."""
    if type(part) not in _HISTORY:
        raise NotImplementedError(f"a {type(part).__name__} cannot be stored")
    return {name: getattr(part, name) for name in _HISTORY[type(part)]}


def _restored(kind: type, stored: Any) -> Any:
    """Make a history, or a part of one, of its attributes; a TypeError becomes one of msgspec."""
    if not isinstance(stored, dict):
        raise TypeError(f"a {kind.__name__} is stored as a mapping, got {type(stored).__name__}")
    part = kind()
    for name in _HISTORY[kind]:
        if name not in stored:
            raise TypeError(f"a {kind.__name__} has no {name}")
        value = stored[name]
        if name in _PARTS:
            value = _restored(_PARTS[name], value)
        elif name == "_timings":
            if not isinstance(value, dict):
                raise TypeError(f"timings are a mapping, got {type(value).__name__}")
            value = {size: _restored(Timing, times) for size, times in value.items()}
        setattr(part, name, value)
    return part


def copied(job: Job) -> Job:
    """Copy a job with its performance history.

    The copy has no position in a queue and no demand, which a core sets.
    """
    copy = JobRecord.of(job).job()
    copy.groups = job.groups.copy()
    if job.recorded_history is not None:
        copy.recorded_history = _history_decoder.decode(_encoder.encode(job.recorded_history))
    return copy


class PartitionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The scheduler state of a partition, apart from its jobs.

    Parameters
    ----------
    name : as of `scheduler.partition.partition.Partition`.
    nodes : in the order of their first joining, with the processor numbers they have had.
    resize_costs : costs of the latest resizes of all jobs.
    reservations : start times of queued jobs, by job number, seconds.
    predictor : what the run-time predictor has learned, in its own form; None if it has none.
    sorted_at : when a queue order that ages was last applied to all jobs, seconds.
    depth : depth of passes to which the driver has limited the passes; None: no limit.
    exclusions : advance reservations, and nodes that expire.
    """

    name: str = ""
    nodes: list[Node] = []
    resize_costs: Moves = msgspec.field(default_factory=Moves)
    reservations: Mapping[int, float] = {}
    predictor: Any = None
    sorted_at: float = -inf
    depth: int | None = None
    exclusions: tuple[Exclusion, ...] = ()


class CoreRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The scheduler state of a core, apart from its jobs.

    Parameters
    ----------
    now : time of the latest instant, seconds.
    partitions : the first one takes submissions.
    counts : arrivals that each running job has counted, by job number (REDIR, algorithm 2).
    """

    now: float
    partitions: list[PartitionRecord] = []
    counts: Mapping[int, int] = {}


_encoder = msgspec.msgpack.Encoder(enc_hook=_stored)
_job_decoder = msgspec.msgpack.Decoder(JobRecord, strict=False, dec_hook=_restored)
_sizes_decoder = msgspec.msgpack.Decoder(list[tuple[float, int]])
_core_decoder = msgspec.msgpack.Decoder(CoreRecord, strict=False, dec_hook=_restored)
_history_decoder = msgspec.msgpack.Decoder(History, dec_hook=_restored)


def encode_job(job: Job, earlier_sizes: int = 0) -> bytes:
    """Encode the record of a job, apart from so many of its first changes of the size."""
    return _encoder.encode(JobRecord.of(job, earlier_sizes))


def decode_job(record: bytes, earlier_sizes: Callable[[], Iterable[bytes]] = tuple) -> Job:
    """Make a job from its encoded record.

    Parameters
    ----------
    earlier_sizes : reads the changes of the size that are not in the record, as `encode_sizes`
        wrote them, in order.

    Raises
    ------
    msgspec.DecodeError : the record is damaged, or of a release that wrote other fields; earlier
        changes are missing.
    """
    decoded = _job_decoder.decode(record)
    job = decoded.job()
    if decoded.earlier_sizes:
        earlier = [size for part in earlier_sizes() for size in _sizes_decoder.decode(part)]
        if len(earlier) < decoded.earlier_sizes:
            raise msgspec.DecodeError(
                f"it has {len(earlier)} of its {decoded.earlier_sizes} first changes of the size"
            )
        job.sizes = (*earlier[: decoded.earlier_sizes], *job.sizes)
    return job


def encode_sizes(sizes: Sequence[tuple[float, int]]) -> bytes:
    """Encode some changes of the size of a job."""
    return _encoder.encode(sizes)


def encode_core(record: CoreRecord) -> bytes:
    """Encode the record of a core."""
    return _encoder.encode(record)


def decode_core(record: bytes) -> CoreRecord:
    """Decode the record of a core.

    Raises
    ------
    msgspec.DecodeError : the record is damaged, or of a release that wrote other fields.
    """
    return _core_decoder.decode(record)
