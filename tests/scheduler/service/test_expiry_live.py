"""A node that is given back at a time: nothing starts there that ends later, and its jobs leave."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from command_line import invoke
from process_words import words_of
from waiting import wait_until

from scheduler.protocol import messages as m

CONFIG = """\
kill_at_walltime: false
nodes:
  - {{name: a, processors: 1}}
  - {{name: b, processors: 1, until: {until}}}
"""


def nodes(service: Any) -> dict[str, str]:
    answer = service.ask(m.ListMachine(part="nodes"))
    assert isinstance(answer, m.Nodes)
    return {node.name: node.state for node in answer.nodes}


def has_agent(service: Any, node: str) -> bool:
    return any({"agent", node} <= set(words_of(process)) for process in service.processes())


def test_jobs_of_a_node_that_expires_end_or_go_back_to_the_queue(
    served: Any, tmp_path: Path
) -> None:
    config, began = tmp_path / "config.yaml", time.monotonic()
    config.write_text(CONFIG.format(until=time.time() + 3600.0))
    served.start("--config", str(config))
    served.kill()
    # The jobs below start before the node is given back, however slow the machine is.
    until = time.time() + 12.0 + 4.0 * (time.monotonic() - began)
    config.write_text(CONFIG.format(until=until))
    served.start("--config", str(config))
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
    assert "node b is given back" in info.reason
    explanation = served.ask(m.Explain(job=short))
    assert isinstance(explanation, m.Explanation)
    (moved_at,) = (line.at for line in explanation.lines if "goes back to the queue" in line.text)
    assert 0.0 < until - moved_at < 6.0
    wait_until(
        lambda: nodes(served) == {"a": "alloc"} and not has_agent(served, "b"),
        lambda: nodes(served),
    )
    invoke("cancel", *where, long)
    assert served.until(short, "RUNNING").nodes == "a"
    invoke("cancel", *where, short)
    assert served.wait(queued).state == "COMPLETED"
