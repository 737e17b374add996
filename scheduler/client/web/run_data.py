"""A run in the form that pages draw: jobs, segments, marks and curves, live, simulated or replayed.

A segment is an interval of processors that a group of a job held from one time to another. Times
are seconds from the origin of the run on.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from math import inf
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.model.job import FINAL
from scheduler.model.procset import ProcSet
from scheduler.pictures import steps

Floats: TypeAlias = NDArray[np.float64]
#: A quantity over time: (times in ascending order, values from each time on).
Curve: TypeAlias = tuple[Floats, Floats]
#: Segments as an array whose fields are the columns of `Segments`.
SegmentRows: TypeAlias = NDArray[np.void]
SEGMENT = np.dtype(
    [
        ("job", "i4"),
        ("first", "i4"),
        ("count", "i4"),
        ("begin", "f8"),
        ("end", "f8"),
        ("kind", "u1"),
    ]
)
_CODES = {"q": np.int64, "d": np.float64, "B": np.uint8}

#: Steps of a curve, at most.
MOST_STEPS = 2000
_ENDED = frozenset(state.name for state in FINAL)
PENDING = "PENDING"


class Kind(IntEnum):
    """What processors do for a job in a segment."""

    COMPUTING = 0
    STARTING = 1  #: a group that starts, or that has not joined yet
    LEAVING = 2  #: a group that leaves
    LENT = 3  #: a step computes on processors that its job holds
    EXPECTED = 4  #: by the forecast


@dataclass(slots=True)
class JobRow:
    """What tables show of a job.

    Attributes
    ----------
    label : how users write it, such as 17 or 17_4.
    requested, least, most : processors of the preferred, smallest and largest configuration.
    submitted, started, ended : seconds; None: not yet.
    walltime_s : limit of the run time.
    expected : start by the forecast, s; None: not known, or it has started.
    reason : why it waits, or how it ended; may be empty.
    requeued : when it went back to the queue last, s; None: it did not.
    gained_s : run time that resizes have saved it, s; None: not known, or it has not ended.
    """

    label: str
    name: str
    user: str
    submitted: float
    requested: int
    least: int
    most: int
    walltime_s: float
    state: str = PENDING
    started: float | None = None
    ended: float | None = None
    expected: float | None = None
    reason: str = ""
    gained_s: float | None = None
    requeued: float | None = None

    def earlier(self, by_s: float) -> JobRow:
        """Return the same row with all times so many seconds earlier."""
        names = ("submitted", "started", "ended", "expected", "requeued")
        times = {name: getattr(self, name) for name in names}
        return replace(self, **{n: at - by_s for n, at in times.items() if at is not None})

    @property
    def group(self) -> str:
        """Queued, running or ended."""
        if self.state in _ENDED:
            return "ended"
        return "queued" if self.state == PENDING else "running"


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
    """Columns of segments: job (its row), first processor, count, begin, end (s), kind."""

    def __init__(self) -> None:
        self.job, self.first, self.count = array("q"), array("q"), array("q")
        self.begin, self.end, self.kind = array("d"), array("d"), array("B")

    def __len__(self) -> int:
        """Count the segments."""
        return len(self.job)

    def add(self, job: int, held: ProcSet, begin: float, end: float, kind: int) -> None:
        """Add the segments of a group; nothing if it ended when it began."""
        if not begin < end:
            return
        for first, last in held.intervals:
            self.job.append(job)
            self.first.append(first)
            self.count.append(last - first + 1)
            self.begin.append(begin)
            self.end.append(end)
            self.kind.append(kind)

    @classmethod
    def of(cls, rows: SegmentRows) -> Segments:
        """Make columns from an array."""
        segments = cls()
        for name in SEGMENT.names or ():
            column = getattr(segments, name)
            column.frombytes(rows[name].astype(_CODES[column.typecode]).tobytes())
        return segments

    def rows(self) -> SegmentRows:
        """Return the segments as one array."""
        rows = np.empty(len(self), SEGMENT)
        for name in SEGMENT.names or ():
            rows[name] = np.frombuffer(getattr(self, name), _CODES[getattr(self, name).typecode])
        return rows


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
    numbers : job numbers by row.
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
    numbers: Sequence[int] = ()
    blocked: Sequence[Blocked] = ()
    notes: Sequence[str] = ()
    stories: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    utilization: float | None = None

    @property
    def end(self) -> float:
        """Time at which the last segment or reservation ends, or now if that is later, s."""
        ends = self.segments["end"]
        known = [span.end for span in self.blocked if span.end < inf]
        return max([self.now, *known, *([float(ends.max())] if len(ends) else [])])

    def part(self, numbers: Sequence[int]) -> RunData:
        """Return the part of a run that some jobs are, from their first submission on."""
        rows = {number: row for row, number in enumerate(self.numbers)}
        kept = [rows[number] for number in numbers if number in rows]
        place = np.full(len(self.jobs), -1, np.int32)
        place[kept] = np.arange(len(kept))
        begin = min((self.jobs[row].submitted for row in kept), default=0.0)
        segments = self.segments[place[self.segments["job"]] >= 0].copy()
        segments["job"] = place[segments["job"]]
        for name in ("begin", "end"):
            segments[name] -= begin
        return replace(
            self,
            origin=None,
            segments=segments,
            now=float(segments["end"].max()) if len(segments) else 0.0,
            jobs=[self.jobs[row].earlier(begin) for row in kept],
            numbers=[self.numbers[row] for row in kept],
            blocked=(),
        )

    @cached_property
    def totals(self) -> dict[str, int]:
        """Numbers of jobs, of those that run and that wait, and of processors in use."""
        groups = Counter(job.group for job in self.jobs)
        rows = self.segments[self.segments["end"] == self.now]
        in_use = sum(
            row["count"]
            for row in rows
            if row["kind"] != Kind.LENT and self.jobs[row["job"]].group == "running"
        )
        counts = {name: groups[name] for name in ("running", "queued")}
        return {"jobs": len(self.jobs), **counts, "in_use": int(in_use)}

    @cached_property
    def _queued(self) -> tuple[Floats, Floats]:
        """When each job came to the queue last, and when it left it, s."""
        left = (
            job.started
            if job.started is not None
            else job.ended
            if job.ended is not None
            else max(self.now, job.submitted)
            for job in self.jobs
        )
        count = len(self.jobs)
        came = (job.submitted if job.requeued is None else job.requeued for job in self.jobs)
        return np.fromiter(came, np.float64, count), np.fromiter(left, np.float64, count)

    def curves(self, begin: float, end: float) -> dict[str, Curve]:
        """Processors in use, jobs that wait, and what resizes have saved ended jobs so far, s."""
        rows = between(self.segments, begin, end)
        held = rows[~np.isin(rows["kind"], (Kind.LENT, Kind.EXPECTED))]
        spans = held["begin"], held["end"], held["count"].astype(np.float64)
        submitted, left = self._queued
        waits = (submitted < end) & (left > begin)
        queued = submitted[waits], left[waits], np.ones(int(waits.sum()))
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
        return steps(
            np.concatenate([[begin], begins, ends]), np.concatenate([[0.0], amounts, -amounts])
        )
    changes = np.zeros(most + 2)
    for times, sign in ((begins, 1.0), (ends, -1.0)):
        place = (times - begin) * (most / (end - begin))
        whole = place.astype(np.int64)
        part = place - whole
        changes += np.bincount(whole, sign * amounts * (1 - part), most + 2)
        changes += np.bincount(whole + 1, sign * amounts * part, most + 2)
    return np.linspace(begin, end, most, endpoint=False), np.cumsum(changes)[:most]


def placed(
    starts: Iterable[tuple[float, float, int]], processors: int
) -> Iterable[tuple[ProcSet, float, float]]:
    """Give jobs of which only the sizes are known rows of a picture: the lowest that are free.

    Parameters
    ----------
    starts : (start, end, processors) of each job, in the order of their starts.
    processors : of the machine.

    Yields
    ------
    the processors of each job with its start and end; fewer than it has where rows are missing.
    """
    free, running = ProcSet.span(0, processors), list[tuple[float, ProcSet]]()
    next_end = inf
    for begin, end, count in starts:
        if next_end <= begin:
            free = ProcSet.union([free, *(held for until, held in running if until <= begin)])
            running = [(until, held) for until, held in running if until > begin]
            next_end = min((until for until, _ in running), default=inf)
        held = free.first(min(count, len(free)))
        free -= held
        running.append((end, held))
        next_end = min(next_end, end)
        yield held, begin, end
