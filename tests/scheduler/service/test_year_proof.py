"""A short run of `benchmarks/scheduler/year_proof.py`."""

from __future__ import annotations

import json
import subprocess
import sys

from paths import ROOT


def test_the_benchmark_of_a_year_writes_what_a_service_writes() -> None:
    program = ROOT / "benchmarks" / "scheduler" / "year_proof.py"
    done = subprocess.run(
        [sys.executable, program, "--jobs", "6", "--points", "8", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tables = {row["table"]: row for row in json.loads(done.stdout)["tables"]}
    assert all(row["differing"] == 0 for row in tables.values())
    assert tables["summaries"]["real"] == 6
    assert tables["sums"]["real"] == 6 * 3, "sizes 2, 3 and 4"
