"""The study of shared nodes on a small trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from claim_records import check_claims
from paths import SMALL_TRACE

from simulator.studies import sharing
from simulator.studies.sharing import MEAN, P95
from simulator.study.study import Row, read_study, shipped_studies
from simulator.traces import swf
from simulator.traces.normalise import Rules, normalise

pytestmark = pytest.mark.studies

FIXED = {"windows": "table", "penalty": "excess", "tolerance_s": 300, "processors": 64}
NUMBERS = {
    *("killed", "bsld_p95", "bsld_mean", "wait_p95_s", "wait_mean_s"),
    *("penalised_p95_pct", "penalised_mean_pct", "cpus_p95"),
}


def parameters(**changes: Any) -> dict[str, Any]:
    where = {"traces": str(SMALL_TRACE.parent), "trace": SMALL_TRACE.name, "jobs": 300}
    chosen = {"name": "SDSC-SP2", "strategy": "FF", "mix": "high", "seed": 1}
    return FIXED | where | chosen | changes


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """All mixes with both selections, two seeds."""
    points = [
        parameters(strategy=strategy, mix=mix, seed=seed)
        for strategy in ("FF", "FC")
        for mix in ("none", "low", "high")
        for seed in (1, 2)
    ]
    return [Row(point, sharing.run(point)) for point in points]


def test_runs(rows: list[Row]) -> None:
    for row in rows:
        assert set(row.result) == NUMBERS
        if row.parameters["mix"] == "none":
            assert row.result["penalised_p95_pct"] == 0
    assert sharing.run(rows[2].parameters) == rows[2].result
    low, high = (
        next(row for row in rows if row.parameters["mix"] == mix).result for mix in ("low", "high")
    )
    assert high["killed"] > low["killed"]
    assert high["penalised_mean_pct"] > low["penalised_mean_pct"] > 0


def test_first_continuous_fit_kills_more_than_first_fit(rows: list[Row]) -> None:
    """Internal conflicts are likelier on consecutive processors (6.4)."""
    of = {
        (row.parameters["strategy"], row.parameters["seed"]): row.result
        for row in rows
        if row.parameters["mix"] == "high"
    }
    for seed in (1, 2):
        scattered, consecutive = of["FF", seed], of["FC", seed]
        assert consecutive["killed"] > scattered["killed"]
        assert consecutive["penalised_mean_pct"] > scattered["penalised_mean_pct"]


@pytest.mark.parametrize("tolerance_s", [0, 300, 10**6])
def test_jobs_may_exceed_their_requests_by_the_tolerance(tolerance_s: int) -> None:
    """Without sharing, just the jobs that exceed it by more are killed."""
    jobs, _ = normalise(swf.read(SMALL_TRACE), 64, Rules(overrun="keep"))
    jobs = jobs.first(300)
    expected = int((jobs.run > jobs.estimate + tolerance_s).sum())
    killed = sharing.run(parameters(mix="none", tolerance_s=tolerance_s))["killed"]
    assert killed == expected
    assert (expected == 0) == (tolerance_s == 10**6)
    with_sharing = sharing.run(parameters(tolerance_s=tolerance_s))["killed"]
    assert with_sharing > expected or with_sharing == 0 == expected


def test_selections_of_chapter_7() -> None:
    first_fit = sharing.run(parameters(strategy="table-first-fit"))
    strict = sharing.run(parameters(strategy="LCT=1"))
    assert strict["penalised_mean_pct"] < first_fit["penalised_mean_pct"]


def test_report(rows: list[Row]) -> None:
    report = sharing.report(rows, None)
    assert "Tables 6.1 and 6.3" in report.text
    assert "(99.3)" in report.text
    check_claims(report.data)
    claims = report.data["claims"]
    assert claims[0]["part"] == "GUIM table 6.3"
    verdicts = {claim["text"]: claim["verdict"] for claim in claims}
    assert verdicts["number of killed jobs grows from none to low, FF"] in ("held", "open")
    assert verdicts["number of killed jobs grows from low to med, FF"] == "open"  # not run
    assert report.data["distances"]["CTC"] == {}
    assert report.data["distances"]["SDSC"]["SDSC-SP2"] > 0


def test_distance_of_the_paper_to_itself() -> None:
    """Rows with the paper's own numbers have no distance, and hold what its tables hold."""
    rows = [
        Row(
            {"name": "SDSC-BLUE", "mix": mix, "strategy": strategy, "seed": seed},
            {
                "bsld_p95": p95[0],
                "wait_p95_s": p95[1],
                "penalised_mean_pct": p95[2],
                "killed": p95[3],
                "bsld_mean": MEAN["SDSC", mix, strategy][0],
                "wait_mean_s": MEAN["SDSC", mix, strategy][1],
            },
        )
        for (centre, mix, strategy), p95 in P95.items()
        for seed in (1, 2)
        if centre == "SDSC"
    ]
    report = sharing.report(rows, None)
    assert report.data["distances"]["SDSC"] == {"SDSC-BLUE": 0}
    for claim in report.data["claims"]:
        assert claim["ours"] == pytest.approx(claim["paper"], abs=0.01)
        assert claim["verdict"] == ("held" if claim["paper"] > 0 else "opposite")


def test_the_study_file(tmp_path: Path) -> None:
    study = read_study(shipped_studies()["sharing"], (), "1")
    assert len(study.runs) == 3 * 2 * 4
    assert {run["name"] for run in study.runs} == {"CTC", "SDSC-BLUE", "SDSC-SP2"}
    assert {run["strategy"] for run in study.runs} == {"FF", "FC"}
