"""The processes that compute futures."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil

COMPUTES = """
from scheduler.forecasts.futures import Futures
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.events import JobSpec, JobSubmitted
from scheduler.model.machine import Machine
from scheduler.policies.scenarios import scenario
from scheduler.core.core import Core

site = Core(scenario("easy"), Machine([("n", 8)]))
for number in range(1, 50):
    site.handle([JobSubmitted(0.0, number, JobSpec(5, 10.0 * number))])
Futures(RecordedState.of_core(site), 49).spreads(20_000, workers=2)
"""


def test_the_processes_of_a_pool_end_with_their_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", COMPUTES])
    until = time.monotonic() + 30
    children: list[psutil.Process] = []
    while len(children) < 2:
        assert parent.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
        children = psutil.Process(parent.pid).children()
    parent.kill()
    parent.wait()
    _, left = psutil.wait_procs(children, timeout=20)
    for process in left:
        process.kill()
    assert not left
