"""The performance profiler: robust times, benefit, sweet spot material, expand potential."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.profiler import KEPT, History


def ran(*visits: tuple[int, list[float]]) -> History:
    """Give the history of a job that was on these sizes, with these iteration times."""
    history, now = History(), 0.0
    for size, times in visits:
        history.configured(size, now)
        for seconds in times:
            now += seconds
            history.record(seconds, now)
    return history


def test_the_first_iteration_after_a_resize_counts_only_alone() -> None:
    assert ran((2, [9.0])).time_s(2) == 9.0
    assert ran((2, [9.0, 4.0])).time_s(2) == 4.0
    history = ran((2, [9.0, 4.0, 5.0, 60.0]), (4, [8.0, 3.0]), (2, [7.0, 6.0]))
    assert history.time_s(2) == pytest.approx(5.5)  # median of 4, 5, 60, 6
    assert history.time_s(4) == 3.0
    assert history.time_s(3) is None


def test_one_bad_iteration_changes_little() -> None:
    assert ran((2, [5.0, 5.0, 5.1, 4.9, 500.0])).time_s(2) == pytest.approx(5.05)


def test_a_long_job_needs_no_more_memory() -> None:
    history = ran((2, [5.0] * 10_000))
    assert len(history._timings[2].later) == KEPT
    assert history.points == history.settled == 10_000


def test_where_it_came_from_and_may_go_back_to() -> None:
    history = ran((2, [1.0]), (4, [1.0]), (8, [1.0]), (4, [1.0]))
    assert history.visits == [2, 4, 8, 4]
    assert history.expanded_from() == 2
    assert history.contractions() == [2]
    history = ran((2, [1.0]), (4, [1.0]), (2, [1.0]))
    assert history.expanded_from() is None
    assert history.contractions() == []
    assert ran((2, [1.0]), (6, [1.0]), (4, []), (6, [])).expanded_from() == 4


@pytest.mark.parametrize(
    ("visits", "min_benefit", "expected"),
    [
        ([(2, [8.0])], 0.0, None),
        ([(2, [8.0]), (4, [])], 0.0, None),
        ([(2, [8.0]), (4, [7.9])], 0.0, True),
        ([(2, [8.0]), (4, [8.0])], 0.0, False),
        ([(2, [8.0]), (4, [9.0])], 0.0, False),
        ([(2, [8.0]), (4, [7.9])], 0.1, False),  # gained 1 % of the perfect 100 %
        ([(2, [8.0]), (4, [7.0])], 0.1, True),  # 14 %
        ([(100, [8.0]), (101, [7.95])], 0.5, True),  # 0.6 % of the perfect 1 %
        ([(2, [8.0]), (4, [5.0]), (2, [8.0])], 0.0, None),
    ],
)
def test_benefit(
    visits: list[tuple[int, list[float]]], min_benefit: float, expected: bool | None
) -> None:
    assert ran(*visits).benefited(min_benefit) is expected


def test_expand_potential_is_the_slope_of_the_speedup_curve() -> None:
    history = ran((2, [12.0]))
    assert history.expand_potential(1) is None, "not resized yet"
    history = ran((2, [12.0]), (4, [6.0]))
    assert history.expand_potential(2) is None
    assert history.expand_potential(1) == pytest.approx(0.5)  # speedup 1 -> 2 over 2 processors
    history = ran((2, [12.0]), (4, [6.0]), (6, [5.0]))
    curve = np.polyfit([2, 4, 6], [1, 2, 2.4], 2)  # PRIO 3.2
    assert history.expand_potential(2) == pytest.approx(np.polyval(np.polyder(curve), 6))
    assert history.expand_potential(1) == pytest.approx(0.2)  # of the last two sizes alone
    assert history.expand_potential(3) is None


def test_expand_potential_follows_the_measurements() -> None:
    history = ran((2, [12.0]), (4, [6.0]))
    assert history.expand_potential(1) == pytest.approx(0.5)
    history.record(4.0, 100.0)
    assert history.expand_potential(1) == pytest.approx(1.0)  # 6 was the first, 4 counts
    history.configured(8, 101.0)
    assert history.expand_potential(1) is None, "not measured on 8 yet"


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0.01, 100)), min_size=1, max_size=8))
def test_potential_of_any_history_is_a_number_or_unknown(visits: list[tuple[int, float]]) -> None:
    history = ran(*((size, [seconds]) for size, seconds in visits))
    for window in (1, 2, 3):
        potential = history.expand_potential(window)
        assert potential is None or np.isfinite(potential)


def test_prediction() -> None:
    assert History().predict_s(4) is None
    assert ran((2, [12.0])).predict_s(4) == pytest.approx(6.0)  # perfect, for want of better
    history = ran((2, [12.0]), (4, [6.0 * 2**0.5]))  # time ~ size ** -0.5
    assert history.predict_s(4) == pytest.approx(6.0 * 2**0.5)
    assert history.predict_s(8) == pytest.approx(6.0)
    assert history.predict_s(1) == pytest.approx(12.0 * 2**0.5)


def test_next_resize_point() -> None:
    history = ran((2, [12.0]))
    assert history.next_resize_point(13.0) == 24.0
    assert history.next_resize_point(30.0) == 30.0  # late: any moment
    history.configured(4, 20.0)
    assert history.next_resize_point(21.0) == 26.0
    assert History().next_resize_point(5.0) == 5.0


def test_importing_the_core_is_light() -> None:
    script = (
        "import sys, scheduler.core.core\n"
        "heavy = {'numpy', 'zmq', 'mpi4py', 'sqlite3', 'asyncio'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
