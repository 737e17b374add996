"""Nodes that are removed from a service, and resumed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from process_words import words_of
from waiting import wait_until

CONFIG = "nodes:\n  - {name: a, processors: 2}\n  - {name: b, processors: 1}\n"


def listed(service: Any) -> list[str]:
    """NODE|STATE|PROCS of each node."""
    text = invoke("node", "list", "--dir", service.directory).stdout
    return ["|".join(line.split()[:3]) for line in text.splitlines()[1:]]


def until_listed(service: Any, *expected: str) -> None:
    wait_until(lambda: listed(service) == list(expected), lambda: listed(service))


def has_agent_b(service: Any) -> bool:
    return any("b" in words_of(process) for process in service.processes())


@pytest.fixture
def two_nodes(served: Any, tmp_path: Path) -> Any:
    (tmp_path / "config.yaml").write_text(CONFIG)
    served.start("--config", str(tmp_path / "config.yaml"))
    until_listed(served, "a|idle|0/2", "b|idle|0/1")
    return served


def test_a_node_without_jobs_is_removed_and_its_agent_ends(two_nodes: Any) -> None:
    where = ("--dir", two_nodes.directory)
    assert invoke("node", "remove", *where, "b").stdout == "node b is removed\n"
    until_listed(two_nodes, "a|idle|0/2")
    wait_until(lambda: not has_agent_b(two_nodes))
    job = two_nodes.submit(["true"], 3)
    assert "3 processors wanted, the machine has 2" in two_nodes.story(job)
    for command in ("remove", "drain"):
        error = invoke("node", command, *where, "b", code=1).stderr
        assert "node b was removed; reshape node resume b takes it back" in error
    two_nodes.kill()
    two_nodes.start()
    until_listed(two_nodes, "a|idle|0/2")
    assert not has_agent_b(two_nodes)
    invoke("node", "resume", *where, "b")
    assert two_nodes.wait(job).state == "COMPLETED"
    until_listed(two_nodes, "a|idle|0/2", "b|idle|0/1")


def test_a_node_with_jobs_must_drain_before_it_is_removed(two_nodes: Any) -> None:
    where = ("--dir", two_nodes.directory)
    job = two_nodes.submit([sys.executable, "-c", "import time; time.sleep(600)"], 3)
    two_nodes.until(job, "RUNNING")
    error = invoke("node", "remove", *where, "b", code=1).stderr
    assert f"job {job} holds processors of node b: let it drain first" in error
    invoke("node", "drain", *where, "b")
    done = invoke("node", "remove", *where, "b")
    assert done.stdout == f"node b is removed as soon as job {job} has left it\n"
    assert "b (it is removed as soon as its jobs have left it)" in two_nodes.story(job)
    assert listed(two_nodes) == ["a|alloc|2/2", "b|drng|1/1"]
    assert two_nodes.job(job).state == "RUNNING"
    invoke("cancel", *where, job)
    until_listed(two_nodes, "a|idle|0/2")
    assert two_nodes.free() == 2
