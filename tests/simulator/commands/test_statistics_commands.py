"""Statistics and pictures of `reshape simulate` and `workload` as a user meets them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from command_line import invoke
from paths import SMALL_TRACE as SMALL

from simulator.traces import swf
from simulator.traces.derived import offered_load, scaled
from simulator.traces.normalise import NEEDED, machine_size, normalise
from simulator.traces.pictures import local_times

SAMPLED = "time,queued_jobs,running_jobs,submitted_jobs,backfilled_jobs,killed_jobs,pending_work,"


def columns(path: Path) -> dict[str, list[str]]:
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_statistics_and_their_tables(tmp_path: Path) -> None:
    out, trace = tmp_path / "out", tmp_path / "KTH-SP2-1996-2.1-cln.swf"
    trace.write_bytes(SMALL.read_bytes())
    told = json.loads(
        invoke(
            "simulate", trace, "--out", out, "--json",
            "--set", "sample_s=600", "--set", "price=0.5",
            "--statistic", "wait_s=mean,max", "--statistic", "cost=sum",
            "--statistic", "run_s=sum-by:centre", "--statistic", "processors_used=max",
        ).stdout
    )  # fmt: skip
    found = told["statistics"]
    assert found["wait_s"]["mean"] == pytest.approx(told["mean_wait_s"])
    assert found["wait_s"]["max"] == told["max_wait_s"]
    assert json.loads((out / "metrics.json").read_text())["statistics"] == found
    jobs, samples = columns(out / "job_values.csv"), columns(out / "samples.csv")
    assert len(jobs["job_id"]) == told["jobs"]
    assert sum(map(float, jobs["killed"])) == told["killed"]
    assert found["run_s"]["sum-by:centre"] == {
        "KTH-SP2-1996-2.1-cln": sum(map(float, jobs["run_s"]))
    }
    assert {*jobs["centre"]} == {"KTH-SP2-1996-2.1-cln"}  # the whole name, dots included
    assert found["cost"]["sum"] == pytest.approx(sum(map(float, jobs["cost"])))
    assert (out / "samples.csv").read_text().startswith(SAMPLED)
    assert {*np.diff([float(at) for at in samples["time"]])} == {600}
    assert found["processors_used"]["max"] == max(map(float, samples["processors_used"]))
    used_s = 600 * sum(map(float, samples["processors_used"]))
    assert used_s == pytest.approx(told["utilization"] * told["makespan_s"] * 64, rel=0.03)


def test_statistics_of_resizable_jobs_and_without_a_directory(tmp_path: Path) -> None:
    done = invoke(
        "simulate", SMALL, "--policy", "fcfs-pr", "--resizable", 0.5,
        "--statistic", "processors_used=max", "--statistic", "wait_s=mean",
    )  # fmt: skip
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[1:])
    assert lines["wait_s=mean"] == lines["mean_wait_s"]
    assert 0 < float(lines["processors_used=max"]) <= 64


def test_wrong_statistics_are_refused_before_the_simulation() -> None:
    said = invoke("simulate", SMALL, "--statistic", "wait=p95", code=1).stderr
    assert "unknown variable 'wait'; did you mean wait_s?" in said
    assert (
        "give --set price=" in invoke("simulate", SMALL, "--statistic", "cost=sum", code=2).stderr
    )


def test_pictures_of_a_trace(tmp_path: Path) -> None:
    told = json.loads(invoke("workload", "info", SMALL, "--plots", tmp_path, "--json").stdout)
    names = [f"{name}.{form}" for name in ("arrivals", "jobs", "weeks", "scatter")
             for form in ("png", "svg")]  # fmt: skip
    assert [Path(path).name for path in told["pictures"]] == names
    assert {path.name for path in tmp_path.iterdir()} == {*names}
    before = (tmp_path / "arrivals.svg").read_bytes()
    invoke("workload", "info", SMALL, "--plots", tmp_path)
    assert (tmp_path / "arrivals.svg").read_bytes() == before


def test_local_hours_and_days(tmp_path: Path) -> None:
    lines = ["; MaxProcs: 4", "; UnixStartTime: 1000000000", "1 0 -1 5 1 -1 -1 1 9", "2 7200 0 5 1"]
    for zone, hours, days in (
        ("; TimeZoneString: Europe/Stockholm", [3, 5], [6, 6]),  # 2001-09-09 01:46:40 UTC, Sunday
        ("; TimeZone: -18000", [20, 22], [5, 5]),
        ("; TimeZoneString: Nowhere/Here", [1, 3], [6, 6]),
    ):
        path = tmp_path / "a.swf"
        path.write_text("\n".join([zone, *lines]) + "\n")
        trace = swf.read(path, fields=NEEDED)
        assert local_times(trace, normalise(trace, 4)[0])[:2] == (hours, days)


@pytest.mark.parametrize("load", [0.3, 0.9, 2.0])
def test_a_trace_is_brought_to_a_load(tmp_path: Path, load: float) -> None:
    to = tmp_path / "scaled.swf.gz"
    said = invoke("workload", "scale", SMALL, to, "--load", load).stdout
    assert f"-> {load:g}" in said
    told = json.loads(invoke("workload", "info", to, "--json").stdout)
    assert told["offered_load"] == pytest.approx(load, rel=1e-3)
    old, new = swf.read(SMALL), swf.read(to)
    assert (old.columns["run"] == new.columns["run"]).all()
    assert (np.argsort(old.columns["submit"], kind="stable")
            == np.argsort(new.columns["submit"], kind="stable")).all()  # fmt: skip
    assert (new.columns["wait"] == -1).all()


def test_traces_without_a_load(tmp_path: Path) -> None:
    path = tmp_path / "a.swf"
    path.write_text("; MaxProcs: 4\n1 0 -1 5 1 -1 -1 1 9\n2 0 -1 5 1 -1 -1 1 9\n")
    said = invoke("workload", "scale", path, tmp_path / "b.swf", "--load", 1, code=1).stderr
    assert "all jobs are submitted at one time" in said
    trace = swf.read(SMALL, fields=NEEDED)
    jobs, _ = normalise(trace, machine_size(trace))
    assert offered_load(jobs, 64) == pytest.approx(
        float((jobs.run * jobs.processors).sum()) / 64 / np.ptp(jobs.submitted)
    )
    with pytest.raises(ValueError, match="load must be > 0"):
        scaled(trace, jobs, 64, 0.0)


def test_statistics_of_several_centres(tmp_path: Path) -> None:
    centres, out = tmp_path / "two.yaml", tmp_path / "out"
    centres.write_text(
        "centres:\n"
        "  - {name: a, processors: 64, scenario: easy, units_per_hour: 2, cost_per_unit: 1}\n"
        "  - {name: b, processors: 32, scenario: fcfs, units_per_hour: 1, cost_per_unit: 1}\n"
    )
    told = json.loads(
        invoke(
            "simulate", SMALL, "--machine", centres, "--set", "assign=less-waittime", "--out", out,
            "--statistic", "centre=count", "--statistic", "cost=sum,sum-by:centre",
            "--statistic", "processors_used=max", "--set", "sample_s=1800", "--json",
        ).stdout
    )  # fmt: skip
    found = told["statistics"]
    assert found["centre"]["count"] == {k: n for k, n in told["jobs_by_centre"].items() if n}
    assert found["cost"]["sum"] == pytest.approx(told["cost"])
    assert sum(found["cost"]["sum-by:centre"].values()) == pytest.approx(told["cost"])
    both, *each = (
        columns(out / name) for name in ("samples.csv", "samples-a.csv", "samples-b.csv")
    )
    assert both["time"] == each[0]["time"] == each[1]["time"]
    for name in ("queued_jobs", "running_jobs", "processors_used", "backfilled_jobs"):
        summed = [float(a) + float(b) for a, b in zip(each[0][name], each[1][name], strict=True)]
        assert summed == [float(value) for value in both[name]], name
    assert max(map(float, each[1]["load"])) <= 1
