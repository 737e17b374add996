"""Schedules in the form that pages draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import isnan

import numpy as np

from scheduler.client.web.run_data import Blocked, JobRow, Kind, RunData, Segments, placed
from scheduler.model.procset import ProcSet
from simulator.results.jobs_csv import job_names
from simulator.results.schedule import Places, Schedule

_COUNTED = (
    "The simulation counted processors: each job is drawn on the lowest rows that are free, which"
    " are no particular processors"
)


def run_of_schedule(
    schedule: Schedule, name: str, processors: int, hosts: Mapping[str, ProcSet] | None = None
) -> RunData:
    """Make a schedule into a run; its times are seconds from the earliest submission on.

    Parameters
    ----------
    processors : of the machine.
    hosts : processors of each host.
    """
    submitted = schedule.jobs.submitted
    origin = float(submitted.min()) if len(submitted) else 0.0
    segments, notes = Segments(), []
    size = max(processors, schedule.least_processors if schedule.ran.any() else 0)
    if schedule.allocated is None:
        notes.append(_COUNTED)
        _add_counted(segments, schedule, size, origin)
    elif schedule.held_places is not None and schedule.places is not None:
        for number, places in schedule.held_places.items():
            end = float(schedule.ended[number - 1])
            _add_joining(segments, number - 1, places, schedule.places[number], end, origin)
    else:
        for job, begin, end, held in schedule.place_spans():
            segments.add(job, held, begin - origin, end - origin, Kind.COMPUTING)
    ended = schedule.ended[schedule.ran]
    return RunData(
        name,
        None,
        segments.rows(),
        float(ended.max()) - origin if len(ended) else 0.0,
        size,
        hosts or {},
        list(_rows(schedule, origin)),
        range(1, len(schedule.jobs) + 1),
        [
            Blocked(
                "reservation", each.processors, each.begin - origin, each.end - origin, each.name
            )
            for each in schedule.advance
        ],
        notes,
    )


def _add_counted(segments: Segments, schedule: Schedule, size: int, origin: float) -> None:
    spans = schedule.size_spans()
    order = np.lexsort((spans.job, spans.begin))
    columns = (spans.begin[order] - origin, spans.end[order] - origin, spans.processors[order])
    starts = zip(*(column.tolist() for column in columns), strict=True)
    for job, (held, begin, end) in zip(
        spans.job[order].tolist(), placed(starts, size), strict=True
    ):
        segments.add(job, held, begin, end, Kind.COMPUTING)


def _add_joining(
    segments: Segments, job: int, held: Places, computing: Places, end: float, origin: float
) -> None:
    """Add what a job held, apart where a group had not joined yet."""
    times = sorted({at for at, _ in (*held, *computing)} | {end})
    on, all_held = ProcSet(), ProcSet()
    changes: dict[float, list[tuple[bool, ProcSet]]] = {}
    for is_computing, places in ((False, held), (True, computing)):
        for at, processors in places:
            changes.setdefault(at, []).append((is_computing, processors))
    for begin, then in pairwise(times):
        for is_computing, processors in changes.get(begin, ()):
            if is_computing:
                on = processors
            else:
                all_held = processors
        segments.add(job, on & all_held, begin - origin, then - origin, Kind.COMPUTING)
        segments.add(job, all_held - on, begin - origin, then - origin, Kind.STARTING)


def _rows(schedule: Schedule, origin: float) -> Iterator[JobRow]:
    jobs = schedule.jobs
    sizes = jobs.processors.tolist()
    bounds = {name: column.tolist() for name, column in jobs.labels.items()}
    least, most = (
        [size if value < 1 else value for value, size in zip(column, sizes, strict=True)]
        for column in (
            bounds.get("min_processors", sizes),
            bounds.get("max_processors", sizes),
        )
    )
    users = jobs.users.tolist()
    killed = schedule.killed.tolist()
    for row, (label, submitted, started, ended) in enumerate(
        zip(
            job_names(schedule),
            (jobs.submitted - origin).tolist(),
            (schedule.started - origin).tolist(),
            (schedule.ended - origin).tolist(),
            strict=True,
        )
    ):
        has_run = not isnan(ended)
        yield JobRow(
            label,
            "",
            f"user {users[row]}" if users[row] >= 0 else "",
            submitted,
            sizes[row],
            least[row],
            most[row],
            float(jobs.estimate[row]),
            "CANCELLED" if not has_run else "TIMEOUT" if killed[row] else "COMPLETED",
            started if has_run else None,
            ended if has_run else None,
            reason="" if has_run else "it could not run",
        )
