"""The largest memory of jobs in their accounts."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from click.testing import CliRunner
from paths import SUPPORT

from reshape.__main__ import main

#: With an argument it holds its memory until the test tells it to end.
PROGRAM = f"""
import os, sys, time
sys.path.insert(0, {str(SUPPORT)!r})
from told import end_file
d = bytearray(210 << 20)
while sys.argv[1:] and not os.path.exists(end_file(os.environ["RESHAPE_JOB"])):
    time.sleep(0.05)
"""
HOLDS = ["python", "-c", PROGRAM]


@pytest.fixture
def service(shared_service: Any) -> Any:
    """One service for the tests of this module that leave it as it was."""
    return shared_service


def test_the_account_of_a_job_has_its_largest_memory(service: Any) -> None:
    number = service.submit([*HOLDS, "until told"], 2)
    service.when(number, lambda job: job.max_memory_mib >= 2 * 210)
    job = service.finish(number)
    assert 2 * 210 <= job.max_memory_mib < 2 * 300
    shown = CliRunner().invoke(main, ["history", "--dir", str(service.directory)])
    header, line = shown.output.splitlines()[:2]
    assert "MAXMEM" in header
    assert f"{job.max_memory_mib}M" in line


def test_the_memory_of_a_short_job_is_that_of_its_largest_process(service: Any) -> None:
    job = service.wait(service.submit(HOLDS, 1))
    assert 210 <= job.max_memory_mib < 300


@pytest.mark.parametrize("killed", ["service", "agent"])
def test_the_largest_memory_survives_a_death(service: Any, killed: str) -> None:
    number = service.submit([*HOLDS, "until told"], 1)
    found = service.when(number, lambda job: job.max_memory_mib >= 200).max_memory_mib
    if killed == "service":
        service.kill()
        service.start()
        assert service.job(number).max_memory_mib >= found
        os.kill(service.agent_pid(), signal.SIGKILL)
    else:
        os.kill(service.agent_pid(), signal.SIGKILL)
    job = service.wait(number)
    assert (job.state, job.max_memory_mib >= found) == ("NODE_FAIL", True)
    assert service.wait(service.submit(["true"], 8)).state == "COMPLETED"
