"""Schedules in the form that pages draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

import numpy as np

from scheduler.client.web.run_data import Blocked, JobRow, Kind, RunData, Segments
from scheduler.model.procset import ProcSet
from simulator.results.jobs_csv import job_names
from simulator.results.schedule import Schedule

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
    size = max(processors, schedule.least_processors if schedule.ran.any() else 0)
    segments = Segments()
    for job, begin, end, held, kind in _spans(schedule, size):
        segments.add(job, held, begin - origin, end - origin, kind)
    ended = schedule.ended[schedule.ran]
    now = float(ended.max()) - origin if len(ended) else 0.0
    reserved = [
        Blocked("reservation", each.processors, each.begin - origin, each.end - origin, each.name)
        for each in schedule.advance
    ]
    jobs, notes = [*_rows(schedule, origin)], [_COUNTED] if schedule.allocated is None else []
    return RunData(name, None, segments.rows(), now, size, hosts or {}, jobs, reserved, notes)


def _spans(schedule: Schedule, size: int) -> Iterator[tuple[int, float, float, ProcSet, Kind]]:
    """Yield job (its index), begin, end (s), processors of `size` and kind of each segment."""
    if schedule.allocated is None:
        spans = schedule.size_spans()
        free_from = np.full(size, -inf)
        for each in np.lexsort((spans.job, spans.begin)).tolist():
            begin, end = float(spans.begin[each]), float(spans.end[each])
            rows = np.flatnonzero(free_from <= begin)[: spans.processors[each]]
            free_from[rows] = end
            yield int(spans.job[each]), begin, end, ProcSet.of(rows.tolist()), Kind.COMPUTING
        return
    computing: dict[int, list[tuple[float, float, ProcSet]]] = {}
    for job, begin, end, held in schedule.place_spans():
        yield job, begin, end, held, Kind.COMPUTING
        computing.setdefault(job, []).append((begin, end, held))
    for job, begin, end, held in schedule.place_spans(joining=True) if schedule.held else ():
        for since, until, on in computing[job]:  # what it holds beyond that has not joined yet
            yield job, max(begin, since), min(end, until), held - on, Kind.STARTING


def _rows(schedule: Schedule, origin: float) -> Iterator[JobRow]:
    jobs, ran = schedule.jobs, schedule.ran.tolist()
    sizes = jobs.processors
    bounds = [jobs.labels.get(f"{name}_processors", sizes) for name in ("min", "max")]
    least, most = (np.where(column < 1, sizes, column).tolist() for column in bounds)
    times = [jobs.submitted, schedule.started, schedule.ended]
    submitted, started, ended = ((column - origin).tolist() for column in times)
    for i, label in enumerate(job_names(schedule)):
        label, user = "" if label == str(i + 1) else label, int(jobs.users[i])
        who, at, walltime_s = f"user {user}" if user >= 0 else "", submitted[i], jobs.estimate[i]
        size = int(sizes[i])
        row = JobRow(i + 1, label, "", who, at, at, size, least[i], most[i], float(walltime_s))
        if ran[i]:
            row.state = "TIMEOUT" if schedule.killed[i] else "COMPLETED"
            row.started, row.ended = started[i], ended[i]
        else:
            row.reason = "it could not run"
        yield row
