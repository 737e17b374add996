"""The performance profiler: robust times, benefit, expand potential, predictions."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from math import inf

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from reshape.wire.messages import ResizeTimes
from scheduler.model.history import (
    FIRST_RETRY,
    FIRST_RETRY_S,
    KEPT,
    History,
    Moves,
    slope_weights,
)


def ran(*visits: tuple[int, list[float]]) -> History:
    """History of a job that ran on these sizes, with these iteration times."""
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
    assert history.time_s(2) == 5.0  # lower median of 4, 5, 60, 6
    assert history.time_s(4) == 3.0
    assert history.time_s(3) is None


def test_one_bad_iteration_changes_little() -> None:
    assert ran((2, [5.0, 5.0, 5.1, 4.9, 500.0])).time_s(2) == 5.0
    assert ran((2, [9.0, 500.0, 5.0])).time_s(2) == 5.0, "delay is what noise is"


def test_a_long_job_needs_no_more_memory() -> None:
    history = ran((2, [5.0] * 10_000))
    assert len(history._timings[2].later) == KEPT
    assert history.points == history.settled == 10_000
    history = ran(*((2 + i % 2, [5.0]) for i in range(10_000)))
    assert len(history.visits) == KEPT
    assert history.visited == {2: 9998, 3: 9999}


@given(st.lists(st.sampled_from([4.0, 5.0, 6.0]), min_size=1, max_size=3 * KEPT))
@examples(50)
def test_the_typical_time_is_the_lower_median_of_what_is_kept(times: list[float]) -> None:
    history = ran((2, [9.0]))
    for place, seconds in enumerate(times, 1):
        history.record(seconds, 10.0 * place)
        kept = sorted(times[max(0, place - KEPT) : place])
        typical_s = kept[(len(kept) - 1) // 2]
        assert history.time_s(2) == history.predict_s(2) == typical_s
        assert history.predict_s(4) == typical_s / 2
        assert history.next_point_at == 10.0 * place + typical_s


def test_earlier_sizes() -> None:
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


@pytest.mark.parametrize(
    ("visits", "expected"),
    [
        ([(2, [12.0, 8.0]), (4, [9.0])], True),  # 4 has cold caches, as 2 had: 12 -> 9
        ([(2, [12.0, 8.0]), (4, [9.0, 9.0])], False),  # a later iteration on 4 decides
        ([(2, [12.0, 8.0]), (4, [90.0, 5.0])], True),
        ([(2, [8.0, 8.0]), (4, [5.0, 500.0, 5.1])], True),  # one bad iteration
    ],
)
def test_benefit_compares_cold_caches_with_cold_caches(
    visits: list[tuple[int, list[float]]], expected: bool
) -> None:
    assert ran(*visits).benefited() is expected


def test_a_job_that_returns_to_a_size_is_measured_again() -> None:
    history = ran((2, [8.0, 8.0]), (4, [5.0, 5.0]), (2, [9.0, 7.0, 7.0]), (4, [6.0]))
    assert history.time_s(2) == 7.0
    assert history.benefited() is True
    assert history.expanded_from() == 2


def test_a_prediction_lasts_over_a_resize_and_follows_the_next_measurement() -> None:
    history = ran((4, [10.0, 10.0]))
    assert history.predict_s(16) == 2.5, "by perfect scaling"
    history.configured(8, 0.0)
    assert history.predict_s(16) == 2.5
    history.record(10.0, 10.0)
    assert history.predict_s(16) == 10.0, "as twice the processors brought nothing"


@pytest.mark.parametrize("present", [2, 4])
def test_a_sweet_spot_is_forgotten_with_the_times_on_other_larger_sizes(present: int) -> None:
    history = History()
    for size in (2, 8, 4, 2, 4)[: 4 if present == 2 else 5]:
        history.configured(size, 0.0)
        history.record(10.0, 0.0)
    history.found_sweet_spot(2, 0.0, retry=True)
    for iteration in range(1, FIRST_RETRY):
        history.record(10.0, 10.0 * iteration)
        assert history.sweet_spot == 2
    history.record(10.0, 10.0 * FIRST_RETRY)
    assert history.sweet_spot is None
    assert [history.time_s(size) for size in (2, 8)] == [10.0, None]
    assert history.time_s(4) == (10.0 if present == 4 else None)


def test_a_sweet_spot_is_kept_longer_than_short_iterations_and_then_twice_as_long() -> None:
    history = ran((4, [0.1, 0.1]))
    begin = 0.0
    for kept_s in (FIRST_RETRY_S, 2 * FIRST_RETRY_S):
        history.found_sweet_spot(4, begin, retry=True)
        history.record(0.1, begin + kept_s - 0.1)
        assert not history.record_same(0.1, begin + kept_s), "which would keep the sweet spot"
        assert history.sweet_spot == 4
        begin += kept_s
        history.record(0.1, begin)
        assert history.sweet_spot is None


def test_a_disturbance_after_many_iterations_hides_no_faster_ones() -> None:
    history = ran((3, [60.0] * 9), (4, [45.0] * 9 + [62.0] * 5))
    assert history.fastest_s(3, 4) == (60.0, 45.0)


def test_no_more_iterations_of_the_size_before_are_compared_than_of_the_present_one() -> None:
    times = [70.0, 50.0, 58.0, 59.0, 60.0]
    history = ran((3, times), (4, [52.0] * 4))
    assert history.fastest_s(3, 4) == (58.0, 52.0)
    assert not history.record_same(52.0, 0.0), "the fast iteration counts from now on"
    history.record(52.0, 0.0)
    assert history.fastest_s(3, 4) == (50.0, 52.0)
    assert history.record_same(52.0, 0.0)


noise = st.lists(st.floats(1.0, 1.05), min_size=5, max_size=12)


@given(noise, st.data())
def test_the_typical_time_is_robust_against_a_minority_of_outliers(
    factors: list[float], data: st.DataObject
) -> None:
    """Cold caches and a minority of slow iterations leave the time within the noise."""
    bad = data.draw(st.sets(st.sampled_from(range(len(factors))), max_size=(len(factors) - 1) // 2))
    times = [10.0 * f * (1000 if i in bad else 1) for i, f in enumerate(factors)]
    history = ran((4, [data.draw(st.floats(10, 1000), label="warm-up"), *times]))
    typical = history.time_s(4)
    assert typical is not None
    assert 10.0 <= typical <= 10.5


@given(
    noise,
    noise,
    st.sampled_from([0.5, 0.8, 1.0, 1.3]),
    st.floats(1, 3),
    st.sets(st.integers(0, 4), max_size=2),
)
def test_benefit_is_right_in_spite_of_noise(
    old: list[float], new: list[float], ratio: float, warm: float, bad: set[int]
) -> None:
    """A gain of a fifth or more is seen, a loss too; warm-up and two bad iterations hide neither.

    Where nothing changed, a demanded benefit above the noise keeps the job from growing.
    """
    before = [8.0 * warm, *(8.0 * f for f in old)]
    after = [
        8.0 * ratio * warm,
        *(8.0 * ratio * f * (50 if i in bad else 1) for i, f in enumerate(new)),
    ]
    verdicts = [
        ran((4, before), (8, after[: count + 1])).benefited(0.1)
        for count in (0, *range(5, len(new) + 1))
    ]
    assert verdicts == [ratio < 1] * len(verdicts)


@given(
    st.floats(0.3, 1.0),
    st.lists(st.sampled_from([2, 3, 4, 6, 8, 12, 16, 24]), min_size=2, max_size=6, unique=True),
    st.sampled_from([1, 5, 20, 32]),
    st.data(),
)
def test_prediction_follows_a_power_law(
    exponent: float, sizes: list[int], size: int, data: st.DataObject
) -> None:
    """Exact measurements give the exact law, and one bad one, not the nearest, changes nothing."""
    sizes = sorted(sizes)
    exact = ran(*((s, [100 * s**-exponent] * 2) for s in sizes))
    predicted = exact.predict_s(size)
    assert predicted == pytest.approx(100 * size**-exponent)
    near = sorted(sizes, key=lambda s: (abs(np.log(size / s)), s))[:4]
    if len(near) == 4:
        bad = data.draw(st.sampled_from(near[1:]))
        wrong = ran(*((s, [100 * s**-exponent * (3 if s == bad else 1)] * 2) for s in sizes))
        assert wrong.predict_s(size) == pytest.approx(predicted)


def test_the_pause_of_a_planned_resize() -> None:
    everybody = Moves()
    history = ran((2, [5.0]))
    assert history.predict_pause_s(everybody) is None, "nothing was ever moved"
    history.data_bytes = 1000
    for seconds in (2.0, 2.2, 90.0):  # of other jobs; one is an outlier
        everybody.add(ResizeTimes(close_s=0.1, join_s=0.05, plan_s=0.05, move_s=seconds), 2000)
    assert history.predict_pause_s(everybody) == pytest.approx(0.2 + 1000 * 2.2 / 2000)
    history.moves.add(ResizeTimes(start_s=9.0, join_s=0.5, move_s=3.0), 1000)
    assert history.predict_pause_s(everybody) == pytest.approx(3.5), "its own count; start_s not"
    history.data_bytes = 3000
    assert history.predict_pause_s(everybody) == pytest.approx(9.5), "it has more data now"
    without_data = Moves()
    without_data.add(ResizeTimes(join_s=0.25), 0)
    assert without_data.pause_s(0) == 0.25, "no data, no move"
    assert without_data.pause_s(8) is None, "data, and no move was ever measured"


def test_many_resizes_need_no_more_memory() -> None:
    moves = Moves()
    for _ in range(1000):
        moves.add(ResizeTimes(join_s=1.0), 10)
    assert len(moves.fixed_s) == len(moves.byte_s) == KEPT


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
    assert history.expand_potential(1) == pytest.approx(1.0)  # 6 was a first iteration, 4 is used
    history.configured(8, 101.0)
    assert history.expand_potential(1) is None, "not measured on 8 yet"


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0.01, 100)), min_size=1, max_size=8))
def test_potential_of_any_history_is_a_number_or_unknown(visits: list[tuple[int, float]]) -> None:
    history = ran(*((size, [seconds]) for size, seconds in visits))
    for window in (1, 2, 3):
        potential = history.expand_potential(window)
        assert potential is None or np.isfinite(potential)


@examples(200)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=60),
    st.sets(st.integers(1, 6)),
    st.integers(1, 50),
)
def test_what_is_kept_of_the_visits_tells_as_much_as_all_of_them(
    sizes: list[int], measured: set[int], window: int
) -> None:
    history, visits = History(), list[int]()
    for at, size in enumerate(sizes):
        history.configured(size, at)
        if size in measured:
            history.record(10.0 / size + size, at)
        if not visits or visits[-1] != size:
            visits.append(size)
    present = visits[-1]
    assert history.visits == visits[-KEPT:]
    assert history.contractions() == sorted({n for n in visits if n < present}, reverse=True)
    growths = [one for one, other in pairwise(visits) if one < other == present]
    assert history.expanded_from() == (growths[-1] if growths else None)
    known = sorted(set(visits[-window - 1 :]) & measured)
    if len(visits) <= window or visits[0] not in measured or len(known) < 2:
        assert history.expand_potential(window) is None
    else:
        times = [history.time_s(n) for n in (visits[0], *known)]
        speedups = [times[0] / time for time in times[1:]]
        slope = sum(
            w * s for w, s in zip(slope_weights(tuple(known), present), speedups, strict=True)
        )
        assert history.expand_potential(window) == pytest.approx(slope)


def test_prediction() -> None:
    assert History().predict_s(4) is None
    assert ran((2, [12.0])).predict_s(4) == pytest.approx(
        6.0
    )  # perfect scaling without other sizes
    history = ran((2, [12.0]), (4, [6.0 * 2**0.5]))  # time ~ size ** -0.5
    assert history.predict_s(4) == pytest.approx(6.0 * 2**0.5)
    assert history.predict_s(8) == pytest.approx(6.0)
    assert history.predict_s(1) == pytest.approx(12.0 * 2**0.5)


def test_first_iterations_are_compared_with_first_iterations() -> None:
    """The first iteration on 4 is slower than later ones on 2, not than the first one on 2."""
    history = ran((2, [0.2172, 0.06, 0.06]), (4, [0.1086]))
    assert history.benefited() is True
    assert history.predict_s(6) == pytest.approx(0.1086 * 4 / 6)
    history.record(0.03, 1.0)
    assert history.predict_s(6) == pytest.approx(0.03 * 4 / 6), "later ones are known on both"
    history = ran((2, [0.3]), (4, [0.4, 0.1]))
    assert history.benefited() is False, "only first iterations are known on both"


def test_next_resize_point() -> None:
    history = ran((2, [12.0]))
    assert history.next_point_at == 24.0
    history.configured(4, 20.0)
    assert history.next_point_at == 26.0
    assert History().next_point_at == -inf  # unknown


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


@given(
    st.lists(st.integers(1, 500), min_size=2, max_size=6, unique=True),
    st.lists(st.floats(0.01, 100), min_size=6, max_size=6),
    st.integers(0, 5),
)
def test_slope_is_that_of_a_least_squares_fit(
    sizes: list[int], values: list[float], which: int
) -> None:
    sizes, values = sorted(sizes), values[: len(sizes)]
    at = sizes[which % len(sizes)]
    curve = np.polyfit(np.array(sizes) - at, values, min(2, len(sizes) - 1))
    found = sum(w * v for w, v in zip(slope_weights(tuple(sizes), at), values, strict=True))
    scale = max(values) / min(b - a for a, b in pairwise(sizes))
    assert found == pytest.approx(np.polyder(curve)[-1], rel=1e-6, abs=1e-7 * scale)


def test_a_performance_model_takes_the_place_of_the_fit() -> None:
    history = History(performance="amdahl:serial=0.5")
    assert history.predict_s(4) is None
    history.configured(2, 0.0)
    assert history.expand_potential(2) == pytest.approx(0.75 / (0.5 + 0.5 / 3) - 1)
    history.record(6.0, 6.0)
    assert history.predict_s(2) == 6.0
    assert history.predict_s(4) == pytest.approx(6.0 * (0.5 + 0.5 / 4) / 0.75)
    history.configured(4, 7.0)
    history.record(3.0, 10.0)
    assert history.predict_s(4) == 3.0, "a measured size is not predicted"
    assert history.predict_s(8) == pytest.approx(3.0 * (0.5 + 0.5 / 8) / (0.5 + 0.5 / 4))


def test_a_model_that_gives_no_speedup_leaves_the_fit() -> None:
    with_model, without = History(performance="no_such_module:Model"), History()
    for history in (with_model, without):
        history.configured(2, 0.0)
        history.record(6.0, 6.0)
        history.configured(4, 6.0)
        history.record(4.0, 10.0)
    assert with_model.predict_s(8) == without.predict_s(8)
    assert with_model.expand_potential(1) == without.expand_potential(1)
