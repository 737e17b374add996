"""Curves and rows of pictures by hand-made segments."""

from __future__ import annotations

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.procset import ProcSet
from scheduler.web.run_data import JobRow, Kind, RunData, Segments, averaged, placed


def job(submitted: float, started: float | None, ended: float | None, size: int) -> JobRow:
    state = "PENDING" if started is None else "RUNNING" if ended is None else "COMPLETED"
    return JobRow("1", "a", "u", submitted, size, size, size, 9.0, state, started, ended)


def test_curves_count_what_jobs_hold_and_who_waits() -> None:
    segments = Segments()
    segments.add(0, ProcSet.parse("0-1 4"), 2, 6, Kind.COMPUTING)
    segments.add(0, ProcSet.parse("0"), 3, 4, Kind.LENT)  # a step: its job holds this processor
    segments.add(1, ProcSet.parse("2"), 4, 8, Kind.STARTING)
    jobs = [job(1, 2, 6, 3), job(2, 4, None, 1), job(5, None, None, 7)]
    curves = RunData("r", None, segments.rows(), 8, 8, jobs=jobs, numbers=[1, 2, 3]).curves
    times, held = curves["busy"]
    assert times.tolist() == [2, 4, 6, 8]
    assert held.tolist() == [3, 4, 1, 0]
    times, waiting = curves["waiting"]
    assert (times.tolist(), waiting.tolist()) == ([1, 2, 4, 5, 8], [1, 1, 0, 1, 0])
    assert curves["wanted"][1].tolist() == [3, 1, 0, 7, 0]


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=30),
    st.lists(st.integers(0, 9), min_size=30, max_size=30),
)
@examples(50)
def test_a_shortened_curve_has_the_same_area(gaps: list[int], levels: list[int]) -> None:
    times = np.cumsum(np.array([0, *gaps], np.float64))
    values = np.array([*levels[: len(gaps)], 0], np.float64)
    at, means = averaged((times, values), 0.0, times[-1], 3)
    widths = np.diff(np.append(at, times[-1]))
    assert float((means * widths).sum()) == pytest.approx(float((values[:-1] * gaps).sum()))


def test_jobs_without_processors_get_the_lowest_free_rows() -> None:
    rows = placed([(0, 5, 2), (1, 3, 1), (3, 9, 3), (5, 6, 2)], 6)
    assert [str(held) for held, _, _ in rows] == ["0-1", "2", "2-4", "0-1"]
