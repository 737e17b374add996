"""The LOC study on a small trace: results, report and pictures."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from claim_records import check_claims

from reshape.errors import ReshapeError
from simulator.studies.loc import Curve, curves_of, report, run
from simulator.study.study import Row, read_study, shipped_studies

pytestmark = pytest.mark.studies

SMALL = {
    "label": "HPC2N",
    "trace": "synthetic.swf",
    "network": "tree",
    "k": 4,
    "levels": 4,
    "jobs": 400,
}


def row(policy: str, select: str, speedup: float) -> Row:
    parameters = SMALL | {"policy": policy, "select": select, "speedup": speedup}
    return Row(parameters, run(parameters))


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    result = [row(policy, "first-fit", 0) for policy in ("fcfs", "easy")]
    for policy in ("fcfs", "easy", "easy-place"):
        result += [row(policy, "tree", speedup) for speedup in (0, 0.4)]
    return result


def test_contiguous_runs_are_fragmented_and_gain_by_the_speedup(rows: list[Row]) -> None:
    results = {
        (r.parameters["policy"], r.parameters["select"], r.parameters["speedup"]): r.result
        for r in rows
    }
    for policy in ("fcfs", "easy"):
        first_fit, tree = results[policy, "first-fit", 0], results[policy, "tree", 0]
        faster = results[policy, "tree", 0.4]
        assert first_fit["jobs"] == tree["jobs"] == 400
        assert first_fit["external_fragmentation"] == 0 < tree["external_fragmentation"]
        assert faster["mean_total_min"] < tree["mean_total_min"]
        for result in (first_fit, tree, faster):
            parts = result["mean_wait_min"] + result["mean_run_min"]
            assert result["mean_total_min"] == pytest.approx(parts)
    fcfs = results["fcfs", "tree", 0], results["fcfs", "tree", 0.4]
    assert fcfs[1]["mean_run_min"] == pytest.approx(0.6 * fcfs[0]["mean_run_min"])


def test_report(rows: list[Row]) -> None:
    other = [Row(r.parameters | {"label": "SDSC"}, r.result) for r in rows[:2] + rows[4:6]]
    found = report(rows + other, None)
    names = [f"figure{n}.{form}" for n in (2, 3, 4, 5) for form in ("png", "svg")]
    assert list(found.files) == names
    assert found.files["figure3.png"].startswith(b"\x89PNG")
    curves = {(c["trace"], c["policy"]): c for c in found.data["curves"]}
    assert list(curves) == [
        *(("HPC2N", policy) for policy in ("fcfs", "easy", "easy-place")),
        *(("SDSC", policy) for policy in ("fcfs", "easy")),
    ]
    assert (
        curves["HPC2N", "easy"]["non_contiguous"] == curves["HPC2N", "easy-place"]["non_contiguous"]
    )
    for (trace, policy), curve in curves.items():
        if policy != "fcfs":
            assert f"{curve['cost']:.2f}" in found.text
            expected = "around 0.25" if trace == "HPC2N" else "0.25 to 0.30"
            assert curve["paper_threshold"] == expected
    check_claims(found.data)
    claims = {(claim["part"], claim["where"]): claim for claim in found.data["claims"]}
    costs = {where for part, where in claims if part == "LOC figure 2"}
    paired = {key: curve for key, curve in curves.items() if curve["cost"] is not None}
    papers = {key: curve for key, curve in paired.items() if key[1] != "easy-place"}
    assert costs == {f"{trace}, {policy}" for trace, policy in papers}
    for (trace, policy), curve in papers.items():
        cost = claims["LOC figure 2", f"{trace}, {policy}"]
        assert cost["low"] == cost["ours"] == cost["high"] == curve["cost"]
        assert (cost["verdict"] == "held") == (7 <= curve["cost"] <= 100)
    assert ("LOC figures 3, 4", "HPC2N, fcfs") in claims
    apart = claims["LOC figures 3, 4", "HPC2N"]
    thresholds = [curves["HPC2N", policy]["threshold"] for policy in ("easy", "fcfs")]
    assert apart["ours"] == thresholds[0] - thresholds[1]
    assert (apart["verdict"] == "held") == (abs(apart["ours"]) <= 0.05)
    assert "HPC2N, easy-place" in found.text
    assert "slightly above SDSC's" not in found.text, "there are no runs of LLNL"


@pytest.fixture(scope="module")
def torus_rows() -> list[Row]:
    """The same on a torus: the selection "tree" stands for sub-meshes."""
    point = SMALL | {"network": "torus-2d", "policy": "fcfs"}
    chosen = [("first-fit", 0.0), ("tree", 0.0), ("tree", 0.4)]
    parameters = [point | {"select": select, "speedup": s} for select, s in chosen]
    return [Row(each, run(each)) for each in parameters]


def test_networks_side_by_side(rows: list[Row], torus_rows: list[Row]) -> None:
    made = report(rows + torus_rows, None)
    curves = {(c["network"], c["policy"]): c for c in made.data["curves"] if c["trace"] == "HPC2N"}
    torus, tree = curves["torus-2d", "fcfs"], curves["tree", "fcfs"]
    assert torus["cost"] != tree["cost"]
    assert torus["non_contiguous"] == tree["non_contiguous"], "first fit does not see the network"
    assert torus["paper_threshold"] is None
    table = made.text.split("Threshold by network")[1].split("\n\n")[0].splitlines()
    assert table[1].split() == ["TRACE", "POLICY", "tree", "torus-2d"]
    assert f"({torus['cost']:.2f})" in table[2]
    assert table[3].split()[-1] == "-", "EASY was not run on the torus"
    assert "Threshold by network" not in report(rows, None).text


def test_unknown_networks_are_refused() -> None:
    point = SMALL | {"network": "torus", "policy": "fcfs", "select": "tree", "speedup": 0}
    with pytest.raises(ReshapeError, match="network: unknown value 'torus'; did you mean torus-"):
        run(point)


def test_figures_without_runs_are_left_out(rows: list[Row]) -> None:
    assert set(report(rows[:1] + rows[2:3], None).files) == {"figure2.png", "figure2.svg"}


def curve_of(reference: float, totals: Mapping[float, float]) -> Curve:
    return Curve(
        {"mean_total_min": reference, "mean_wait_min": 1},
        {s: {"mean_total_min": total, "mean_wait_min": 3} for s, total in totals.items()},
    )


@pytest.mark.parametrize(
    ("totals", "threshold"),
    [
        ({0: 20, 0.1: 12, 0.2: 8, 0.3: 6}, 0.15),
        ({0: 20, 0.1: 10, 0.2: 8}, 0.1),
        ({0: 9, 0.1: 8}, 0),
        ({0: 20, 0.5: 11}, None),
        ({0: 20, 0.1: 9, 0.2: 12, 0.3: 8}, 0.25),
    ],
)
def test_threshold(totals: dict[float, float], threshold: float | None) -> None:
    """At the threshold and at every larger speed-up the total is not above the reference."""
    found = curve_of(10, totals)
    assert found.threshold() == (None if threshold is None else pytest.approx(threshold))
    assert found.cost() == 3
    assert curve_of(10, {0.1: 1}).cost() is None


def test_runs_without_a_reference_are_left_out() -> None:
    assert not curves_of([Row(SMALL | {"policy": "fcfs", "select": "tree", "speedup": 0}, {})])


def test_the_shipped_study_names_three_traces_and_eleven_speedups() -> None:
    study = read_study(shipped_studies()["loc"])
    names = {run["trace"].split("-")[0] for run in study.runs}
    assert names == {"HPC2N", "LLNL", "SDSC"}
    assert {run["speedup"] for run in study.runs} == {i / 20 for i in range(11)}
