"""The fake predictor of GUIM, chapter 5: who is predicted exactly, and the range of the errors."""

from __future__ import annotations

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import SHARED

from simulator.studies.fmodels import PAPER, deviation_of, deviation_of_percentage
from simulator.traces import swf
from simulator.traces.normalise import NEEDED, Rules, machine_size, normalise
from simulator.workload_models.fake_predictions import (
    QUALITATIVE,
    QUANTITATIVE,
    FakePredictor,
    bounds_of,
)

BOUNDED = {"run": (100, 1000), "processors": (4, 16), "area": (500, 8000)}
TRACES = SHARED / "traces"
SETTINGS = examples(50)


def fake(n: int = 400, seed: int = 1) -> FakePredictor:
    rng = np.random.default_rng(0)
    run_s = np.round(np.exp(rng.uniform(0, 9, n)))
    sizes = np.round(np.exp(rng.uniform(0, 3.5, n)))
    executables = np.where(rng.random(n) < 0.5, rng.integers(0, 100, n), 7)
    executables[::10] = -1
    return FakePredictor(run_s, sizes, executables, BOUNDED, seed)


def test_members_of_the_categories_by_hand() -> None:
    run_s = np.array([50.0, 150, 2000, 50])
    sizes = np.array([1.0, 8, 32, 32])
    jobs = FakePredictor(run_s, sizes, np.full(4, -1), BOUNDED, 1)
    expected = {
        "high-processors": [0, 0, 1, 1],
        "low-processors": [1, 0, 0, 0],
        "large": [0, 0, 1, 0],
        "short": [1, 0, 0, 1],
        "high-area": [0, 0, 1, 0],
        "low-area": [1, 0, 0, 0],
        "more-executed": [0, 0, 0, 0],
        "low-processors-and-short": [1, 0, 0, 0],
        "not-small": [0, 1, 1, 1],
        "pure-equal": [0, 0, 0, 0],
    }
    assert {*expected, "equal"} == {*QUANTITATIVE}
    for category, members in expected.items():
        assert jobs.members(category).tolist() == [bool(m) for m in members], category  # type: ignore[arg-type]


def test_often_executed_applications_have_more_than_50_jobs() -> None:
    executables = np.array([1] * 51 + [2] * 50 + [-1] * 60)
    n = len(executables)
    jobs = FakePredictor(np.ones(n), np.ones(n), executables, BOUNDED, 1)
    assert jobs.members("more-executed").tolist() == [True] * 51 + [False] * 110


@SETTINGS
@given(st.sampled_from(QUANTITATIVE), st.floats(0, 10000), st.floats(0, 100), st.integers(0, 50))
def test_errors_are_within_their_range(category, error, deviation, seed) -> None:  # type: ignore[no-untyped-def]
    jobs = fake(seed=seed)
    predicted = jobs.quantitative(category, error, deviation)
    almost = (predicted >= jobs.run_s) & (predicted <= 1.05 * jobs.run_s)
    if category != "equal":
        assert almost[jobs.members(category)].all()
    most = 1 + (error + 6 * deviation) / 100
    assert (predicted <= np.maximum(1.05, most) * jobs.run_s + 1e-6).all()
    assert (predicted >= np.minimum(1.0, jobs.run_s)).all()


def test_half_of_the_jobs_are_exact_with_equal_and_errors_go_both_ways() -> None:
    jobs = fake(4000)
    equal = jobs.quantitative("equal", 10000, 25)
    exact = (equal >= jobs.run_s) & (equal <= 1.05 * jobs.run_s)
    assert 0.45 < exact.mean() < 0.56
    all_jobs = jobs.quantitative("pure-equal", 50, 2)
    assert 0.4 < (all_jobs < jobs.run_s).mean() < 0.6
    assert (all_jobs >= 0.4 * jobs.run_s).all()


def test_the_same_seed_gives_the_same_draws_for_all_errors() -> None:
    small, large = fake().quantitative("equal", 100, 0), fake().quantitative("equal", 200, 0)
    assert (small == fake().quantitative("equal", 100, 0)).all()
    same = small == large  # the jobs that are predicted almost exactly
    assert 0.4 < same.mean() < 0.6
    assert (small[same] <= 1.05 * fake().run_s[same]).all()
    assert (small != fake(seed=2).quantitative("equal", 100, 0)).any()


def test_converted_jobs_change_their_nature() -> None:
    jobs = fake()
    short, large = jobs.members("short"), jobs.members("large")
    predicted = jobs.qualitative("both", 100, 0)
    assert (predicted[short] > BOUNDED["run"][1]).all()
    assert (predicted[large] < BOUNDED["run"][0]).all()
    assert (predicted >= 1).all()
    rest = ~(short | large)
    assert (predicted[rest] <= 1.05 * jobs.run_s[rest]).all()
    assert (jobs.qualitative("short2large", 100, 0)[large] >= jobs.run_s[large]).all()
    assert (jobs.qualitative("large2short", 100, 0)[short] >= jobs.run_s[short]).all()
    some = jobs.qualitative("short2large", 30, 0)
    share = (some[short] > BOUNDED["run"][1]).mean()
    assert 0.15 < share < 0.45
    assert len(QUALITATIVE) == 3


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="must be one of high-processors"):
        fake().quantitative("huge", 5, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be one of short2large"):
        fake().qualitative("short", 5, 1)  # type: ignore[arg-type]


def test_deviations_belong_to_the_printed_errors() -> None:
    assert [deviation_of(e, "narrow") for e in (5, 50, 100, 10000)] == [0.5, 0.5, 2, 25]
    assert [deviation_of(e, "wide") for e in (5, 400, 10000)] == [0.5, 60, 1000]
    assert [deviation_of_percentage(p) for p in (5, 80, 90, 100)] == [0.05, 4, 4, 5]


@pytest.mark.skipif(not TRACES.is_dir(), reason="the traces are not beside the checkout")
@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("CTC-SP2-1996-3.1-cln.swf.gz", "CTC"),
        ("KTH-SP2-1996-2.1-cln.swf.gz", "KTH"),
        ("SDSC-Par-1996-3.1-cln.swf.gz", "SDSC-Par-96"),
    ],
)
def test_the_bounds_of_run_times_are_those_of_table_5_1(file: str, name: str) -> None:
    trace = swf.read(TRACES / file, fields=NEEDED)
    jobs, _ = normalise(trace, machine_size(trace), Rules(overrun="keep"))
    assert bounds_of(jobs.run) == pytest.approx(PAPER.bounds[name]["run"], rel=0.01)
