"""Rounds of the fault campaign (`benchmarks/reliability`) that have once found a defect."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

pytestmark = pytest.mark.campaign

#: 5: an agent is killed while a group starts. 1008: the disk and /dev/shm are full. 2010: the
#: latest part of the journal is lost. 2051: an agent is killed within resizes. 756688: the disk is
#: full when a held task is to be released.
SEEDS = (5, 1008, 2010, 2051, 756688)


def test_nothing_is_lost_wrong_hung_or_leaked(tmp_path: Path) -> None:
    program = ROOT / "benchmarks" / "reliability" / "campaign.py"
    command = [sys.executable, program, "--seeds", ",".join(map(str, SEEDS)), "--json"]
    done = subprocess.run(
        [*command, "--parallel", "2", "--out", tmp_path],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = json.loads(done.stdout)
    assert [row["seed"] for row in table["rows"]] == sorted(SEEDS)
    assert table["totals"]["rounds"] == len(SEEDS)
    assert table["totals"]["jobs"] >= 3 * len(SEEDS)
