"""Busy weeks out of a trace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reshape.errors import ReshapeError
from simulator.traces import derived as weeks
from simulator.traces.derived import WEEK_S, choose, cut
from simulator.traces.swf import Trace

DAY_S = 86400


def trace(*jobs: tuple[int, int, int, int]) -> Trace:
    """Jobs of (submit, wait, run, processors)."""
    submit, wait, run, processors = map(np.array, zip(*jobs, strict=True))
    columns = {"job": np.arange(len(jobs)) + 1, "submit": submit, "wait": wait, "run": run}
    return Trace("t.swf", ["; MaxProcs: 4"], columns | {"processors": processors})


def test_jobs_at_the_borders() -> None:
    begin = 1000
    week = int(WEEK_S)
    read = trace(
        (begin, 0, 4 * DAY_S, 4),
        (begin + 3 * DAY_S, DAY_S, 6 * DAY_S, 2),  # 3 of its 6 days in the second week
        (begin + week - 1, 1, 2 * DAY_S, 1),  # held nothing in the week of its submission
        (begin + week, 0, 0, 4),  # never ran
        (begin + week, -1, DAY_S, 1),  # unknown wait
    )
    (first,) = choose(read, 4, 20, 0.4)
    assert first.number == 1
    assert first.utilization == pytest.approx((4 * 4 + 2 * 3) / (4 * 7))
    assert (first.begin, first.jobs) == (begin, 3)
    second = choose(read, 4, 20, 0.2)[1]
    assert second.utilization == pytest.approx((2 * 3 + 1 * 2 + 1) / (4 * 7))
    part = cut(read, first)
    assert part.columns["submit"].tolist() == [0, 3 * DAY_S, week - 1]
    assert part.columns["run"].tolist() == [4 * DAY_S, 6 * DAY_S, 2 * DAY_S], "whole"
    assert len(cut(read, second)) == 2


@given(
    st.lists(st.tuples(*map(st.integers, (0, -1, 0, 0), (60, 9, 40, 3))), min_size=1, max_size=12)
)
def test_utilization_hour_by_hour(jobs: list[tuple[int, int, int, int]]) -> None:
    """Against a slow twin, with weeks of ten hours; times of whole hours."""
    read = trace(*((a * 3600, max(w * 3600, -1), r * 3600, p) for a, w, r, p in jobs))
    weeks.WEEK_S = 36000.0
    try:
        found = {week.begin: week for week in choose(read, 4, 99, 0.0)}
    finally:
        weeks.WEEK_S = WEEK_S
    first = min(job[0] for job in jobs)
    for week in found.values():
        hours = range(int(week.begin) // 3600, int(week.begin) // 3600 + 10)
        runs = [(a + max(w, 0), r, p) for a, w, r, p in jobs]
        held = sum(p for h in hours for start, r, p in runs if start <= h < start + r)
        assert week.utilization == pytest.approx(held / 40)
    came = {(job[0] - first) // 10 for job in jobs}
    assert {week.number - 1 for week in found.values()} == came


def test_more_than_wanted_are_drawn() -> None:
    week = int(WEEK_S)
    read = trace(*((i * week, 0, week, 4) for i in range(12)))
    chosen = [[week.number for week in choose(read, 4, 5, 0.9, seed)] for seed in (1, 1, 2, 3)]
    assert all(numbers == sorted(set(numbers)) and len(numbers) == 5 for numbers in chosen)
    assert chosen[0] == chosen[1]
    assert len(set(map(tuple, chosen))) > 1


def test_none_is_busy_enough() -> None:
    with pytest.raises(ReshapeError, match=r"none of its 1 week has .* 0.7 on 400 proc"):
        choose(trace((0, 0, DAY_S, 4)), 400, 20, 0.7)
