"""A short form of the faults of hosts in the phases of a resize across hosts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hosts import Hosts, NoHosts
from paths import ROOT

PROGRAM = ROOT / "benchmarks" / "reliability" / "hosts_campaign.py"
#: With `--node-lost 3` a host that is cut off for 6 s is lost and comes back.
ROUNDS = "cut-6:joining:n2,host:leaving:n1,service:both,agent:starting:n2"


@pytest.mark.timeout(400)
def test_both_jobs_are_right_after_any_fault() -> None:
    try:
        with Hosts(1):
            pass
    except NoHosts as reason:
        pytest.skip(str(reason))
    command = [sys.executable, str(PROGRAM), "--rounds", ROUNDS, "--node-lost", "3", "--json"]
    done = subprocess.run(
        [*command, "--parallel", "2"], capture_output=True, text=True, timeout=380, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rounds = json.loads(done.stdout)["rounds"]
    assert [row["fault"] for row in rounds] == ["cut-6", "host", "service", "agent"]
    assert all(row["resizes"] or row["requeues"] for row in rounds)


def test_unknown_words_are_refused() -> None:
    for words, error in (
        (["--rounds", "fire:joining:n1"], "unknown fault 'fire'"),
        (["--rounds", "service:joining:n1"], "a fault of the service alone has no host"),
        (["--phases", "late"], "unknown phase 'late': use running, starting"),
    ):
        command = [sys.executable, str(PROGRAM), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert error in done.stderr
