"""Shared nodes of a live service: declared capacities and demands, and the death of the service."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from command_line import invoke

MACHINE = """
nodes: [a, b]
processors_per_node: 2
shared_per_node: {memory_bandwidth: 100}
"""
#: Waits until there is a file of the name it was given.
WAITER = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)"


def submit(served: Any, demand: int, until: str) -> int:
    words = "submit", "-n", "1", "--demand", f"memory_bandwidth={demand}", "--json", "--"
    done = served.command(*words, sys.executable, "-c", WAITER, until)
    number: int = json.loads(done.stdout)["job"]
    return number


def test_jobs_avoid_the_node_on_which_they_would_be_penalised(served: Any, tmp_path: Any) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(MACHINE)
    options = "--machine", str(file), "--scenario", "easy", "--set", "selection=less-consume"
    served.start(*options)
    first, second = submit(served, 90, "one"), submit(served, 60, "two")
    assert served.until(first, "RUNNING").nodes == "a"
    assert served.until(second, "RUNNING").nodes == "b"
    info = json.loads(served.command("info", "--json").stdout)
    assert info["shared"] == {"memory_bandwidth": 100}
    assert "Shared:      memory_bandwidth=100 a node" in served.command("info").stdout
    shown = served.command("info", str(first)).stdout
    assert "Demand:     memory_bandwidth=90 a process" in shown
    assert "DEMAND" in served.command("queue").stdout
    listed = json.loads(served.command("queue", "--json").stdout)["jobs"]
    assert [job["shared"] for job in listed] == [
        {"memory_bandwidth": 90},
        {"memory_bandwidth": 60},
    ]
    story = served.command("explain", str(second)).stdout
    assert "1 processor, 60 memory_bandwidth a process, 3600 s" in story
    assert "with a penalty factor of 1" in story
    served.kill()
    served.start(*options)
    assert served.job(first).shared == {"memory_bandwidth": 90}
    third = submit(served, 30, "two")
    assert served.until(third, "RUNNING").nodes == "b", "the demand of job 1 was recovered"
    quoted = served.command("quote", "-n", "1", "--demand", "memory_bandwidth=1").stdout
    assert "Processors: " in quoted
    for words, says in (
        ("memory_bandwith=1", "there is no shared resource 'memory_bandwith'; did you mean"),
        ("memory_bandwidth.read=1", ""),
    ):
        done = served.command(
            "submit", "-n", "1", "--demand", words, "--", "true", code=1 if says else 0
        )
        assert says in done.stderr
    for name in ("one", "two"):
        (served.work / name).touch()
    for job in (first, second, third):
        assert served.wait(job).state == "COMPLETED"
    again = invoke("replay", served.directory)
    assert "decisions identical" in again.stdout, again.stdout + again.stderr


def test_a_service_gets_a_machine_file_with_capacities_later(served: Any, tmp_path: Any) -> None:
    """Its nodes have the numbers that the file gives them, so the directory is accepted."""
    plain, shared = tmp_path / "plain.yaml", tmp_path / "shared.yaml"
    plain.write_text("nodes: [a]\nprocessors_per_node: 2\n")
    shared.write_text(plain.read_text() + "shared_per_node: {memory_bandwidth: 100}\n")
    served.start("--machine", str(plain), "--scenario", "easy")
    served.until(served.submit(["true"], 1), "COMPLETED")
    served.kill()
    served.start("--machine", str(shared), "--scenario", "rua")
    assert served.until(submit(served, 20, "one"), "RUNNING").nodes == "a"
    (served.work / "one").touch()


def test_a_demand_that_no_node_limits(service: Any) -> None:
    with pytest.raises(AssertionError, match="the nodes share nothing that is limited"):
        submit(service, 1, "never")
