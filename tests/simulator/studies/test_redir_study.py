"""The study of redirection on two weeks of the synthetic trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from paths import SYNTHETIC_TRACE
from test_simulate_command import reshape

from reshape.errors import ReshapeError
from simulator.studies.redir.ratios import MAX, MEAN, TraceRatios
from simulator.studies.redir.report import as_report, judged
from simulator.study.study import Row

STUDY = """
study: Redirection, small
run: simulator.studies.redir.runs:run
report: simulator.studies.redir.runs:report
fixed: {trace: synthetic.swf, processors: 128, weeks: 2, utilization: 0.1, draw: 1, tau: 60,
        conflict: longest-walltime, filter: processors}
grid: {week: [1, 2], alpha: [0.1, 0.25], theta: [null, 2, 20]}
"""
SYNTHETIC = SYNTHETIC_TRACE


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    (folder / "small.yaml").write_text(STUDY)
    reshape("study", folder / "small.yaml", "--out", folder / "out", "-j", 1)
    return folder / "out"


def rows(done: Path) -> list[Row]:
    lines = map(json.loads, (done / "runs.jsonl").read_text().splitlines())
    return [Row(line["parameters"], line["result"]) for line in lines]


def test_what_is_written(done: Path) -> None:
    names = {file.name for file in done.iterdir()}
    pictures = {f"redir-{name}.{form}" for name in ("mean", "both") for form in ("png", "svg")}
    assert names == pictures | {"runs.jsonl", "report.json", "report.txt"}
    data = json.loads((done / "report.json").read_text())
    (trace,) = data["traces"]
    assert (trace["trace"], trace["weeks"], data["claims"]) == ("synthetic", 2, [])
    found = rows(done)
    assert as_report(found).files == {name: (done / name).read_bytes() for name in pictures}
    for point in trace["points"]:
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
        assert point["mean_ratio"]["mean"] == pytest.approx(sum(ratios) / 2)
        lost = [
            row.result["lost_processor_s"]
            for row in found
            if (row.parameters["alpha"], row.parameters["theta"])
            == (point["alpha"], point["theta"])
        ]
        assert point["lost"] == pytest.approx(sum(lost) / 2 / (128 * 168 * 3600))
        assert 0 < point["redirected"] < 1
    assert "% of the jobs begin anew" in (done / "report.txt").read_text()


def test_a_run_is_what_the_commands_give(done: Path, tmp_path: Path) -> None:
    """`reshape workload weeks` and `reshape simulate` on it, with the same rules."""
    reshape("workload", "weeks", SYNTHETIC, "--weeks", 2, "--utilization", 0.1, "-o", tmp_path)
    week = tmp_path / "synthetic-week-001.swf.gz"
    rules = ("--estimates", "exact", "--overrun", "extend", "--json")
    for row in rows(done):
        of = row.parameters
        if (of["week"], of["alpha"]) != (1, 0.25) or of["theta"] == 20:
            continue
        redirection = [f"redirection.{name}={of[name]}" for name in ("theta", "alpha")]
        chosen = (
            ("--processors", 128 + 32)
            if of["theta"] is None
            else ("--set", redirection[0], "--set", redirection[1])
        )
        told = json.loads(reshape("simulate", week, *rules, *chosen).stdout)
        for name in (MEAN, MAX, "jobs", "redirected", "lost_processor_s"):
            assert told[name] == pytest.approx(row.result[name])


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.7, 0.72, 0.71], "held: a larger gain"),
        ([0.86, 0.93, 0.91], "held"),
        ([0.97, 0.98, 0.975], "a smaller gain"),
        ([0.5, 1.9, 0.9], "not held: no clear gain"),
        ([1.4, 1.5, 1.6], "not held: worse"),
    ],
)
def test_verdicts(values: list[float], verdict: str) -> None:
    trace = TraceRatios("Curie", 3, {MEAN: {(0.15, 10): values}, MAX: {(0.15, 10): values}}, {})
    claims = judged(trace)
    assert [claim["paper"] for claim in claims] == ["0.90", "10 to 50", "0.90", "0.90"]
    assert {claims[i]["verdict"] for i in (0, 2, 3)} == {verdict}
    assert claims[1]["verdict"] == "held"


def test_nothing_to_compare(done: Path) -> None:
    only = [row for row in rows(done) if row.parameters["theta"] is not None]
    with pytest.raises(ReshapeError, match="let theta be null and some number"):
        as_report(only)
