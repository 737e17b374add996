"""The study of malleable jobs on small workloads of Lublin's model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from claim_records import check_claims

from reshape.errors import ReshapeError
from simulator.studies.claims import paper
from simulator.studies.malleable import POLICIES, RULES, report, run
from simulator.study.study import Row, read_study, shipped_studies

pytestmark = pytest.mark.studies


def row(policy: str, **changes: Any) -> Row:
    case = {"trace": "lublin", "jobs": 60, "policy": policy, "draw": 1, "iterations": 20, **changes}
    result = run(case)
    del case["iterations"]  # the base case, in fewer iterations
    return Row(case, result)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    drawn = [row(name, draw=draw, **share) for draw in (1, 2) for name, share in (
        ("easy", {}), ("malleable", {"share": 0.5})
    )]  # fmt: skip
    rules = [row("malleable", without=rule) for rule in RULES if rule]
    return [*drawn, *(row(name) for name in POLICIES if name != "easy"), *rules]


def test_report(rows: list[Row], tmp_path: Path) -> None:
    found = report(rows, tmp_path)
    check_claims(found.data)
    claims = {claim["id"]: claim for claim in found.data["claims"]}
    assert claims["published/lublin/least"]["verdict"] in ("held", "opposite")
    assert not any(each.startswith("sketch") for each in claims), "it ran another number of jobs"
    assert found.files["malleable.png"].startswith(b"\x89PNG")
    assert report(rows, None).files == {}
    assert "without=settle" in found.text
    cases = {(case["policy"], case["difference"]): case for case in found.data["runs"]}
    half = cases["malleable", "share=0.5"]["gain_pct"]
    assert half["low"] < half["mean"] < half["high"], "two draws have an interval"
    assert cases["easy", ""]["resizes"]["mean"] == 0


def test_claims_on_the_sketch_are_judged_on_its_jobs(rows: list[Row]) -> None:
    known = {"jobs": paper("malleable").sketch_jobs, "trace": "KTH-SP2-1996-2.1-cln.swf.gz"}
    data = report([Row({**each.parameters, **known}, each.result) for each in rows], None).data
    claims = {claim["id"]: claim for claim in data["claims"]}
    assert claims["sketch/KTH-SP2/1/resizes"]["verdict"] in ("held", "opposite")
    half = claims["sketch/KTH-SP2/0.5/gain"]
    assert half["paper"] == 46.7
    assert half["low"] < half["ours"] < half["high"]
    assert claims["sketch/KTH-SP2/0.2/gain"]["verdict"] == "open", "it was not run"


def test_gains_of_draws_are_paired(rows: list[Row]) -> None:
    by_draw = {
        (each.parameters["policy"], each.parameters["draw"]): each.result["mean_turnaround_s"]
        for each in rows
        if each.parameters["policy"] == "easy" or each.parameters.get("share") == 0.5
    }
    gains = [100 * (1 - by_draw["malleable", n] / by_draw["easy", n]) for n in (1, 2)]
    (case,) = [
        case for case in report(rows, None).data["runs"] if case["difference"] == "share=0.5"
    ]
    assert case["gain_pct"]["mean"] == pytest.approx(sum(gains) / 2)


def test_jobs_that_start_on_less_wait_less() -> None:
    """Only policies whose jobs state a smallest size depend on it."""
    waits = {
        (name, least): row(name, minimum=least).result["mean_wait_s"]
        for name in ("steady", "malleable", "adaptive starts")
        for least in (0.25, 1.0)
    }
    assert waits["steady", 0.25] == waits["steady", 1.0]
    assert waits["malleable", 0.25] < waits["malleable", 1.0]
    assert waits["adaptive starts", 0.25] < waits["steady", 0.25]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("esy", "policy: unknown value 'esy'; did you mean easy"),
        (5, "policy: unknown value 5; known are adaptive starts, easy"),
        (["easy"], r"policy: unknown value \['easy'\]; "),
    ],
)
def test_an_unknown_policy_is_named(policy: Any, words: str) -> None:
    with pytest.raises(ReshapeError, match=words):
        row(policy)


def test_without_malleable_jobs_no_job_is_resized() -> None:
    assert row("malleable", share=0.0).result["resizes"] == 0


def test_a_pause_and_moved_data_cost_time() -> None:
    free, paused, moved = (
        row("malleable", pause_s=pause_s, data_mib=mib).result["mean_turnaround_s"]
        for pause_s, mib in ((0, 0), (600, 0), (0, 102400))
    )
    assert free < paused
    assert free < moved


def test_one_number_of_jobs(rows: list[Row]) -> None:
    more = Row({**rows[0].parameters, "jobs": 61}, rows[0].result)
    with pytest.raises(ReshapeError, match="one number of jobs, got 60, 61"):
        report([*rows, more], None)


def test_the_shipped_study_has_its_runs() -> None:
    file = shipped_studies()["malleable"]
    runs = read_study(file).runs
    assert {each["policy"] for each in runs} == set(POLICIES)
    assert {each["without"] for each in runs if "without" in each} == set(RULES) - {""}
    goals = read_study(file, full=True).runs
    assert {each["jobs"] for each in goals} == {paper("malleable").sketch_jobs}
