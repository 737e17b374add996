"""``jobs.csv``: a line for each job, in the columns of Batsim, which evalys reads as well.

For workloads of resizable jobs and of redirected ones a column ``sizes`` follows: ``0:4 62.5:8`` is
4 processors from second 0 on and 8 from second 62.5 to the end; a job that waits between two runs
has none. A group that joins counts from the end of the resize on. If the places of resizable jobs
were kept, a column ``places`` comes next, in the same form: ``0:0-3 62.5:0-3,12-15``;
``allocated_resources`` are the processors at the start then. If the dispersal of the jobs was
measured, the columns ``mean_distance`` and ``extent`` follow (`simulator.results.dispersal`), and
for a machine with partitions a column ``partition``. The last column is always
``first_prediction_s``, the run time that the scheduler expected when the job was submitted.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import pairwise
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from scheduler.model.procset import ProcSet
from simulator.results.metrics import Sizes
from simulator.results.schedule import Places, Schedule

NAME = "jobs.csv"
#: Columns in the order of Batsim 4.
COLUMNS = (
    "job_id", "workload_name", "profile", "submission_time", "requested_number_of_resources",
    "requested_time", "success", "final_state", "starting_time", "execution_time", "finish_time",
    "waiting_time", "turnaround_time", "stretch", "allocated_resources",
)  # fmt: skip
REJECTED = "REJECTED"
SIZES, PLACES = "sizes", "places"
DISPERSAL = ("mean_distance", "extent")
PARTITION = "partition"
FIRST_PREDICTION = "first_prediction_s"


class HeldSpans(NamedTuple):
    """Spans of time in which a job held a number of processors; (m,) each.

    Parameters
    ----------
    begin, end : float64, seconds.
    processors : int64.
    """

    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    processors: NDArray[np.int64]


class JobTable(msgspec.Struct, frozen=True):
    """Jobs that ran, for pictures and traces of other tools; (n,) each.

    Parameters
    ----------
    workload : name, for titles.
    numbers : shown to users, each different.
    submitted, started, ended : float64, seconds.
    processors : int64.
    allocated : the processors of each job, or None if they were only counted.
    sizes : sizes of each job over time; None: `processors` from start to end.
    places : processors of each job over time; None: `allocated` from start to end.
    """

    workload: str
    numbers: list[str]
    submitted: NDArray[np.float64]
    started: NDArray[np.float64]
    ended: NDArray[np.float64]
    processors: NDArray[np.int64]
    allocated: list[ProcSet] | None
    sizes: Sequence[Sizes] | None = None
    places: Sequence[Places] | None = None

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self.numbers)

    @classmethod
    def of(cls, schedule: Schedule, workload: str) -> JobTable:
        """Jobs of a schedule that ran."""
        ran = np.flatnonzero(~np.isnan(schedule.ended))
        names, held = job_names(schedule), schedule.allocated
        sizes, places = schedule.sizes, schedule.places
        return cls(
            workload,
            [names[index] for index in ran],
            schedule.jobs.submitted[ran],
            schedule.started[ran],
            schedule.ended[ran],
            schedule.jobs.processors[ran],
            None if held is None else [held[index + 1] for index in ran.tolist()],
            None if sizes is None else [sizes[index + 1] for index in ran.tolist()],
            None if places is None else [places[index + 1] for index in ran.tolist()],
        )

    @property
    def held(self) -> HeldSpans:
        """Spans in which processors were held."""
        if self.sizes is None:
            return HeldSpans(self.started, self.ended, self.processors)
        spans = [
            (begin, then, size)
            for sizes, end in zip(self.sizes, self.ended.tolist(), strict=True)
            for (begin, size), (then, _) in pairwise([*sizes, (end, 0)])
        ]
        begin, end, processors = (np.array(column) for column in zip(*spans, strict=True))
        return HeldSpans(
            begin.astype(np.float64), end.astype(np.float64), processors.astype(np.int64)
        )

    @property
    def spans(self) -> list[tuple[int, float, float, ProcSet]]:
        """Job (by its index), begin and end (s) of each span in which it held these processors.

        Individual processors must have been allocated.
        """
        assert self.allocated is not None
        begins, ends = self.started.tolist(), self.ended.tolist()
        if self.places is None:
            return list(zip(range(len(self)), begins, ends, self.allocated, strict=True))
        return [
            (i, begin, then, held)
            for i, kept in enumerate(self.places)
            for (begin, held), (then, _) in pairwise([*kept, (ends[i], ProcSet())])
            if held
        ]

    def machine(self) -> int:
        """Least number of processors of a machine that ran these jobs.

        Without allocations it is the size of the largest job, a lower bound.
        """
        if self.allocated is None:
            return int(self.held.processors.max())
        return 1 + max(held.intervals[-1][1] for _, _, _, held in self.spans if held)


def encode(schedule: Schedule, workload: str) -> bytes:
    """Write the jobs of a schedule; one that could not run is REJECTED."""
    columns = _columns(schedule, workload)
    numbers = range(1, len(schedule.jobs) + 1)
    if schedule.sizes is not None:
        columns[SIZES] = [_sizes_text(schedule.sizes.get(number, ())) for number in numbers]
    if schedule.places is not None:
        columns[PLACES] = [_places_text(schedule.places.get(number, ())) for number in numbers]
    if schedule.dispersal is not None:
        measured = (schedule.dispersal.mean_distance, schedule.dispersal.extent)
        columns |= dict(zip(DISPERSAL, map(_values, measured), strict=True))
    if schedule.jobs.partitions:
        names = schedule.jobs.partitions
        columns[PARTITION] = [names[index] for index in schedule.jobs.partition.tolist()]
    if schedule.first_estimates is not None:
        columns[FIRST_PREDICTION] = _values(schedule.first_estimates)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()


def _columns(schedule: Schedule, workload: str) -> dict[str, list[Any]]:
    """Columns of Batsim by name."""
    jobs, started, run_s = schedule.jobs, schedule.started, schedule.run_s
    ran, names, held = ~np.isnan(started), job_names(schedule), schedule.allocated
    finished = started + run_s
    turnaround = finished - jobs.submitted
    stretch = np.divide(turnaround, run_s, out=np.full(len(jobs), np.nan), where=run_s > 0)
    states = np.where(schedule.killed, "COMPLETED_WALLTIME_REACHED", "COMPLETED_SUCCESSFULLY")
    columns = (
        names,
        [workload] * len(jobs),
        names,
        jobs.submitted.tolist(),
        jobs.processors.tolist(),
        jobs.estimate.tolist(),
        (ran & ~schedule.killed).astype(int).tolist(),
        np.where(ran, states, REJECTED).tolist(),
        *map(_values, (started, run_s, finished, schedule.wait, turnaround, stretch)),
        ["" if held is None or number not in held else str(held[number])
         for number in range(1, len(jobs) + 1)],
    )  # fmt: skip
    return dict(zip(COLUMNS, columns, strict=True))


def _values(column: NDArray[np.float64]) -> list[Any]:
    """Numbers of a column; those that do not exist are empty."""
    return ["" if isnan(value) else value for value in column.tolist()]


def _sizes_text(sizes: Sizes) -> str:
    return " ".join(f"{at}:{size}" for at, size in sizes)


def _places_text(places: Places) -> str:
    return " ".join(f"{at}:{str(held).replace(' ', ',')}" for at, held in places)


def _places(text: str) -> list[tuple[float, ProcSet]]:
    pairs = [part.split(":") for part in text.split()]
    return [(float(at), ProcSet.parse(held)) for at, held in pairs]


def _sizes(text: str) -> list[tuple[float, int]]:
    pairs = [part.split(":") for part in text.split()]
    return [(float(at), int(size)) for at, size in pairs]


def read(path: Path) -> JobTable:
    """Read a ``jobs.csv``, ours or Batsim's.

    Raises
    ------
    ReshapeError : it cannot be read, lacks a column, no job in it ran, or a field is wrong; the
        message names file, line and column.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise ReshapeError(f"{path}: no column {missing[0]}; is it a jobs.csv?")
            lines = [(reader.line_num, row) for row in reader if row["final_state"] != REJECTED]
    except OSError as error:
        raise ReshapeError(f"{path}: cannot be read: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise ReshapeError(f"{path}: is no table: {error}") from None
    if not lines:
        raise ReshapeError(f"{path}: no job in it ran")
    held = [_field(path, line, row, "allocated_resources", ProcSet.parse) for line, row in lines]
    first = lines[0][1]
    sizes = places = None
    if SIZES in first:
        sizes = [_field(path, line, row, SIZES, _sizes) for line, row in lines]
    if PLACES in first:
        places = [_field(path, line, row, PLACES, _places) for line, row in lines]

    def column(name: str, kind: Any) -> NDArray[Any]:
        return np.array([_field(path, line, row, name, kind) for line, row in lines])

    return JobTable(
        first["workload_name"],
        [row["job_id"] for _, row in lines],
        column("submission_time", float),
        column("starting_time", float),
        column("finish_time", float),
        column("requested_number_of_resources", int),
        held if all(held) else None,
        sizes,
        places,
    )


def _field(path: Path, line: int, row: dict[str, str], name: str, kind: Any) -> Any:
    try:
        return kind(row[name] or "")
    except (TypeError, ValueError):
        raise ReshapeError(f"{path}:{line}: {name}: {row[name]!r} is not a valid value") from None


def job_names(schedule: Schedule) -> list[str]:
    """Numbers of the trace, distinct."""
    return distinct(schedule.jobs.numbers.tolist())


def distinct(numbers: Sequence[int]) -> list[str]:
    """Numbers as texts; a repeated number is followed by the index of its job."""
    first = {number: index for index, number in reversed([*enumerate(numbers)])}
    return [
        str(number) if first[number] == index else f"{number}#{index + 1}"
        for index, number in enumerate(numbers)
    ]
