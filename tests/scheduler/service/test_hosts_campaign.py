"""A short form of the faults of hosts in the phases of a resize across hosts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hosts import Hosts, NoHosts
from paths import ROOT

pytestmark = pytest.mark.campaign

PROGRAM = ROOT / "benchmarks" / "reliability" / "hosts_campaign.py"
#: With `--node-lost 3` a host that is cut off for 6 s is lost and comes back.
LOST = ["--rounds", "cut-6:joining:n2,host:leaving:n1,service:both,agent:starting:n2"]
LOST += ["--node-lost", "3", "--parallel", "2"]
#: A cut that is shorter than the patience of the service, and longer than the default of UCX.
NOT_LOST = ["--rounds", "cut-20:both:n2"]


@pytest.mark.timeout(400)
def test_both_jobs_are_right_after_any_fault() -> None:
    try:
        with Hosts(1):
            pass
    except NoHosts as reason:
        pytest.skip(str(reason))
    campaigns = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), *options, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for options in (LOST, NOT_LOST)
    ]
    outputs = [campaign.communicate(timeout=380) for campaign in campaigns]
    assert [campaign.returncode for campaign in campaigns] == [0, 0], outputs
    lost, not_lost = (json.loads(output)["rounds"] for output, _ in outputs)
    assert [row["fault"] for row in lost] == ["cut-6", "host", "service", "agent"]
    assert all(row["resizes"] or row["requeues"] for row in lost)
    assert [row["resizes"] for row in not_lost] == ["2-4 done, 4-2 done"]


def test_unknown_words_are_refused() -> None:
    for words, error in (
        (["--rounds", "fire:joining:n1"], "unknown fault 'fire'"),
        (["--rounds", "service:joining:n1"], "a fault of the service alone has no host"),
        (["--rounds", "service:late"], "unknown phase 'late': use running, starting"),
    ):
        command = [sys.executable, str(PROGRAM), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert error in done.stderr
