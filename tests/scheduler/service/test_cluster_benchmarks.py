"""The benchmarks of agents and groups on several hosts measure something, with small numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hosts import Hosts, NoHosts
from paths import BENCHMARKS

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(150)]


def rows_of(program: str, *options: str) -> list[dict[str, Any]]:
    """Run a benchmark; return its table."""
    command = [sys.executable, str(BENCHMARKS / "cluster" / program), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def test_agents_connect_and_jobs_get_answers() -> None:
    options = ["--agents", "20", "--nodes", "3", "--jobs", "10", "--rate", "50", "--seconds", "1"]
    connect, points = rows_of("many_agents.py", *options)
    assert (connect["what"], connect["agents"]) == ("connect", 20)
    assert 0 < connect["answered_s"] <= connect["up_s"]
    assert (points["agents"], points["jobs"]) == (3, 10)
    assert 0 < points["p50_ms"] <= points["p99_ms"] <= points["max_ms"]


def skip_without_hosts() -> None:
    try:
        with Hosts(1):
            pass
    except NoHosts as reason:
        pytest.skip(str(reason))


def test_jobs_start_as_several_groups() -> None:
    skip_without_hosts()
    one, three = rows_of("group_start.py", "--groups", "1", "3", "--repeats", "1")
    assert (one["groups"], three["groups"], three["ranks"]) == (1, 3, 6)
    assert min(one["least_s"], three["least_s"], three["ratio"]) > 0


def test_groups_start_in_three_ways() -> None:
    skip_without_hosts()
    (row,) = rows_of("group_start.py", "--hosts", "2", "--ranks", "1", "--repeats", "1")
    assert (row["hosts"], row["ranks"]) == (2, 2)
    assert min(row["service_s"], row["mpiexec_s"], row["joined_s"]) > 0
