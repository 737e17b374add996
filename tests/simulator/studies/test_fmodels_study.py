"""The study of prediction errors on a small trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from claim_records import check_claims
from paths import SMALL_TRACE

from reshape.errors import ConfigError
from simulator.studies import fmodels
from simulator.studies.fmodels import ErrorResults, claims
from simulator.study.study import Row, read_study, shipped_studies

pytestmark = pytest.mark.studies

FIXED = {"jobs": 200, "bounds": "computed", "deadlines": "gradual", "processors": {}}


def parameters(**changes: Any) -> dict[str, Any]:
    where = {"traces": str(SMALL_TRACE.parent), "trace": SMALL_TRACE.name, "seed": 1}
    chosen = {"policy": "EASY", "category": "large", "error": 5, "deviations": "narrow"}
    return FIXED | where | chosen | changes


def made(trace: str, policy: str, category: str, at: float, value: float) -> Row:
    """Row of a run that found `value`."""
    name = "percentage" if "2" in category or category == "both" else "error"
    point = {"trace": trace, "policy": policy, "category": category, name: at, "seed": 1}
    numbers = {"bsld_p95": value, "bsld_mean": value, "under_one_minute_pct": 40.0}
    return Row(point | ({"deviations": "narrow"} if name == "error" else {}), numbers)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    points = [
        parameters(policy=policy, seed=seed) | kind
        for policy in fmodels.POLICIES
        for seed in (1, 2)
        for kind in (
            *({"category": c, "error": e} for c in ("large", "equal") for e in (5, 10000)),
            *({"category": "both", "percentage": p} for p in (5, 50, 90)),
        )
    ]
    return [Row(point, fmodels.run(point)) for point in points]


def test_runs_depend_on_their_parameters_only(rows: list[Row]) -> None:
    assert fmodels.run(rows[-1].parameters) == rows[-1].result
    assert {key for row in rows for key in row.result} == {
        "bsld_p95", "bsld_mean", "under_one_minute_pct",
    }  # fmt: skip
    assert len({row.result["bsld_mean"] for row in rows}) > len(rows) / 2


def test_almost_exact_predictions_differ_little_from_exact_ones() -> None:
    slowdowns = [
        fmodels.run(parameters(category="both", percentage=0, seed=seed))["bsld_mean"]
        for seed in (1, 2)
    ]
    assert slowdowns[0] == pytest.approx(slowdowns[1], rel=0.3)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"policy": "FCFS"}, "policy: unknown value 'FCFS'; known are EASY, LXWF, SJBF"),
        ({"category": "huge"}, "category: must be one of"),
        ({"bounds": "none"}, "bounds: unknown value 'none'; known are computed, printed"),
    ],
)
def test_wrong_parameters(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        fmodels.run(parameters(**changes))


def test_report(rows: list[Row], tmp_path: Path) -> None:
    report = fmodels.report(rows, tmp_path)
    assert f"Workload {SMALL_TRACE.name}" in report.text
    check_claims(report.data)
    verdicts = {claim["id"]: claim["verdict"] for claim in report.data["claims"]}
    assert verdicts["5.7.1-all-jobs"] == verdicts["5.7.1-sdsc-SJBF"] == "open"  # not run
    assert verdicts["5.8-equal-largest"] in ("held", "open", "opposite")
    assert len(report.data["points"]) == len(rows) / 2
    assert report.data["points"][0]["bsld_p95"]["low"] is not None
    ctc = [
        Row(row.parameters | {"trace": "CTC-SP2-1996-3.1-cln.swf.gz"}, row.result) for row in rows
    ]
    assert {"figure5.3.png", "figure5.6.svg"} <= {*fmodels.report(ctc, tmp_path).files}


def test_verdicts_on_made_up_results() -> None:
    """P95 of 2 at 5 %, and of the given factor times as much at the largest error."""
    factors = {"pure-equal": 1.1, "short": 1.2, "large": 4.0, "equal": 2.0, "short2large": 10.0,
               "large2short": 1.5, "both": 20.0}  # fmt: skip
    rows = [
        made(trace, policy, category, at, 2 * factor ** (step / 2) * (1 + 0.01 * i))
        for i, trace in enumerate(("CTC-SP2-1996-a.swf", "KTH-SP2-1996-a.swf"))
        for policy in fmodels.POLICIES
        for category, factor in factors.items()
        for step, at in enumerate((5, 80, 90) if "2" in category else (5, 50, 90))
        if "2" in category or category == "both"
    ]
    rows += [
        made(trace, policy, category, at, 2 * factor ** (step / 2) * (1 + 0.01 * i))
        for i, trace in enumerate(("CTC-SP2-1996-a.swf", "KTH-SP2-1996-a.swf"))
        for policy in fmodels.POLICIES
        for category, factor in factors.items()
        for step, at in enumerate((5, 400, 10000))
        if "2" not in category and category != "both"
    ]
    found = {claim.id: claim.verdict for claim in claims(ErrorResults(rows))}
    expected = {
        "5.7.1-all-jobs": "held",
        "5.7.1-short": "held",
        "5.7.1-large-ctc": "held",
        "5.7.1-large-equal": "held",
        "5.8-equal-largest": "held",
        "5.7.1-pattern": "opposite",  # it grows in each series
        "5.7.1-equal-400": "open",  # a single seed
        "5.7.2-short2large": "held",
        "5.7.2-large2short": "opposite",
        "5.7.2-both-large2short": "held",
        "5.7-high-processors": "open",  # not run
        "5.8-negative": "open",
    }
    assert {name: found[name] for name in expected} == expected


def test_the_study_file() -> None:
    file = shipped_studies()["f-models"]
    assert len(read_study(file, (), "1").runs) == 12 * (4 * 6 + 7 * 2 + 3 * 5)
    full = read_study(file, (), "1", full=True).runs
    assert len(full) == 12 * (11 * 9 * 2 + 3 * 11)
    assert {run["jobs"] for run in full} == {None}
