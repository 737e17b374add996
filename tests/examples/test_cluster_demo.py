"""The demonstration on several hosts, in a short form."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from demo import CANNOT_RUN
from hosts import Hosts, NoHosts
from paths import ROOT

pytestmark = pytest.mark.hosts


@pytest.fixture(autouse=True)
def _can_make_hosts() -> None:
    try:
        with Hosts(1):
            pass
    except NoHosts as reason:
        pytest.skip(str(reason))


@pytest.mark.timeout(240)
def test_all_jobs_are_verified_on_three_hosts(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "cluster" / "demo.py"), "--length", "0.6"]
    command += ["--report", str(tmp_path / "jobs.html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=220)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "jobs": 6,
        "verified": 6,
        "hosts_used": 3,
        "moved_between_hosts": 1,
        "restarted": 1,
        "lost": 0,
    }
    page = tmp_path / "jobs.html"
    assert f"Open in a browser: {page}" in done.stdout
    assert "<title>Jobs on three hosts</title>" in page.read_text()


def test_without_the_right_to_make_hosts_it_says_so() -> None:
    script = (
        "import os, sys, demo; os.setgroups([]); os.setresgid(65534, 65534, 65534);"
        " os.setresuid(65534, 65534, 65534); sys.exit(demo.main([]))"
    )
    if os.geteuid() != 0:
        script = "import sys, demo; sys.exit(demo.main([]))"
    path = os.pathsep.join([str(ROOT / "examples" / "cluster"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == CANNOT_RUN, done.stderr
    assert "only root can make hosts of namespaces" in done.stderr
