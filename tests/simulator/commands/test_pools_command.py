"""`reshape simulate --pool` as a user meets it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from command_line import invoke
from paths import SMALL_TRACE as SMALL

POOL = "nodes=0-16,processors=4,time_limit=48:00:00"


def test_numbers_and_files_of_one_pool(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = invoke(
        "simulate", SMALL, "--pool", POOL, "--set", "pool_wait=30:00", "--out", out, "--json"
    )
    told = json.loads(done.stdout)
    stored = json.loads((out / "metrics.json").read_text())
    assert stored == {name: told[name] for name in stored}
    with (out / "allocations.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == told["allocations"] > 0
    held = [row for row in rows if row["granted_s"] != "nan"]
    hours = [
        int(row["nodes"]) * (float(row["ended_s"]) - float(row["granted_s"])) / 3600 for row in held
    ]
    assert sum(hours) == pytest.approx(told["node_hours"])
    assert {float(row["granted_s"]) - float(row["submitted_s"]) for row in held} == {1800.0}
    assert told["mean_allocation_wait_s"] == 1800
    assert told["jobs_lost"] == told["unstarted"] == 0
    with (out / "jobs.csv").open() as file:
        jobs = list(csv.DictReader(file))
    mean = sum(float(row["turnaround_time"]) for row in jobs) / len(jobs)
    assert mean == pytest.approx(told["mean_turnaround_s"])


def test_a_table_compares_pools_with_waits_of_a_trace(tmp_path: Path) -> None:
    waits = tmp_path / "waits.swf"
    waits.write_text(
        "".join(f"{n} 0 {wait} 1 1 -1 -1 1 1 -1 1 1 1 -1 1 -1 -1 -1\n"
                for n, wait in enumerate((60, 600, 6000, -1), 1))
    )  # fmt: skip
    arguments = ["simulate", SMALL, "--pool", POOL, "--pool", f"{POOL},idle_timeout=60:00",
                 "--set", f"pool_wait={waits}", "--seed", 3]  # fmt: skip
    lines = invoke(*arguments).stdout.splitlines()
    assert lines[0].split()[:3] == ["ALLOCATIONS", "NODE-HOURS", "USED"]
    assert [line.split()[-1] for line in lines[1:]] == [POOL, f"{POOL},idle_timeout=60:00"]
    assert invoke(*arguments).stdout.splitlines() == lines
    told = json.loads(invoke(*arguments, "--json").stdout)
    assert [each["pool"] for each in told["pools"]] == [POOL, f"{POOL},idle_timeout=60:00"]


def test_a_workload_of_resizable_jobs(tmp_path: Path) -> None:
    done = invoke("simulate", SMALL, "--pool", POOL, "--resizable", 0.5, "--policy", "fcfs-pr",
                   "--json")  # fmt: skip
    told = json.loads(done.stdout)
    assert told["expansions"] > 0
    assert told["jobs_lost"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pool", "nodes=8"], "--pool nodes=8: a pool needs time_limit"),
        (["--pool", "nodes=8,time=1:00:00"], "unknown key 'time'"),
        (["--pool", POOL, "--processors", 8], "--processors: does not apply to a pool"),
        (["--pool", POOL, "--set", "pool_wait=soon"], "there is no file soon, and 'soon' is not"),
        (["--set", "pool_wait=5"], "--set pool_wait: needs a pool"),
        (["--pool", POOL, "--pool", POOL, "--out", "x"], "--out takes the files of one pool"),
    ],
)
def test_wrong_options(arguments: list[str], message: str) -> None:
    done = invoke("simulate", SMALL, *arguments, code=2)
    assert message in " ".join(done.stderr.split())
