"""Verdicts on claims, and their table."""

from __future__ import annotations

import json
import subprocess
import sys
from math import inf, nan
from pathlib import Path

import pytest
import yaml

from simulator.results.statistics import Interval
from simulator.studies.claims import (
    NOT_RUN,
    Claim,
    as_records,
    as_table,
    by_coverage,
    by_range,
    by_sign,
    declared,
    exactly,
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
    ("value", "verdict"), [(0.5, "held"), (3.0, "held"), (4.0, "opposite"), (None, "opposite")]
)
def test_by_coverage(value: float | None, verdict: str) -> None:
    assert by_coverage(Interval(1.0, 0.5, 3.0, 5), value) == verdict


def test_a_single_run_leaves_a_value_open() -> None:
    assert by_coverage(SINGLE, 1.0) == "open"


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


def test_numbers_without_chance_have_no_width() -> None:
    assert by_range(exactly(0.25), 0.2, 0.3) == "held"
    assert by_range(exactly(inf), 0.2, 0.3) == "opposite"
    assert by_range(exactly(None), 0.2, 0.3) == "open"


def test_records() -> None:
    claim = Claim("A is faster", Interval(2.0, 1.0, 3.0, 5), 2.5, "held", "PRIO table 1", id="1a")
    (record,) = as_records([claim])
    assert record == {
        "id": "1a",
        "text": "A is faster",
        "paper": 2.5,
        "ours": 2.0,
        "low": 1.0,
        "high": 3.0,
        "verdict": "held",
        "part": "PRIO table 1",
        "where": "",
        "remark": "",
    }
    part = "LOC figure 2"
    single, missing = as_records(
        [Claim("A", SINGLE, part=part), Claim("B", NOT_RUN, "7 to 100", where="SDSC", part=part)]
    )
    assert (single["id"], single["ours"], single["low"], single["high"]) == (
        "LOC figure 2, 1", 1.0, None, None,
    )  # fmt: skip
    assert (missing["ours"], missing["where"], missing["verdict"]) == (None, "SDSC", "open")
    with pytest.raises(ValueError, match="not held, opposite or open"):
        as_records([Claim("A", SINGLE, verdict="perhaps", id="a")])
    with pytest.raises(ValueError, match="an id of its own"):
        as_records([claim, claim])


def test_a_file_declares_claims_for_each_point() -> None:
    """A grid, or points with the paper's value; ranges, values, and claims that nothing can run."""
    groups = yaml.safe_load("""
    - part: table 1
      each: {queue: [short, long], policy: [easy, fcfs]}
      claims:
        - {text: "{policy}, {queue}: shorter waits", ours: [gain, "{policy}"], above: 0,
           paper: {short: {easy: 3.0, fcfs: 1.0}, long: {easy: 5.0}}, id: "{policy}-{queue}"}
    - part: section 2
      each: [{policy: easy, paper: 2.5}]
      claims:
        - {text: "{policy} gains {paper:g}", ours: [gain, "{policy}"], equals: paper}
        - {text: less than 2, ours: [gain, "{policy}"], below: 2}
        - {text: 1 to 3, ours: [gain, "{policy}"], within: [1, 3]}
        - {text: cannot be run}
    """)
    gains = {"easy": Interval(2.0, 1.0, 3.0, 5), "fcfs": Interval(-2.0, -3.0, -1.0, 5)}
    claims = declared(groups, {"gain": gains.__getitem__})
    assert [(c.part, c.text, c.paper, c.verdict, c.id) for c in claims] == [
        ("table 1", "easy, short: shorter waits", 3.0, "held", "easy-short"),
        ("table 1", "fcfs, short: shorter waits", 1.0, "opposite", "fcfs-short"),
        ("table 1", "easy, long: shorter waits", 5.0, "held", "easy-long"),
        ("table 1", "fcfs, long: shorter waits", None, "opposite", "fcfs-long"),
        ("section 2", "easy gains 2.5", 2.5, "held", ""),
        ("section 2", "less than 2", 2.5, "open", ""),
        ("section 2", "1 to 3", 2.5, "held", ""),
        ("section 2", "cannot be run", 2.5, "open", ""),
    ]


def test_table() -> None:
    claims = [
        Claim("A is faster", Interval(2.0, 1.0, 3.0, 5), 2.5, "held", where="3.1"),
        Claim("B is slower", Interval(-1.0, -2.0, 0.5, 5), where="3.2"),
    ]
    assert as_table(claims).splitlines() == [
        "WHERE  CLAIM        PAPER                 OURS  VERDICT",
        "3.1    A is faster    2.5    2.00 [1.00, 3.00]  held",
        "3.2    B is slower         -1.00 [-2.00, 0.50]  open",
    ]


def test_all_papers_in_one_table(tmp_path: Path) -> None:
    parts = [("PRIO table 1", "held"), ("PRIO table 1", "open"), ("KRES figure 2", "opposite")]
    claims = [Claim("a", SINGLE, verdict=verdict, part=part) for part, verdict in parts]
    for name, own in (("prio", claims[:2]), ("kres", claims[2:])):
        (tmp_path / name).mkdir()
        text = json.dumps({"claims": as_records(own)})
        (tmp_path / name / "report.json").write_text(text)
    command = [sys.executable, "-m", "simulator.studies.claims"]
    command += [str(tmp_path / name / "report.json") for name in ("prio", "kres")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "| part of a paper | claims | held | opposite | open |",
        "|---|---|---|---|---|",
        "| PRIO table 1 | 2 | 1 | 0 | 1 |",
        "| KRES figure 2 | 1 | 0 | 1 | 0 |",
        "| all | 3 | 1 | 1 | 1 |",
    ]


def test_intervals_in_text() -> None:
    interval = Interval(12.34, 10.34, 14.34, 5)
    assert plus_minus(interval) == "12.3 ± 2.0"
    assert plus_minus(interval, "+.0f") == "+12 ± 2"
    assert plus_minus(SINGLE) == "1.0"
    assert with_limits(interval) == "12.34 [10.34, 14.34]"
