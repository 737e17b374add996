"""The short form of `benchmarks/reliability/hostile.py`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from paths import ROOT

pytestmark = pytest.mark.campaign


def test_hostile_messages_are_refused_and_resize_points_are_answered() -> None:
    program = ROOT / "benchmarks" / "reliability" / "hostile.py"
    sizes = [
        "--jobs",
        "10",
        "--rate",
        "50",
        "--messages",
        "300",
        "--seconds",
        "1",
        "--files",
        "512",
    ]
    done = subprocess.run(
        [sys.executable, program, *sizes, "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = json.loads(done.stdout)
    assert table["wrong"] == []
    assert len(table["rows"]) == 16
    assert all(row["lines"] < 60 for row in table["rows"])
