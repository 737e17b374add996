"""A node that is given back at a time: nothing starts there that ends later, and its jobs leave."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke

from reshape.wire import messages as m

pytestmark = pytest.mark.timeout(120)

CONFIG = """\
kill_at_walltime: false
nodes:
  - {{name: a, processors: 1}}
  - {{name: b, processors: 1, until: {until}}}
"""


def nodes(service: Any) -> dict[str, str]:
    answer = service.ask(m.ListNodes())
    assert isinstance(answer, m.Nodes)
    return {node.name: node.state for node in answer.nodes}


def has_agent(service: Any, node: str) -> bool:
    return any({"agent", node} <= set(process.cmdline()) for process in service.processes())


def test_jobs_of_a_node_that_expires_end_or_go_back_to_the_queue(
    served: Any, tmp_path: Path
) -> None:
    until = time.time() + 20.0
    (tmp_path / "config.yaml").write_text(CONFIG.format(until=until))
    served.start("--config", str(tmp_path / "config.yaml"))
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    where = ("--dir", served.directory)
    assert "until 20" in invoke("node", "list", *where).stdout
    long = served.submit(sleeper, 1, walltime_s=600.0)
    assert served.until(long, "RUNNING").nodes == "a"
    queued = served.submit(["true"], 1, walltime_s=600.0)
    story = served.story(queued)
    assert "expiry of node b" in story, story
    short = served.submit(sleeper, 1, walltime_s=3.0, requeue=True)
    assert served.until(short, "RUNNING").nodes == "b"
    # The job that exceeds its walltime goes back to the queue a few seconds before the end.
    info = served.until(short, "PENDING")
    assert 0.0 < until - time.time() < 6.0
    assert "node b is given back" in info.reason
    end = time.monotonic() + 10.0
    while nodes(served) != {"a": "alloc"} or has_agent(served, "b"):
        assert time.monotonic() < end, nodes(served)
        time.sleep(0.1)
    invoke("cancel", *where, long)
    assert served.until(short, "RUNNING").nodes == "a"
    invoke("cancel", *where, short)
    assert served.wait(queued).state == "COMPLETED"
