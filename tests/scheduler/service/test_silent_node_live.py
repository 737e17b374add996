"""A node whose agent is silent, before it counts as lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from stopped import stopped
from waiting import wait_until

from scheduler.protocol import messages as m


def node(served: Any, number: int = 0) -> m.NodeInfo:
    answer = served.ask(m.ListMachine(part="nodes"))
    assert isinstance(answer, m.Nodes)
    return answer.nodes[number]


def test_a_silent_node_shows_its_silence_and_promises_no_start(service: Any) -> None:
    """Its job should have ended, so that the next one would start at once."""
    served = service
    first = served.submit(["sleep", "600"], node(served).processors, walltime_s=600.0)
    served.until(first, "RUNNING")
    queued = served.submit(["true"], 1, walltime_s=600.0)
    assert node(served).state == "alloc"
    with stopped(served.agent_pid()):
        wait_until(lambda: node(served).state == "alloc*")
        assert node(served).reason.startswith("its agent has been silent for ")
        served.ask(
            m.ChangeJobs.one(first, m.CancelJob())
        )  # ends only when the agent ends its processes
        served.until(first, "COMPLETING")
        told = served.answer("explain", queued)
        assert "no expected start: " in told
        listed = served.answer("queue", "--start").splitlines()[-1].split()
        assert listed[:1] == [str(queued)]
        assert "00:00:00" not in listed
    assert served.wait(queued).state == "COMPLETED"
    wait_until(lambda: node(served).state == "idle")


def test_nothing_starts_on_a_silent_node_before_it_reports(served: Any, tmp_path: Path) -> None:
    """Neither while the service runs, nor if the agent has not reported since its start."""
    config = tmp_path / "config.yaml"
    config.write_text("nodes: [{name: a, processors: 1}, {name: b, processors: 1}]\n")
    served.start("--config", str(config))
    served.wait(served.submit(["true"], 2))
    first = served.submit(["sleep", "600"])
    served.until(first, "RUNNING")
    with stopped(served.agent_pid("b")):
        wait_until(lambda: node(served, 1).state == "idle*")
        queued = served.submit(["true"])
        assert "(silent agent of node b)" in served.answer("explain", queued)
    assert served.wait(queued).state == "COMPLETED"
    with stopped(served.agent_pid("b")):
        served.kill()
        served.place.server_file.unlink()
        # `start` would wait until all nodes are up.
        command = [sys.executable, "-m", "reshape", "serve", "--dir", served.directory]
        served.process = subprocess.Popen([*command, *served.options])
        wait_until(served.place.server_file.exists)
        wait_until(lambda: node(served, 1).state == "down*")
        assert node(served, 1).reason.startswith("its agent has been silent for ")
        queued = served.submit(["true"])
        assert "(silent agent of node b)" in served.answer("explain", queued)
        assert served.job(first).state == "RUNNING"
    assert served.wait(queued).state == "COMPLETED"
    served.check_replay()


def test_a_job_whose_start_a_silent_node_may_still_read_keeps_its_processors(
    served: Any, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("nodes: [{name: a, processors: 1}, {name: b, processors: 1}]\n")
    served.start("--config", str(config))
    served.wait(served.submit(["true"], 2))
    first = served.submit(["sleep", "600"])
    served.until(first, "RUNNING")
    with stopped(served.agent_pid("b")):
        second = served.submit(["sleep", "600"])
        served.until(second, "STARTING")
        served.ask(m.ChangeJobs.one(second, m.CancelJob()))
        third = served.submit(["true"])
        wait_until(lambda: node(served, 1).state == "alloc*")
        # Longer than an agent takes to report a start.
        wait_until(lambda: int(node(served, 1).reason.split()[-2]) >= 8)
        assert served.job(second).state == "COMPLETING"
        assert served.job(third).state == "PENDING"
    assert served.wait(second).state == "CANCELLED"
    assert served.wait(third).state == "COMPLETED"
