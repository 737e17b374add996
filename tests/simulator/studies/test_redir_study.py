"""The REDIR study on two weeks of the synthetic trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from claim_records import check_claims
from command_line import invoke
from paths import SYNTHETIC_TRACE

from reshape.errors import ReshapeError
from simulator.studies.redir import MAX, MEAN, compared, judged, report
from simulator.study.study import Row
from simulator.traces import swf
from simulator.traces.derived import choose, cut

pytestmark = pytest.mark.studies

STUDY = """
study: Redirection, small
run: simulator.studies.redir:run
report: simulator.studies.redir:report
fixed: {trace: synthetic.swf, processors: 128, weeks: 2, utilization: 0.1, draw: 1, tau: 60,
        conflict: longest-walltime, filter: processors, counts: waiting}
grid: {week: [1, 2], alpha: [0.1, 0.25], theta: [null, 2, 20]}
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    (folder / "small.yaml").write_text(STUDY)
    invoke("study", folder / "small.yaml", "--out", folder / "out", "-j", 1)
    return folder / "out"


def rows(output: Path) -> list[Row]:
    lines = map(json.loads, (output / "runs.jsonl").read_text().splitlines())
    return [Row(line["parameters"], line["result"]) for line in lines]


def test_files_and_ratios(output: Path) -> None:
    names = {file.name for file in output.iterdir()}
    pictures = {f"redir-{name}.{form}" for name in ("mean", "both") for form in ("png", "svg")}
    assert names == pictures | {"runs.jsonl", "report.json", "report.txt"}
    data = json.loads((output / "report.json").read_text())
    assert {point["trace"] for point in data["points"]} == {"synthetic"}
    assert data["claims"] == []
    found = rows(output)
    assert report(found, None).files == {name: (output / name).read_bytes() for name in pictures}
    for point in data["points"]:
        assert point["theta"] is not None
        ratios = []
        for week in (1, 2):
            easy, redirected = (
                next(
                    row.result[MEAN]
                    for row in found
                    if (row.parameters["week"], row.parameters["alpha"]) == (week, point["alpha"])
                    and row.parameters["theta"] == theta
                )
                for theta in (None, point["theta"])
            )
            ratios.append(redirected / easy)
        assert point[MEAN]["mean"] == pytest.approx(sum(ratios) / 2)
        lost = [
            row.result["lost_processor_s"]
            for row in found
            if (row.parameters["alpha"], row.parameters["theta"])
            == (point["alpha"], point["theta"])
        ]
        assert point["lost"] == pytest.approx(sum(lost) / 2 / (128 * 168 * 3600))
        assert 0 < point["redirected"] < 1
    text = (output / "report.txt").read_text()
    assert "% of the jobs are redirected" in text
    assert "mean of 2 weeks" in text


def test_claims_about_a_trace_of_the_paper(output: Path) -> None:
    found = [
        Row({**row.parameters, "trace": "RICC-part.swf"}, row.result)
        for row in rows(output)
        if row.parameters["theta"] != 2
    ]
    data = report(found, None).data
    check_claims(data)
    (ratio,) = data["claims"]
    assert ratio["text"].startswith("mean BSLD, best parameters"), "no other theta was run"


def test_a_run_equals_the_commands(output: Path, tmp_path: Path) -> None:
    """Compare with `reshape simulate` under the same rules."""
    trace, week = swf.read(SYNTHETIC_TRACE), tmp_path / "week.swf.gz"
    swf.write(week, cut(trace, choose(trace, 128, 2, 0.1)[0]))
    rules = ("--estimates", "exact", "--set", "jobs.rules.overrun=extend", "--json")
    for row in rows(output):
        point = row.parameters
        if (point["week"], point["alpha"]) != (1, 0.25) or point["theta"] == 20:
            continue
        redirection = [f"redirection.{name}={point[name]}" for name in ("theta", "alpha")]
        chosen = (
            ("--processors", 128 + 32)
            if point["theta"] is None
            else ("--set", redirection[0], "--set", redirection[1])
        )
        simulated = json.loads(invoke("simulate", week, *rules, *chosen).stdout)
        for name in (MEAN, MAX, "jobs", "redirected", "lost_processor_s"):
            assert simulated[name] == pytest.approx(row.result[name])


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.86, 0.93, 0.91], "held"),
        ([0.5, 1.9, 0.9], "open"),
        ([1.4, 1.5, 1.6], "opposite"),
    ],
)
def test_verdicts_on_the_claims_of_a_trace(values: list[float], verdict: str) -> None:
    known = {"jobs": 1, "redirected": 0, "lost_processor_s": 0.0, "mean_wait_s": 0.0}
    runs = [
        Row(
            {"trace": "Curie.swf", "alpha": 0.15, "theta": theta, "week": week, "processors": 1},
            {**known, MEAN: ratio, MAX: ratio},
        )
        for week, value in enumerate(values)
        for theta, ratio in ((None, 1.0), (10, value), (2, value + 0.1))
    ]
    best, theta, mean, largest = judged(compared(runs), "Curie")
    assert {best.verdict, mean.verdict, largest.verdict} == {verdict}
    assert theta.verdict == "held", "theta 10 is in 10 to 50 and theta 2 has a larger ratio"
    assert theta.ours.mean == pytest.approx(0.1)


def test_runs_without_a_reference_are_refused(output: Path) -> None:
    redirected = [row for row in rows(output) if row.parameters["theta"] is not None]
    with pytest.raises(ReshapeError, match="give theta null and at least one number"):
        report(redirected, None)
