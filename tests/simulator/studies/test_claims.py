"""Verdicts on claims, and their table."""

from __future__ import annotations

from math import nan

import pytest

from simulator.results.statistics import Interval
from simulator.studies.claims import (
    Claim,
    as_records,
    as_table,
    by_condition,
    by_coverage,
    by_range,
    by_ratio,
    by_sign,
    outcome_of,
    plus_minus,
    with_limits,
)

SINGLE = Interval(1.0, nan, nan, 1)


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        (Interval(2.0, 1.0, 3.0, 5), "held"),
        (Interval(-2.0, -3.0, -1.0, 5), "opposite"),
        (Interval(1.0, -1.0, 3.0, 5), "open"),
        (Interval(1.0, 0.0, 2.0, 5), "open"),
        (SINGLE, "open"),
    ],
)
def test_by_sign(interval: Interval, verdict: str) -> None:
    assert by_sign(interval) == verdict


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.5, "held"), (3.0, "held"), (4.0, "not held"), (None, "not held")]
)
def test_by_coverage(value: float | None, verdict: str) -> None:
    assert by_coverage(Interval(1.0, 0.5, 3.0, 5), value) == verdict


def test_a_single_run_leaves_a_value_open() -> None:
    assert by_coverage(SINGLE, 1.0) == "open"


@pytest.mark.parametrize(
    ("holds", "verdict"), [(True, "held"), (False, "not held"), (None, "open")]
)
def test_by_condition(holds: bool | None, verdict: str) -> None:
    found = by_condition(holds)
    assert found == verdict
    assert Claim("faster", "yes", verdict=found).held is holds


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.5, 0.8, "held: a larger gain"),
        (0.8, 0.95, "held"),
        (0.92, 0.99, "a smaller gain"),
        (0.9, 1.0, "not held: no clear gain"),
        (1.1, 1.2, "not held: worse"),
        (nan, nan, "not held: no clear gain"),
    ],
)
def test_by_ratio(low: float, high: float, verdict: str) -> None:
    assert by_ratio(Interval((low + high) / 2, low, high, 5), 0.9) == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.2, 0.3, "held"),
        (0.1, 0.3, "open"),
        (0.31, 0.4, "opposite"),
        (0.0, 0.1, "opposite"),
        (nan, nan, "open"),
    ],
)
def test_by_range(low: float, high: float, verdict: str) -> None:
    assert by_range(Interval((low + high) / 2, low, high, 5), 0.2, 0.3) == verdict


def test_records_have_the_shared_form() -> None:
    claim = Claim("A is faster", Interval(2.0, 1.0, 3.0, 5), 2.5, "held", id="3.1")
    (record,) = as_records([claim])
    assert record == {
        "id": "3.1",
        "text": "A is faster",
        "paper": 2.5,
        "ours": 2.0,
        "low": 1.0,
        "high": 3.0,
        "verdict": "held",
    }
    single, words, number = as_records(
        [
            Claim("A", SINGLE, verdict="open", id="a"),
            Claim("B", "none", verdict="open", id="b"),
            Claim("C", "2 of 3", verdict="not held", where="4", id="c", number=2),
        ],
        {"section": "where", "found": "ours"},
    )
    assert (single["low"], single["high"]) == (None, None)
    assert (words["ours"], words["low"], words["high"]) == (None, None, None)
    assert (number["ours"], number["section"], number["found"]) == (2.0, "4", "2 of 3")
    with pytest.raises(ValueError, match="not held, opposite or open"):
        as_records([Claim("A", SINGLE, verdict="perhaps", id="a")])
    with pytest.raises(ValueError, match="low is given twice"):
        as_records([claim], {"low": "text"})
    with pytest.raises(ValueError, match="an id of its own"):
        as_records([claim, claim])


def test_table() -> None:
    claims = [
        Claim("A is faster", Interval(2.0, 1.0, 3.0, 5), 2.5, "held", where="3.1"),
        Claim("B is slower", Interval(-1.0, -2.0, 0.5, 5), None, "open", where="3.2"),
    ]
    columns = {"section": "where", "claim": "text", "paper": "paper", "ours": "ours"}
    assert as_table(claims, columns).splitlines() == [
        "SECTION  CLAIM        PAPER                 OURS",
        "3.1      A is faster    2.5    2.00 [1.00, 3.00]",
        "3.2      B is slower         -1.00 [-2.00, 0.50]",
    ]


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        ("held", "held"),
        ("not held", "opposite"),
        ("opposite", "opposite"),
        ("open", "open"),
        ("", "open"),
        ("not held: worse", "opposite"),
        ("not held: no clear gain", "open"),
        ("held: a larger gain", "held"),
        ("a smaller gain", "held"),
    ],
)
def test_every_verdict_is_one_of_three(verdict: str, outcome: str) -> None:
    assert outcome_of(verdict) == outcome


def test_intervals_in_text() -> None:
    interval = Interval(12.34, 10.34, 14.34, 5)
    assert plus_minus(interval) == "12.3 ± 2.0"
    assert plus_minus(interval, "+.0f") == "+12 ± 2"
    assert plus_minus(SINGLE) == "1.0"
    assert with_limits(interval) == "12.34 [10.34, 14.34]"
