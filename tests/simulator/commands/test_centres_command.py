"""``reshape simulate`` with a machine file that names several centres."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import invoke
from paths import SYNTHETIC_TRACE

CENTRES = """
centres:
  - {name: left, processors: 64, scenario: fcfs}
  - {name: right, processors: 32, cpu_factor: 2, units_per_hour: 2, cost_per_unit: 0.5}
"""
POLICY = """
import msgspec

class Last(msgspec.Struct, frozen=True):
    def assign(self, request, sites):
        return sites[-1]
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "centres.yaml"
    path.write_text(CENTRES)
    return path


def test_every_job_of_a_trace_runs_at_a_centre(machine: Path, tmp_path: Path) -> None:
    options = ("--machine", machine, "--jobs", 200, "--out", tmp_path / "out", "--json")
    found = json.loads(invoke("simulate", SYNTHETIC_TRACE, *options).stdout)
    assert found["assign"] == "less-waittime"
    assert sum(found["jobs_by_centre"].values()) == found["jobs"] == 200
    with (tmp_path / "out" / "jobs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 200
    assert {row["centre"] for row in rows} == {"left", "right"}
    sizes = {int(row["requested_number_of_resources"]) for row in rows if row["centre"] == "right"}
    assert max(sizes) <= 32
    assert all(float(row["cost"]) == 0 for row in rows if row["centre"] == "left")
    compared = json.loads(invoke("compare", tmp_path / "out", tmp_path / "out", "--json").stdout)
    assert compared["same"] == 200
    invoke("report", tmp_path / "out", "-o", tmp_path / "out.html")
    again = json.loads(invoke("simulate", SYNTHETIC_TRACE, *options).stdout)
    varying = {"wall_s", "cpu_s", "jobs_per_s", "peak_rss_mib"}
    assert {k: v for k, v in found.items() if k not in varying} == {
        k: v for k, v in again.items() if k not in varying
    }


def test_a_share_of_the_jobs_is_resizable_at_the_centres_that_resize(tmp_path: Path) -> None:
    machine = tmp_path / "elastic.yaml"
    machine.write_text(CENTRES.replace("fcfs", "fcfs-pr"))
    words = ["--machine", machine, "--jobs", 100, "--json", "--set", "assign=less-turnaround"]
    model = [
        "--speedup",
        "amdahl:serial=0.01",
        "--set",
        "jobs.resizable.performance=amdahl:serial=0.01",
    ]
    found = json.loads(
        invoke("simulate", SYNTHETIC_TRACE, *words, "--resizable", 0.5, "--seed", 3, *model).stdout
    )
    rigid = json.loads(invoke("simulate", SYNTHETIC_TRACE, *words).stdout)
    assert found["jobs"] == rigid["jobs"] == 100
    assert found["jobs_by_centre"]["left"] > rigid["jobs_by_centre"]["left"]


def test_a_user_defined_policy_is_a_class_in_a_file(machine: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(POLICY)
    command = [sys.executable, "-m", "reshape", "simulate", str(SYNTHETIC_TRACE), "--json"]
    command += ["--machine", str(machine), "--set", "assign=mine:Last", "--jobs", "100"]
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": paths},
        timeout=60,
    )
    by_centre = json.loads(done.stdout)["jobs_by_centre"]
    assert by_centre["right"] > by_centre["left"]  # which has only the jobs of above 32 processors


@pytest.mark.parametrize("policy", ["less-waittime", "grid-backfilling"])
def test_centres_may_predict_run_times(machine: Path, policy: str) -> None:
    words = [
        "--machine",
        machine,
        "--jobs",
        300,
        "--json",
        "--set",
        f"assign={policy}",
        "--estimates",
    ]
    waits = [
        json.loads(invoke("simulate", SYNTHETIC_TRACE, *words, estimates).stdout)["mean_wait_s"]
        for estimates in ("user", "tsafrir")
    ]
    assert waits[0] != waits[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--set", "assign=less-waitime"), "did you mean less-waittime"),
        (("--set", "dispatch.ask=none"), "--set dispatch.ask: expected int | null"),
        (("--set", "dispatch.ties=best"), "--set dispatch.ties: must be order or load"),
        (("--policy", "easy"), "--policy: does not apply to several centres"),
        (("--estimates", "tsafir"), "unknown estimates 'tsafir'; did you mean tsafrir"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    machine: Path, options: tuple[str, ...], message: str
) -> None:
    done = invoke("simulate", SYNTHETIC_TRACE, "--machine", machine, *options, code=2)
    assert message in done.stderr


def test_assignment_needs_several_centres(tmp_path: Path) -> None:
    done = invoke("simulate", SYNTHETIC_TRACE, "--set", "assign=random", code=2)
    assert "--set assign: needs a machine of several centres" in done.stderr
    machine = tmp_path / "one.yaml"
    machine.write_text("nodes: 64\n")
    done = invoke(
        "simulate", SYNTHETIC_TRACE, "--machine", machine, "--set", "assign=random", code=2
    )
    assert "--set assign: needs a machine of several centres" in done.stderr
