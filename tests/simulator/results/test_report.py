"""Schedules as runs that pages draw."""

from __future__ import annotations

import numpy as np

from scheduler.client.web.run_data import Kind
from scheduler.model.procset import ProcSet
from simulator.results.report import run_of_schedule
from simulator.results.schedule import Schedule
from simulator.traces.trace_jobs import TraceJobs


def schedule(*spans: tuple[float, float, int], **fields: object) -> Schedule:
    """Jobs that are submitted at 0, each with its start, its end and its processors."""
    started, ended, sizes = np.array(spans, np.float64).T
    count = len(spans)
    jobs = TraceJobs.of(np.arange(count) + 7, np.zeros(count), ended - started, sizes.astype(int))
    return Schedule(jobs, 6, started, ended, np.zeros(count, np.bool_), **fields)  # type: ignore[arg-type]


def test_jobs_without_processors_get_the_lowest_free_rows() -> None:
    run = run_of_schedule(schedule((0, 5, 2), (1, 3, 1), (3, 9, 3), (5, 6, 2)), "r", 6)
    drawn = [(row[1], row[2]) for row in run.segments.tolist()]
    assert drawn == [(0, 2), (2, 1), (2, 3), (0, 2)]
    assert "lowest rows that are free" in run.notes[0]
    assert [(job.number, job.label) for job in run.jobs][:2] == [(1, "7"), (2, "8")]


def test_processors_that_have_not_joined_are_apart() -> None:
    two, four = ProcSet.span(0, 2), ProcSet.span(0, 4)
    resized = schedule(
        (0, 9, 2),
        allocated={1: two},
        places={1: ((0.0, two), (5.0, four))},
        held={1: ((0.0, two), (3.0, four))},
    )
    rows = run_of_schedule(resized, "r", 6).segments.tolist()
    assert sorted(row[1:] for row in rows) == [
        (0, 2, 0.0, 5.0, Kind.COMPUTING),
        (0, 4, 5.0, 9.0, Kind.COMPUTING),
        (2, 2, 3.0, 5.0, Kind.STARTING),
    ]


def test_a_job_that_could_not_run_waits() -> None:
    run = run_of_schedule(schedule((0, 5, 2), (np.nan, np.nan, 9)), "r", 6)
    assert [(job.group, job.state) for job in run.jobs] == [
        ("ended", "COMPLETED"),
        ("queued", "PENDING"),
    ]
    assert run.jobs[1].reason == "it could not run"
