"""Curves and rows of pictures by hand-made segments."""

from __future__ import annotations

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from scheduler.client.web.run_data import JobRow, Kind, RunData, Segments, curve_of
from scheduler.model.procset import ProcSet


def job(submitted: float, started: float | None, ended: float | None, size: int) -> JobRow:
    state = "PENDING" if started is None else "RUNNING" if ended is None else "COMPLETED"
    sizes = {"requested": size, "least": size, "most": size, "walltime_s": 9.0}
    times = {"submitted": submitted, "queued": submitted, "started": started, "ended": ended}
    return JobRow(1, label="", name="a", user="u", state=state, **sizes, **times)


def test_curves_count_what_jobs_hold_and_who_waits() -> None:
    segments = Segments()
    segments.add(0, ProcSet.parse("0-1 4"), 2, 6, Kind.COMPUTING)
    segments.add(0, ProcSet.parse("0"), 3, 4, Kind.LENT)  # a step: its job holds this processor
    segments.add(1, ProcSet.parse("2"), 4, 8, Kind.STARTING)
    jobs = [job(1, 2, 6, 3), job(2, 4, None, 1), job(5, None, None, 7)]
    curves = RunData("r", None, segments.rows(), 8, 8, jobs=jobs).curves(0, 9)
    times, held = curves["busy"]
    assert times.tolist() == [0, 2, 4, 6, 8]
    assert held.tolist() == [0, 3, 4, 1, 0]
    times, waiting = curves["waiting"]
    assert (times.tolist(), waiting.tolist()) == ([0, 1, 2, 4, 5, 8], [0, 1, 1, 0, 1, 0])


def test_a_job_that_went_back_to_the_queue_waits_from_then_on() -> None:
    again = job(1, 7, None, 1)
    again.queued = 5
    run = RunData("r", None, Segments().rows(), 8, 8, jobs=[again])
    times, waiting = run.curves(0, 9)["waiting"]
    assert (times.tolist(), waiting.tolist()) == ([0, 5, 7], [0, 1, 0])


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 50), st.integers(1, 9)), max_size=40))
@examples(50)
def test_a_shortened_curve_has_the_same_area(spans: list[tuple[int, int, int]]) -> None:
    begins, lengths, amounts = (np.array([span[i] for span in spans], np.float64) for i in range(3))
    areas = []
    for most in (2000, 7):
        times, values = curve_of(begins, begins + lengths, amounts, 10.0, 80.0, most)
        areas.append(float((np.diff(np.append(times, 80.0)) * values).sum()))
    within = np.clip(begins + lengths, 10, 80) - np.clip(begins, 10, 80)
    assert areas == [pytest.approx(float((within * amounts).sum()))] * 2
