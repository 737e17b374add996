"""The study of GUIM chapter 7 on a small trace."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from claim_records import check_claims
from paths import SMALL_TRACE

from simulator.studies import sharing
from simulator.studies.sharing import CHAPTER_7, STRATEGY_TABLES, printed, simulated
from simulator.study.study import Row, read_study, shipped_studies

pytestmark = pytest.mark.studies

FIXED = {"windows": "table", "penalty": "excess", "tolerance_s": 300, "processors": 64}


def parameters(**changes: Any) -> dict[str, Any]:
    where = {"traces": str(SMALL_TRACE.parent), "trace": SMALL_TRACE.name, "jobs": 150}
    chosen = {"name": "SDSC-SP2", "strategy": "FF", "mix": "high", "seed": 1}
    return FIXED | where | chosen | changes


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """All strategies with two mixes, two seeds."""
    points = [
        parameters(strategy=strategy, mix=mix, seed=seed)
        for strategy in sharing.STRATEGIES
        for mix in ("low", "high")
        for seed in (1, 2)
    ]
    return [Row(point, sharing.run(point)) for point in points]


def test_runs(rows: list[Row]) -> None:
    for row in rows:
        assert set(row.result) == set(STRATEGY_TABLES)
        assert 0 < row.result["cpus_p95"] <= 64
    by_strategy = {
        row.parameters["strategy"]: row.result
        for row in rows
        if (row.parameters["mix"], row.parameters["seed"]) == ("high", 1)
    }
    assert by_strategy["LCT=1"]["penalised_mean_pct"] < by_strategy["FF"]["penalised_mean_pct"]
    assert by_strategy["LCT=1.5"] != by_strategy["LCT=1"]


def test_processors_by_hour() -> None:
    """The hours add up to the processor-seconds of the jobs."""
    ran = simulated(parameters(strategy="first-fit"))
    schedule = ran.schedule
    used = sharing.processors_by_hour(ran)
    held_s = schedule.ended - schedule.started
    hours_s = sharing.HOUR_S * len(used)
    begin = schedule.started.min()
    within = np.clip(schedule.ended - begin, 0, hours_s) - np.clip(
        schedule.started - begin, 0, hours_s
    )
    assert used.sum() * sharing.HOUR_S == pytest.approx((within * schedule.jobs.processors).sum())
    assert (held_s >= within).all()
    assert used.max() <= 64


def test_report(rows: list[Row]) -> None:
    report = sharing.report_strategies(rows, None)
    assert "Table 7.1" in report.text
    assert "(128.08)" in report.text
    check_claims(report.data)
    claims = report.data["claims"]
    assert {claim["where"] for claim in claims} == {"SDSC-SP2, low", "SDSC-SP2, high"}
    assert claims[0]["part"] == "GUIM table 7.1"
    text = "LC reduces killed jobs by a factor of 4 (7.6.1)"
    found = next(claim for claim in claims if claim["text"] == text)
    assert (found["remark"], found["paper"]) == ("tables: held", 475 - 4 * 105)
    assert set(report.files) == {
        f"figure7-{n}.{form}" for n in (9, 11, 12) for form in ("png", "svg")
    }
    assert "NaN" not in json.dumps(report.data)


def test_the_tables_against_their_own_text() -> None:
    """Rows with the thesis' own numbers: the verdict on them is that on its tables."""
    rows = [
        Row(
            {"name": centre, "mix": mix, "strategy": strategy, "seed": seed},
            {metric: printed(metric, (centre, mix, strategy)) for metric in STRATEGY_TABLES},
        )
        for centre in ("CTC", "SDSC")
        for mix in ("high", "med", "low")
        for strategy in CHAPTER_7.columns
        for seed in (1, 2)
    ]
    claims = sharing.report_strategies(rows, None).data["claims"]
    assert len(claims) > len(CHAPTER_7.statements)
    for claim in claims:
        if "RUA" in claim["text"]:  # figure 7.12 is lost, the text has some numbers
            assert claim["verdict"] == "open"
        else:
            assert f"tables: {claim['verdict']}" == claim["remark"] != "tables: open"
    within = [claim for claim in claims if "less than 5 %" in claim["text"]]
    assert {c["where"]: c["remark"] for c in within if c["remark"] != "tables: open"} == {
        "SDSC, high": "tables: opposite"
    }
    quarter = {c["where"]: c["remark"] for c in claims if "factor of 4" in c["text"]}
    assert quarter == {
        "CTC, high": "tables: opposite",
        "CTC, med": "tables: opposite",
        "SDSC, high": "tables: held",
        "SDSC, med": "tables: opposite",
    }


def test_the_study_file() -> None:
    study = read_study(shipped_studies()["rua"], (), "1")
    assert len(study.runs) == 2 * 3 * 7
    full = read_study(shipped_studies()["rua"], (), "1", full=True)
    assert len(full.runs) == 3 * 3 * 7
    assert {run["jobs"] for run in full.runs} == {10000}
