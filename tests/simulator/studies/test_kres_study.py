"""The KRES study on small workloads."""

from __future__ import annotations

from pathlib import Path

import pytest
from claim_records import check_claims

from simulator.studies import kres
from simulator.study.study import Row, read_study, shipped_studies

pytestmark = pytest.mark.studies


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Two seeds at two points of the grid."""
    points = [
        {"jobs": 150, "processors": 64, "k": k, "law": law, "queue": 6, "seed": seed}
        for k, law in ((2, "uniform"), (4, "exponential"))
        for seed in (1, 2)
    ]
    return [Row(point, kres.run(point)) for point in points]


def test_all_algorithms_run_at_the_rate_that_gives_the_required_queue(rows: list[Row]) -> None:
    for row in rows:
        assert row.result["FF"]["queue"] == pytest.approx(6, rel=0.15)
        assert set(kres.ALGORITHMS) <= set(row.result)
        for name in kres.ALGORITHMS:
            assert row.result[name]["weighted_response_s"] >= 600 * 0.01
        cons = row.result["CONS"]["response_s"]
        assert cons != row.result["FF"]["response_s"]
    again = kres.run(rows[0].parameters)
    assert again == rows[0].result, "equal parameters give equal results"


def test_report(rows: list[Row], tmp_path: Path) -> None:
    report = kres.report(rows, tmp_path)
    assert "| uniform | 2 | 6 | " in report.text
    assert "CONS is much worse than FF" in report.text
    assert len(report.data["points"]) == 2 * 4
    check_claims(report.data)
    claims = {claim["id"]: claim for claim in report.data["claims"]}
    assert claims["bb-load"]["verdict"] == "open", "there is one length of the queue"
    loss = claims["cons"]
    assert loss["verdict"] == (
        "held" if loss["low"] > 0 else "opposite" if loss["high"] < 0 else "open"
    )
    assert claims["bb0-average"]["ours"] != claims["bb-average"]["ours"]
    assert {claim["part"] for claim in claims.values()} == {"KRES figure 2", "KRES figure 3"}
    assert set(report.files) == {"figure2.png", "figure2.svg", "figure3.png", "figure3.svg"}
    assert report.files["figure2.png"].startswith(b"\x89PNG")
    assert kres.report(rows, None).files == {}


def test_gains_are_signed_and_paired() -> None:
    """Half of the response time is a gain of 50 %, twice the response time a loss of 100 %."""
    result = {
        name: {"response_s": seconds, "weighted_response_s": seconds}
        for name, seconds in (("FF", 10.0), ("BL", 20.0), ("BB", 5.0), ("BB0", 8.0), ("CONS", 10.0))
    }
    point = {"law": "uniform", "k": 2, "queue": 64}
    results = kres.gains([Row(point, result)])
    found = {key[-1]: results.interval(key, "response_s").mean for key in results}
    assert found == {"BL": -100.0, "BB": 50.0, "BB0": pytest.approx(20.0), "CONS": 0.0}


def test_the_shipped_study_can_be_read() -> None:
    study = read_study(shipped_studies()["kres"])
    assert len(study.runs) == 2 * 3 * 3 * 5
