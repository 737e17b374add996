"""Speedup models: known values, limits, continuity, and their texts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reshape.speedup import (
    MODELS,
    Amdahl,
    Downey,
    Model,
    Prio,
    Tabulated,
    is_own_class,
    named,
    parse,
    speedup_by,
    written,
)


def test_both_readings_of_the_formula_of_prio() -> None:
    assert Prio(0.8).factor(10, 20) == pytest.approx(2**0.8)
    assert Prio(0.8).factor(10, 40) == pytest.approx(4 ** (0.8**3))
    assert Prio(0.8, "printed").factor(10, 40) == pytest.approx(4**2.4)
    curve = [Prio(0.75).factor(400, size) for size in range(400, 2001, 50)]
    assert curve.index(max(curve)) * 50 + 400 == pytest.approx(1200, abs=150)  # figure 2


@given(start=st.integers(1, 100), size=st.integers(1, 400), alpha=st.floats(0.1, 1))
def test_the_sweet_spot_reading_grows_at_most_linearly(start: int, size: int, alpha: float) -> None:
    assert Prio(alpha).factor(start, start) == 1
    if size > start:
        assert 1 <= Prio(alpha).factor(start, size) <= size / start * (1 + 1e-12)


def test_amdahl() -> None:
    assert Amdahl(0.1).factor(1, 10) == pytest.approx(1 / (0.1 + 0.09))
    assert Amdahl(0.0).factor(3, 12) == 4
    assert Amdahl(1.0).factor(3, 12) == 1


def downey_by_profile(A: float, sigma: float, n: int) -> float:
    """Compute the speedup from the profile of parallelism that Downey's formulas assume."""
    if sigma <= 1:  # (fraction of the time, parallelism)
        profile = [(sigma / 2, 1.0), (1 - sigma, A), (sigma / 2, 2 * A - 1)]
    else:
        profile = [(sigma, 1.0), (1.0, A + A * sigma - sigma)]
    work = sum(span * width for span, width in profile)
    return work / sum(span * max(1.0, width / n) for span, width in profile)


@given(A=st.floats(1, 500), sigma=st.floats(0, 5), n=st.integers(1, 2000))
def test_downey_equals_the_speedup_of_its_profile(A: float, sigma: float, n: int) -> None:
    assert Downey(A, sigma).speedup(n) == pytest.approx(downey_by_profile(A, sigma, n), rel=1e-9)


def test_downey_at_its_limits() -> None:
    assert Downey(64, 0).factor(1, 64) == 64
    assert Downey(64, 0).factor(64, 640) == 1
    low, high = Downey(64, 1.0), Downey(64, 1.0 + 1e-12)
    assert [low.speedup(n) for n in (1, 50, 100, 127)] == pytest.approx(
        [high.speedup(n) for n in (1, 50, 100, 127)]
    )
    assert Downey(10, 2.0).speedup(28) == 10  # A + A sigma - sigma


def test_a_table_is_interpolated_and_constant_beyond_its_ends() -> None:
    table = Tabulated({2: 12.0, 8: 3.0, 16: 3.0})
    assert [table.time(size) for size in (2, 4, 8, 11, 99)] == pytest.approx([12, 6, 3, 3, 3])
    assert table.time(1) == 12
    assert table.factor(2, 8) == 4
    longer = Tabulated({2: 12.0, 8: 3.0}, beyond=Amdahl(0.0))
    assert (longer.time(16), longer.time(1)) == (1.5, 24)


@given(
    st.one_of(
        st.builds(Prio, st.floats(0.01, 1), st.sampled_from(["sweet-spot", "printed"])),
        st.builds(Amdahl, st.floats(0, 1)),
        st.builds(Downey, st.floats(1, 1e6), st.floats(0, 100)),
        st.builds(Tabulated, st.dictionaries(st.integers(1, 99), st.floats(1e-3, 1e6), min_size=1)),
    )
)
def test_parse_reads_what_written_returns(model: Model) -> None:
    assert parse(written(model)) == model


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pro", "unknown speedup model 'pro'; did you mean prio?"),
        ("prio:alpah=1", "unknown key 'alpah' in 'alpah=1'; did you mean alpha?"),
        ("prio:alpha=2", "alpha must be > 0 and <= 1, got 2.0"),
        ("prio:alpha", "'prio:alpha': 'alpha' has no value; write alpha=VALUE"),
        ("amdahl:serial=-1", "serial must be >= 0 and <= 1, got -1.0"),
        ("downey:A=0.5", "A must be >= 1, got 0.5"),
        ("downey:sigma=-1", "sigma must be >= 0, got -1.0"),
        ("table", "times must name at least one size"),
        ("table:0=1", "a size must be >= 1, got 0"),
        ("table:2=0", "the time on 2 must be > 0, got 0.0"),
    ],
)
def test_the_error_of_a_wrong_model_names_value_and_fix(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        parse(text)


def test_models_have_default_parameters() -> None:
    assert [parse(name) for name in MODELS if name != "table"] == [Prio(), Amdahl(), Downey()]


class Stepped:
    """A user's own model: linear speedup up to a size."""

    def __init__(self, most: int = 4, failing: int = 0) -> None:
        self.most, self.failing = most, failing

    def factor(self, start: int, size: int) -> float:
        if size == self.failing:
            raise KeyError(size)
        return min(size, self.most) / start


def test_a_model_is_named_by_its_formula_or_by_a_class() -> None:
    assert named("amdahl:serial=0.5") == Amdahl(0.5)
    assert not is_own_class("amdahl:serial=0.5")
    text = f"{__name__}:Stepped,most=6"
    assert is_own_class(text)
    assert [speedup_by(text, 2, size) for size in (2, 4, 6, 8)] == [1.0, 2.0, 3.0, 3.0]


def test_a_result_that_is_no_speedup_counts_as_none() -> None:
    assert speedup_by(f"{__name__}:Stepped,failing=4", 2, 4) is None
    assert speedup_by(f"{__name__}:Stepped,most=0", 2, 4) is None
    assert speedup_by("no_such_module:Model", 2, 4) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no_such_module:Model", "No module named 'no_such_module'"),
        (f"{__name__}:Stepped,least=3", "unexpected keyword argument 'least'"),
        (f"{__name__}:re", "'module' object is not callable"),
        ("builtins:dict", "has no method factor(start, size)"),
        ("amdahl:serial=7", "serial must be >= 0 and <= 1, got 7.0"),
    ],
)
def test_the_error_of_a_class_names_the_cause(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        named(text)
