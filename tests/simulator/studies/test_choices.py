"""The studies of the choices that KRES, REDIR and LOC leave open, on very small grids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from claim_records import check_claims
from command_line import invoke
from paths import SYNTHETIC_TRACE

from simulator.results.statistics import Interval
from simulator.studies.loc import choices as loc
from simulator.studies.redir import choices as redir
from simulator.study.study import Row, read_study, shipped_studies

pytestmark = pytest.mark.studies


def study(folder: Path, name: str, *options: Any) -> dict[str, Any]:
    """Report of a shipped study, with options."""
    changes = [word for option in options for word in ("--set", option)]
    done = invoke("study", name, *changes, "--seeds", 2, "--out", folder / name, "-j", 1, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    check_claims(found, some=False)
    text = (folder / name / "report.txt").read_text()
    assert "nan" not in json.dumps(found)
    assert text
    return found


def test_kres_choices(tmp_path: Path) -> None:
    options = "jobs=60", "processors=32", "queue=[5]", "k=[2, 4]", "scale=[size, machine]"
    found = study(tmp_path, "kres-choices", *options)
    readings = {
        tuple(r[k] for k in ("modifier", "bl_takes", "scale", "load")): r for r in found["readings"]
    }
    assert len(readings) == len(found["readings"]) == 4 * 2 * 2 * 2
    first = found["readings"][0]
    assert first["held"] - first["opposite"] == max(
        r["held"] - r["opposite"] for r in found["readings"]
    )
    for scale in ("size", "machine"):
        for load in ("growing", "steady"):
            cons = {
                m: readings[m, "only", scale, load]["gains"]["CONS"] for m in ("product", "none")
            }
            assert cons["product"] == cons["none"], "the modifier does not change CONS"
            for modifier in ("exponent", "tolerance"):
                bl = readings[modifier, "only", scale, load]["gains"]["BL"]
                assert bl == readings["none", "only", scale, load]["gains"]["BL"]
    queue = [c for c in found["claims"] if c["id"].endswith("bb-load")]
    assert queue == [], "with one queue length the claim is left out"


def test_redir_choices_week_and_direction(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(
        "study: s\nrun: simulator.studies.redir.choices:run\n"
        "report: simulator.studies.redir.choices:report\n"
        "fixed: {trace: synthetic.swf, processors: 128, weeks: 2, utilization: 0.1, tau: 60,"
        " alpha: 0.25, conflict: longest-walltime, filter: processors}\n"
        "grid: {warm_h: [0, 48], week: [1, 2], theta: [null, 2, 20]}\nseeds: 2\n"
    )
    done = invoke("study", tmp_path / "small.yaml", "-j", 1, "--json")
    found = json.loads(done.stdout)
    assert [(r["warm_h"], r["direction"]) for r in found["readings"]] == [
        (h, d) for h in (0, 48) for d in ("with/without", "without/with")
    ]
    assert found["claims"] == [], "the paper does not use this trace"
    cold, warm = (found["readings"][i]["points"] for i in (0, 2))
    assert cold != warm


def redir_rows(ratios: dict[int, list[float]], largest: float) -> list[Row]:
    """Runs of Curie with a slowdown of 10 without redirection."""
    base = {"trace": "CEA-Curie.swf", "processors": 80640, "warm_h": 0, "seed": 1}
    rows = []
    for week in range(1, 5):
        for theta, values in [(None, [1.0] * 4), *ratios.items()]:
            mean = 10 * values[week - 1]
            result = {"number": week, "mean_bounded_slowdown": mean, "max_bounded_slowdown": 50.0}
            if theta is not None:
                result["max_bounded_slowdown"] = 50 * largest
            rows.append(Row(base | {"week": week, "theta": theta}, result))
    return rows


def test_redir_verdicts() -> None:
    ratios = {5: [1.1, 1.2, 1.1, 1.2], 10: [0.9, 0.91, 0.89, 0.9], 100: [1.0, 1.1, 1.0, 1.1]}
    (_, forward), (_, backward) = redir.judged(redir_rows(ratios, 2.0))
    verdicts = {claim.id.rpartition("/")[2]: claim.verdict for claim in forward}
    assert verdicts == {
        "gain": "held",
        "best": "held",
        "theta": "held",
        "mean-10": "held",
        "largest-10": "opposite",
    }
    assert {claim.verdict for claim in backward if claim.id.endswith("/mean-10")} == {"opposite"}


def test_loc_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "HPC2N-small.swf").write_bytes(SYNTHETIC_TRACE.read_bytes())
    monkeypatch.setenv("RESHAPE_TRACES", str(tmp_path))
    options = (
        "trace=[HPC2N-small.swf]",
        "jobs=150",
        "speedup=[0, 0.4]",
        "kill=[none, overdue, later]",
    )
    found = study(tmp_path, "loc-choices", *options, "minutes=[exact, up]")
    assert {r["trace"] for r in found["readings"]} == {"HPC2N"}
    readings = {tuple(r[k] for k in loc.PlacementReading._fields): r for r in found["readings"]}
    assert len(readings) == 2 * 3 + 2 + 1
    lines = (tmp_path / "loc-choices" / "runs.jsonl").read_text().splitlines()
    runs = [json.loads(line) for line in lines]
    later = [r for r in runs if r["parameters"]["kill"] == "later"]
    assert any(r["result"]["killed"] for r in later if r["parameters"]["select"] == "tree")
    assert not any(r["result"]["killed"] for r in runs if r["parameters"]["kill"] == "none")
    for row in runs:
        if row["parameters"]["minutes"] == "up" and row["parameters"]["speedup"] == 0:
            total = row["result"]["mean_total_min"] * row["result"]["jobs"]
            assert total == pytest.approx(round(total)), "all times are whole minutes"


def test_loc_verdicts() -> None:
    costs = {"fcfs": Interval(8, 7.5, 8.5, 3), "easy": Interval(2, 1, 3, 3)}
    thresholds = {"fcfs": Interval(0.25, 0.24, 0.26, 3), "easy": Interval(0.05, 0.04, 0.06, 3)}
    parts = {"fcfs": [0.24, 0.25, 0.26], "easy": [0.04, 0.05, 0.06]}
    verdicts = {c.id: c.verdict for c in loc.judge("HPC2N", costs, thresholds, parts)}
    assert verdicts == {
        "cost-fcfs": "held",
        "cost-easy": "opposite",
        "threshold-fcfs": "held",
        "threshold-easy": "opposite",
        "same": "opposite",
    }


@pytest.mark.parametrize("name", ["kres-choices", "redir-choices", "loc-choices"])
def test_the_full_grid_is_larger(name: str) -> None:
    small, full = (read_study(shipped_studies()[name], full=full) for full in (False, True))
    assert len(full.runs) > len(small.runs)
