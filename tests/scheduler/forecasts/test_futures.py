"""The processes that compute futures."""

from __future__ import annotations

import subprocess
import sys

import psutil
from waiting import LIMIT_S, wait_until

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
    with subprocess.Popen([sys.executable, "-c", COMPUTES]) as parent:

        def children() -> list[psutil.Process]:
            """Both processes of the pool, once they run."""
            assert parent.poll() is None
            found = psutil.Process(parent.pid).children()
            return found if len(found) >= 2 else []

        try:
            pool = wait_until(children)
        finally:
            parent.kill()
    _, left = psutil.wait_procs(pool, timeout=LIMIT_S)
    for process in left:
        process.kill()
    assert not left
