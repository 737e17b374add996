"""The wheel brings the studies and their traces along."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from paths import ROOT


def test_a_wheel_knows_the_studies(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "-d", str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    part = "backfilling", "--seeds", "1", "--set", "policy=fcfs", "--set", "load=1"
    told = []
    for arguments in ((), part):
        done = subprocess.run(
            [sys.executable, "-m", "reshape", "study", *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(done.stdout)
    assert "How much does backfilling gain" in told[0]
    assert str(site / "simulator" / "examples" / "traces" / "synthetic.swf") in told[0]
    assert "mean_bounded_slowdown" in told[1]
