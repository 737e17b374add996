"""A run in the form that pages draw: jobs, segments, marks and curves, live, simulated or replayed.

A segment is an interval of processors that a group of a job held from one time to another. Times
are seconds from the origin of the run on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from math import inf, nan
from struct import Struct
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from scheduler.model.procset import ProcSet
from scheduler.pictures import Series

Floats: TypeAlias = NDArray[np.float64]
#: A quantity over time: (times in ascending order, values from each time on).
Curve: TypeAlias = tuple[Floats, Floats]
#: Segments as an array: job (its row), first processor, count, begin and end (s), kind.
SegmentRows: TypeAlias = NDArray[np.void]
SEGMENT = np.dtype(
    {
        "names": ["job", "first", "count", "begin", "end", "kind"],
        "formats": ["<i4", "<i4", "<i4", "<f8", "<f8", "u1"],
    }
)
_SEGMENT = Struct("<iiiddB")

#: Steps of a curve, at most.
MOST_STEPS = 2000


class Kind(IntEnum):
    """What processors do for a job in a segment."""

    COMPUTING = 0
    STARTING = 1  #: a group that starts, or that has not joined yet
    LEAVING = 2  #: a group that leaves
    LENT = 3  #: a step computes on processors that its job holds
    EXPECTED = 4  #: by the forecast


class JobRow(msgspec.Struct):
    """What tables show of a job.

    Attributes
    ----------
    number : of the job.
    label : how users write it, such as 17_4; "": as its number.
    submitted : seconds.
    queued : when it came to the queue last, s.
    requested, least, most : processors of the preferred, smallest and largest configuration.
    walltime_s : limit of the run time.
    started, ended : seconds; None: not yet.
    expected : start by the forecast, s; None: not known, or it has started.
    reason : why it waits, or how it ended; may be empty.
    gained_s : run time that resizes have saved it, s; None: not known, or it has not ended.
    """

    number: int
    label: str
    name: str
    user: str
    submitted: float
    queued: float
    requested: int
    least: int
    most: int
    walltime_s: float
    state: str = "PENDING"
    started: float | None = None
    ended: float | None = None
    expected: float | None = None
    reason: str = ""
    gained_s: float | None = None

    @property
    def shown_label(self) -> str:
        """How users write it."""
        return self.label or str(self.number)

    @property
    def group(self) -> str:
        """Queued, running or ended."""
        if self.ended is not None:
            return "ended"
        return "queued" if self.started is None else "running"


@dataclass(slots=True)
class Blocked:
    """Processors that jobs may not use: of a reservation, or of a node that drains or is down.

    Attributes
    ----------
    kind : "reservation", "drained" or "down".
    """

    kind: str
    held: ProcSet
    begin: float
    end: float
    text: str


class Segments:
    """Segments that are added one after the other, to some rows."""

    def __init__(self, rows: SegmentRows | None = None) -> None:
        self._data = bytearray() if rows is None else bytearray(rows.tobytes())

    def add(self, job: int, held: ProcSet, begin: float, end: float, kind: int) -> None:
        """Add the segments of a group; nothing if it ended when it began."""
        if begin < end:
            for first, last in held.intervals:
                self._data += _SEGMENT.pack(job, first, last - first + 1, begin, end, kind)

    def rows(self) -> SegmentRows:
        """Return the segments as one array."""
        return np.frombuffer(bytes(self._data), SEGMENT)


def between(segments: SegmentRows, begin: float, end: float) -> SegmentRows:
    """Return the segments that overlap an interval of time."""
    return segments[(segments["begin"] < end) & (segments["end"] > begin)]


@dataclass
class RunData:
    """A run.

    Attributes
    ----------
    name : of the run, for people.
    origin : Unix time of second 0; None: the run was simulated.
    now : end of what has happened, s.
    processors : of the machine.
    hosts : processors of each host.
    jobs : by their rows.
    blocked : see `Blocked`.
    notes : sentences about what the picture does not show.
    stories : story of each job from the journal, by number; see `journal_run.story`.
    utilization : share of the processor-seconds that jobs held; None: not computed.
    """

    name: str
    origin: float | None
    segments: SegmentRows
    now: float = 0.0
    processors: int = 0
    hosts: Mapping[str, ProcSet] = field(default_factory=dict)
    jobs: Sequence[JobRow] = ()
    blocked: Sequence[Blocked] = ()
    notes: list[str] = field(default_factory=list)
    stories: dict[int, dict[str, Any]] = field(default_factory=dict)
    utilization: float | None = None

    @property
    def end(self) -> float:
        """Time at which the last segment or reservation ends, or now if that is later, s."""
        ends = self.segments["end"]
        finite = [span.end for span in self.blocked if span.end < inf]
        return max([self.now, *finite, *([float(ends.max())] if len(ends) else [])])

    @cached_property
    def times(self) -> tuple[Floats, Floats, Floats, Floats]:
        """When each job was submitted, came to the queue last, started and ended, s; or nan."""
        rows = [(job.submitted, job.queued, job.started, job.ended) for job in self.jobs]
        submitted, queued, started, ended = np.array(rows, np.float64).reshape(-1, 4).T
        return submitted, queued, started, ended

    @property
    def _held(self) -> SegmentRows:
        """Segments in which jobs held processors, each processor once."""
        return self.segments[~np.isin(self.segments["kind"], (Kind.LENT, Kind.EXPECTED))]

    @property
    def held_s(self) -> float:
        """Processor-seconds that jobs held."""
        held = self._held
        return float((held["count"] * (held["end"] - held["begin"])).sum())

    @cached_property
    def totals(self) -> dict[str, float]:
        """Numbers of jobs, of those that run and wait, of processors in use, and waits (s).

        Means of no jobs are nan.
        """
        submitted, _, started, ended = self.times
        has_started, has_ended = ~np.isnan(started), ~np.isnan(ended)
        held = self._held
        waits, turnarounds = (started - submitted)[has_started], ended - submitted
        turnarounds = turnarounds[has_started & has_ended]
        return {
            "jobs": len(self.jobs),
            "running": int((has_started & ~has_ended).sum()),
            "queued": int((~has_started & ~has_ended).sum()),
            "in_use": int(held["count"][(held["end"] == self.now) & ~has_ended[held["job"]]].sum()),
            "wait_s": float(waits.mean()) if len(waits) else nan,
            "longest_wait_s": float(waits.max()) if len(waits) else nan,
            "turnaround_s": float(turnarounds.mean()) if len(turnarounds) else nan,
        }

    def curves(self, begin: float, end: float) -> dict[str, Curve]:
        """Processors in use, jobs that wait, and what resizes have saved ended jobs so far, s."""
        held = between(self._held, begin, end)
        spans = held["begin"], held["end"], held["count"].astype(np.float64)
        _, came, started, ended = self.times
        left = np.fmin(np.fmin(started, ended), np.maximum(came, self.now))
        waits = (came < end) & (left > begin)
        queued = came[waits], left[waits], np.ones(int(waits.sum()))
        curves = {"busy": curve_of(*spans, begin, end), "waiting": curve_of(*queued, begin, end)}
        gains = [(job.ended, job.gained_s) for job in self.jobs if job.gained_s is not None]
        if gains:
            ended, gained = np.array(gains, np.float64).T
            curves["gained"] = curve_of(ended, np.full(len(ended), np.inf), gained, begin, end)
        return curves


def curve_of(
    begins: Floats, ends: Floats, amounts: Floats, begin: float, end: float, most: int = MOST_STEPS
) -> Curve:
    """Sum amounts, each from a begin to an end, between two times.

    Of more than `most` steps the means of as many equal intervals are returned.
    """
    begins, ends = np.clip(begins, begin, end), np.clip(ends, begin, end)
    if 2 * len(begins) <= most or not begin < end:
        begins, ends = np.append(begins, begin), np.append(ends, begin)
        return Series.of(begins, ends, np.append(amounts, 0.0))
    changes = np.zeros(most + 2)
    for times, sign in ((begins, 1.0), (ends, -1.0)):
        place = (times - begin) * (most / (end - begin))
        whole = place.astype(np.int64)
        part = place - whole
        changes += np.bincount(whole, sign * amounts * (1 - part), most + 2)
        changes += np.bincount(whole + 1, sign * amounts * part, most + 2)
    return np.linspace(begin, end, most, endpoint=False), np.cumsum(changes)[:most]
