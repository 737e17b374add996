"""The demonstration inside Slurm, in a short form."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import slurm_demo
from hosts import NoHosts
from paths import ROOT
from slurm_cluster import SlurmCluster

pytestmark = pytest.mark.slurm


@pytest.mark.timeout(290)
def test_all_jobs_are_verified_in_a_slurm() -> None:
    try:
        with SlurmCluster(1):
            pass
    except NoHosts as reason:
        pytest.skip(str(reason))
    command = [sys.executable, str(ROOT / "examples" / "cluster" / "slurm_demo.py")]
    demo = subprocess.Popen(
        [*command, "--length", "0.6"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        stdout, stderr = demo.communicate(timeout=270)
    finally:
        if demo.poll() is None:  # it ends its Slurm and its hosts
            demo.send_signal(signal.SIGINT)
            demo.communicate(timeout=60)
    assert demo.returncode == 0, stdout + stderr
    assert json.loads(stdout.splitlines()[-1]) == {
        "jobs": 7,
        "verified": 7,
        "hosts_used": 3,
        "moved_between_hosts": 1,
        "restarted": 1,
        "lost": 0,
        "allocations": 3,
        "returned": 2,
        "expired_with_loss": 0,
    }
    assert "expires before the job would end" in stdout


def test_where_no_slurm_can_run_it_says_so() -> None:
    drop = "os.setgroups([]); os.setresgid(*[65534] * 3); os.setresuid(*[65534] * 3);"
    drops = drop if os.geteuid() == 0 else ""
    script = f"import os, sys, slurm_demo; {drops} sys.exit(slurm_demo.main([]))"
    path = os.pathsep.join([str(ROOT / "examples" / "cluster"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == slurm_demo.CANNOT_RUN, done.stderr
    assert "the demonstration cannot run here: only root can make hosts" in done.stderr
