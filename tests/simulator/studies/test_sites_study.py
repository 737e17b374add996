"""The study of several centres, on small traces."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from claim_records import check_claims

from reshape.errors import ReshapeError
from simulator.results.statistics import Interval
from simulator.studies.sites import KEYS, judge, ratio, report, run, share
from simulator.study.study import SHIPPED, Row, read_study

pytestmark = pytest.mark.studies

FILES = {"CTC": "ctc.swf", "SDSC": "sp2.swf", "SDSC-Blue": "blue.swf"}
POLICIES = ("less-waittime", "less-jobsinqueue", "less-workleft", "less-submittedjobs", "origin")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    draw = random.Random(1)
    for name, file in FILES.items():
        largest = {"CTC": 400, "SDSC": 128, "SDSC-Blue": 1000}[name]
        lines, at = [], 0
        for number in range(1, 301):
            at += draw.randrange(14000)
            run_s, size = draw.randrange(1, 40000), draw.randrange(1, largest)
            estimate = run_s * draw.randrange(1, 4)
            lines.append(
                f"{number} {at} -1 {run_s} {size} -1 -1 {size} {estimate} -1 1 1 1 1 1 -1 -1 -1"
            )
        (folder / file).write_text(f"; MaxProcs: {largest}\n" + "\n".join(lines) + "\n")
    return folder


def row(traces: Path, scenario: str, policy: str) -> Row:
    parameters = {
        "merged": FILES,
        "days": 120,
        "jobs": 0,
        "scale_estimates": True,
        "scenario": scenario,
        "policy": policy,
        "seed": 1,
        "traces": str(traces),
    }
    return Row(parameters, run(parameters))


@pytest.fixture(scope="module")
def rows(traces: Path) -> list[Row]:
    return [row(traces, "ALL-SJBF", policy) for policy in POLICIES]


def test_the_data_has_the_numbers_of_every_policy(rows: list[Row]) -> None:
    found = report(rows, None)
    assert set(found.data) == {
        "trace",
        "scenarios",
        "claims",
    }
    assert found.data["trace"]["submitted"] == 900
    for policy in POLICIES:
        numbers = found.data["scenarios"]["ALL-SJBF"][policy]
        assert tuple(numbers) == (*KEYS, "prediction_errors")
        assert sum(numbers["jobs_by_centre"].values()) == 900
        assert 1 <= numbers["mean_bounded_slowdown"] <= numbers["mean_slowdown"] * 60
    assert found.data["scenarios"]["ALL-SJBF"]["origin"]["within_cost_limit_pct"] == 100.0
    assert set(found.files) == {"queues.png", "queues.svg"}
    assert "Table 8.1" in found.text


def test_claims_have_intervals_and_verdicts(rows: list[Row]) -> None:
    data = report(rows, None).data
    check_claims(data)
    claims = {claim["id"]: claim for claim in data["claims"]}
    judged = claims["ALL-SJBF/bounded_slowdown/less-waittime/less-submittedjobs"]
    assert judged["low"] < judged["ours"] < judged["high"]
    assert judged["verdict"] == "held"
    missing = claims["Scenario-1/cost/less-cost-sld/less-waittime"]
    assert (missing["ours"], missing["verdict"]) == (None, "open")


def limits(interval: Interval) -> tuple[float, float, float]:
    return interval.mean, interval.low, interval.high


def test_a_ratio_of_equal_runs_is_1_without_spread(rows: list[Row]) -> None:
    assert limits(ratio(rows[0].result, rows[0].result, "wait_s")) == (1.0, 1.0, 1.0)


def test_percentiles_and_shares_have_intervals(rows: list[Row]) -> None:
    separate, together = rows[-1].result, rows[0].result
    found = ratio(together, separate, "p95_bounded_slowdown")
    assert found.mean == together["p95_bounded_slowdown"] / separate["p95_bounded_slowdown"]
    assert found.low < found.mean < found.high
    assert limits(ratio(together, together, "p95_wait_s")) == (1.0, 1.0, 1.0)
    within = share(separate["batches"], "within_limit", "limited")
    assert limits(within) == (100.0, 100.0, 100.0)
    within = share(together["batches"], "within_limit", "limited")
    assert within.mean == pytest.approx(together["within_cost_limit_pct"])


def test_errors_of_predictions_are_reported_beside_the_papers(traces: Path) -> None:
    chosen = [row(traces, "Scenario-2", policy) for policy in ("less-waittime", "random")]
    found = report(chosen, None)
    runs = found.data["scenarios"]["Scenario-2"]
    errors = {policy: numbers["prediction_errors"] for policy, numbers in runs.items()}
    waits = errors["less-waittime"]["wait_s"]
    assert 0 <= waits["median"] <= waits["p95"]
    assert len(waits["medians"]) == 10
    # Estimates are one to three times the run time, and chosen with equal probability.
    assert errors["less-waittime"]["run_s"]["median"] == pytest.approx(100.0, abs=50.0)
    assert "wait_s" not in errors["random"], "no centre was asked"
    assert "(97.2)" in found.text


def test_a_ratio_above_1_is_opposite(rows: list[Row]) -> None:
    results = {("ALL-SJBF", policy): r.result for policy, r in zip(POLICIES, rows, strict=True)}
    better, worse = ("ALL-SJBF", "less-waittime"), ("ALL-SJBF", "less-submittedjobs")
    swapped = {better: results[worse], worse: results[better]}
    (claim,) = [
        c
        for c in judge(swapped)
        if c.id == "ALL-SJBF/bounded_slowdown/less-waittime/less-submittedjobs"
    ]
    assert claim.verdict == "opposite"


def test_a_scenario_may_have_a_number_of_jobs_of_its_own(traces: Path) -> None:
    parameters = {**row(traces, "Scenario-1", "random").parameters, "jobs_of": {"Scenario-1": 50}}
    assert run(parameters)["jobs"] == 50
    assert run({**parameters, "jobs": 60})["jobs"] == 60
    assert run({**parameters, "scenario": "Scenario-2"})["jobs"] > 60


def test_an_unknown_scenario_is_refused(traces: Path) -> None:
    with pytest.raises(ReshapeError, match="did you mean ALL-SJBF"):
        row(traces, "ALL-SJB", "random")


def test_scenarios_and_policies_select_cases() -> None:
    file = SHIPPED / "studies" / "sites.yaml"
    chosen = read_study(file, selected={"scenario": ["ALL-SJBF"], "policy": list(POLICIES[:4])})
    keys = [(run["scenario"], run["policy"]) for run in chosen.runs]
    assert len(keys) == 4
    assert {key[1] for key in keys} == set(POLICIES[:4])
    more = read_study(file, selected={"scenario": ["Scenario-1"], "policy": ["less-slowdown"]})
    assert {(run["scenario"], run["policy"]) for run in more.runs} == {
        ("Scenario-1", "less-slowdown")
    }


def test_a_parameter_that_no_case_has_cannot_be_selected() -> None:
    with pytest.raises(ReshapeError, match="have no parameter 'policy'"):
        read_study(SHIPPED / "studies" / "kres.yaml", selected={"policy": ["easy"]})
