"""``jobs.csv``: a line for each job, in the columns of Batsim, which evalys reads as well.

For workloads of resizable jobs and of redirected ones a column ``sizes`` follows: ``0:4 62.5:8`` is
4 processors from second 0 on and 8 from second 62.5 to the end; a job that waits between two runs
has none. A group that joins counts from the end of the resize on. If the places of resizable jobs
were kept, a column ``places`` comes next, in the same form: ``0:0-3 62.5:0-3,12-15``;
``allocated_resources`` are the processors at the start then. If the dispersal of the jobs was
measured, the columns ``mean_distance`` and ``extent`` follow (`simulator.results.placement`), and
for a machine with partitions a column ``partition``; for several centres the columns ``origin``,
``centre`` and ``cost``. The last column is always
``first_prediction_s``, the run time that the scheduler expected when the job was submitted.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from scheduler.model.procset import ProcSet
from simulator.results.schedule import Places, Schedule, Sizes
from simulator.traces.files import as_csv
from simulator.traces.swf import LARGEST
from simulator.traces.trace_jobs import TraceJobs

T = TypeVar("T")
NAME = "jobs.csv"
#: Columns in the order of Batsim 4.
COLUMNS = (
    "job_id", "workload_name", "profile", "submission_time", "requested_number_of_resources",
    "requested_time", "success", "final_state", "starting_time", "execution_time", "finish_time",
    "waiting_time", "turnaround_time", "stretch", "allocated_resources",
)  # fmt: skip
REJECTED, KILLED = "REJECTED", "COMPLETED_WALLTIME_REACHED"
SIZES, PLACES = "sizes", "places"
DISPERSAL = ("mean_distance", "extent")
PARTITION = "partition"
FIRST_PREDICTION = "first_prediction_s"


def encode(
    schedule: Schedule, workload: str, more: Mapping[str, NDArray[Any]] | None = None
) -> bytes:
    """Write the jobs of a schedule; one that could not run is REJECTED.

    Parameters
    ----------
    more : further columns by name, (n,) each.
    """
    columns = _columns(schedule, workload)
    numbers = range(1, len(schedule.jobs) + 1)
    if schedule.sizes is not None:
        columns[SIZES] = [_over_time(schedule.sizes.get(number, ())) for number in numbers]
    if schedule.places is not None:
        columns[PLACES] = [_over_time(schedule.places.get(number, ())) for number in numbers]
    if schedule.dispersal is not None:
        columns |= dict(zip(DISPERSAL, map(_values, schedule.dispersal.T), strict=True))
    if schedule.jobs.partitions:
        names = schedule.jobs.partitions
        columns[PARTITION] = [names[index] for index in schedule.jobs.partition.tolist()]
    columns |= {name: _values(column) for name, column in (more or {}).items()}
    if schedule.first_estimates is not None:
        columns[FIRST_PREDICTION] = _values(schedule.first_estimates)
    return as_csv(columns, zip(*columns.values(), strict=True))


def _columns(schedule: Schedule, workload: str) -> dict[str, list[Any]]:
    """Columns of Batsim by name."""
    jobs, started, run_s = schedule.jobs, schedule.started, schedule.run_s
    ran, names, held = ~np.isnan(started), job_names(schedule), schedule.allocated
    finished = started + run_s
    turnaround = finished - jobs.submitted
    stretch = np.divide(turnaround, run_s, out=np.full(len(jobs), np.nan), where=run_s > 0)
    states = np.where(schedule.killed, KILLED, "COMPLETED_SUCCESSFULLY")
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


def _values(column: NDArray[Any]) -> list[Any]:
    """Values of a column; numbers that do not exist are empty."""
    return ["" if value != value else value for value in column.tolist()]


def _over_time(values: Sizes | Places) -> str:
    """Write sizes, or processors with commas, from each time on."""
    return " ".join(f"{at}:{str(value).replace(' ', ',')}" for at, value in values)


def _spans(text: str, read: Callable[[str], T]) -> list[tuple[float, T]]:
    """Read what `_over_time` writes."""
    pairs = (part.split(":") for part in text.split())
    spans = [(_time(at), read(value)) for at, value in pairs]
    if not any(value for _, value in spans):
        raise ValueError("a job that ran has held processors")
    return spans


def _held(text: str) -> ProcSet:
    held = ProcSet.parse(text)
    if held and held.intervals[-1][1] >= 2**31:
        raise ValueError(f"{text} has no processors")
    return held


def _time(text: str) -> float:
    time = float(text)
    if not abs(time) <= LARGEST:
        raise ValueError(f"{text} is no time")
    return time


def _count(text: str) -> int:
    count = int(text)
    if not 0 <= count < 2**31:
        raise ValueError(f"{text} is no number of processors")
    return count


def read(path: Path) -> tuple[Schedule, str]:
    """Read a ``jobs.csv``, ours or Batsim's.

    Returns
    -------
    schedule : of the jobs that ran, in the order of the file, on the smallest machine that can have
        run them. Estimates, users, priorities and partitions are not read.
    workload : its name.

    Raises
    ------
    ReshapeError : it cannot be read, lacks a column, no job in it ran, or a field is wrong; the
        message names file, line and column.
    """
    lines = _lines(path)

    def column(name: str, kind: Any) -> list[Any]:
        return [_field(path, line, row, name, kind) for line, row in lines]

    def numbered(name: str, kind: Any) -> dict[int, Any]:
        return dict(enumerate(column(name, kind), 1))

    first = lines[0][1]
    allocated = numbered("allocated_resources", _held)
    sizes = numbered(SIZES, partial(_spans, read=_count)) if SIZES in first else None
    places = numbered(PLACES, partial(_spans, read=_held)) if PLACES in first else None
    submitted, started, ended = (
        np.array(column(name, _time))
        for name in ("submission_time", "starting_time", "finish_time")
    )
    jobs = TraceJobs.of(
        np.array([row["job_id"] for _, row in lines]),
        submitted,
        ended - started,
        np.array(column("requested_number_of_resources", _count)),
    )
    schedule = Schedule(
        jobs,
        0,
        started,
        ended,
        np.array([row["final_state"] == KILLED for _, row in lines]),
        allocated if all(allocated.values()) else None,
        sizes=sizes,
        places=places,
    )
    schedule = msgspec.structs.replace(schedule, processors=schedule.least_processors)
    return schedule, first["workload_name"]


def _lines(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Number and fields of each line of a job that ran, at least one."""
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
    return lines


def _field(path: Path, line: int, row: dict[str, str], name: str, kind: Any) -> Any:
    try:
        return kind(row[name] or "")
    except (TypeError, ValueError):
        text = f"{row[name]!r:.2000}"
        raise ReshapeError(f"{path}:{line}: {name}: {text} is not a valid value") from None


def read_metrics(path: Path) -> dict[str, Any]:
    """Contents of the metrics.json beside such a file; empty if there is none."""
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ReshapeError(f"{path}: cannot be read: {error}") from None
    return metrics if isinstance(metrics, dict) else {}


def job_names(schedule: Schedule) -> list[str]:
    """Numbers of the jobs as texts; see `names_of`."""
    return names_of(schedule.jobs.numbers)


def names_of(jobs: NDArray[np.int64] | NDArray[np.str_]) -> list[str]:
    """Numbers of jobs as texts; a repeated number is followed by the index of its job.

    Parameters
    ----------
    jobs : (n,) their numbers, in the order of submission.
    """
    numbers = jobs.tolist()
    first = {number: index for index, number in reversed([*enumerate(numbers)])}
    return [
        str(number) if first[number] == index else f"{number}#{index + 1}"
        for index, number in enumerate(numbers)
    ]
