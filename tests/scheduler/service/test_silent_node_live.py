"""A node whose agent is silent, before it counts as lost."""

from __future__ import annotations

import os
import signal
from typing import Any

from waiting import wait_until

from scheduler.protocol import messages as m


def node(served: Any) -> m.NodeInfo:
    answer = served.ask(m.ListMachine(part="nodes"))
    assert isinstance(answer, m.Nodes)
    return answer.nodes[0]


def test_a_silent_node_shows_its_silence_and_promises_no_start(service: Any) -> None:
    """Its job should have ended, so that the next one would start at once."""
    served = service
    first = served.submit(["sleep", "600"], node(served).processors, walltime_s=600.0)
    served.until(first, "RUNNING")
    queued = served.submit(["true"], 1, walltime_s=600.0)
    assert node(served).state == "alloc"
    agent = int(
        next(
            line.rpartition("pid=")[2]
            for line in served.place.log("serve").read_text().splitlines()
            if "agent reports" in line
        )
    )
    os.kill(agent, signal.SIGSTOP)
    try:
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
    finally:
        os.kill(agent, signal.SIGCONT)
    assert served.wait(queued).state == "COMPLETED"
    wait_until(lambda: node(served).state == "idle")
