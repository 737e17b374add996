"""Partitions of a live service: a job grows in its own, restarts and commands know them."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from command_line import invoke
from paths import SUPPORT
from told import ENDLESS, WAITS

from reshape.errors import ReshapeError
from scheduler.model.procset import ProcSet

SETTINGS = """
nodes: [{name: a, processors: 2}, {name: b, processors: 3}]
scenario: easy
verify: true
partitions:
  batch: {nodes: [a]}
  grow: {nodes: [b], scenario: fcfs-pr, max_walltime_s: "1:00:00", default_walltime_s: "10:00"}
"""
GROWS = [
    *("-n", "1", "--max", "5", "--topology", "arbitrary:step=1", "--performance"),
    *("amdahl:serial=0.01", "--partition", "grow"),
]
PROGRAM = [sys.executable, str(SUPPORT / "resizable.py"), str(ENDLESS), "0.02"]


@pytest.fixture
def partitioned(served: Any, tmp_path: Any) -> Any:
    """A service of two partitions, each with a node of its own."""
    config = tmp_path / "service.yaml"
    config.write_text(SETTINGS)
    served.start("--config", str(config))
    return served


def submit(served: Any, options: list[str], program: list[str]) -> int:
    number: int = json.loads(served.answer("submit", *options, "--json", "--", *program))["job"]
    return number


def test_a_job_grows_inside_its_partition(partitioned: Any) -> None:
    growing = submit(partitioned, GROWS, PROGRAM)
    job = partitioned.when(growing, lambda job: job.resize_count)
    assert (job.partition, job.max_processors, job.walltime_s) == ("grow", 3, 600)
    assert job.nodes == "b"
    assert max(size for _, size in job.sizes) > 1
    own = ProcSet.parse("2-4")
    assert not any(ProcSet.parse(held) - own for _, held in job.allocation)
    other = submit(partitioned, ["-n", "2"], WAITS)
    waiting = submit(partitioned, ["-n", "1", "--walltime", "5:00", "-p", "batch"], WAITS)
    assert partitioned.until(other, "RUNNING").nodes == "a", "the first partition"
    assert "1 processor wanted, 0 free" in partitioned.story(waiting)

    partitioned.kill()
    partitioned.start(*partitioned.options)
    info = json.loads(partitioned.answer("info", "--json"))["partitions"]
    shown = [(p["name"], p["processors"], p["queued"], p["running"]) for p in info]
    assert shown == [("batch", 2, 1, 1), ("grow", 3, 0, 1)]
    assert info[0]["free"] == 0
    assert "grow       fcfs-pr" in partitioned.answer("info")
    rows = [line.split()[:2] for line in partitioned.answer("queue").splitlines()]
    assert rows[:1] == [["JOBID", "QUEUE"]]
    assert [str(growing), "grow"] in rows
    assert "no partition 'grows'; did you mean grow?" in partitioned.answer(
        *("queue", "-p", "batch,grows"), code=1
    )
    nodes = partitioned.answer("node list").splitlines()
    assert [line.split()[:2] for line in nodes[1:3]] == [["a", "batch"], ["b", "grow"]]
    assert "Partition:  grow" in partitioned.answer("info", growing)
    quote = json.loads(partitioned.answer("quote", "-n", 3, "-p", "grow", "--json"))
    assert quote["processors"] == "2-4", "when the job that grew has ended"
    dependent = ("quote", "-n", 1, "--dependency", f"afterany:{other}", "--begin", "now+2d")
    assert "Start:      " in partitioned.answer(*dependent)
    assert ", in 1-23:59:" in partitioned.answer(*dependent)

    with pytest.raises(ReshapeError, match="name a partition that accepts it: grow"):
        partitioned.submit(["true"], 3)
    later = ["--start", "now+2:00:00", "--duration", "10:00", "--name", "r"]
    words = partitioned.answer("reserve create", *later, "--nodes", "a,b", code=1)
    assert "the nodes a, b are not all in one partition" in words
    partitioned.answer("reserve create", *later, "--processors", "1", "-p", "grow")
    (reserved,) = json.loads(partitioned.answer("reserve list", "--json"))
    assert (reserved["partition"], reserved["nodes"]) == ("grow", ["b"])
    words = partitioned.answer("submit", "-n", 1, "--reservation", "r", "--", "true", code=1)
    assert "reservation r is in partition grow, the job in batch" in words
    partitioned.kill()
    options = partitioned.options
    other_file = partitioned.work.parent / "renamed.yaml"
    other_file.write_text(SETTINGS.replace("grow:", "late:"))
    with pytest.raises(ReshapeError, match="node b gave 3 processors to partition grow"):
        partitioned.start("--config", str(other_file))
    partitioned.start(*options)

    for number in (other, waiting):
        assert partitioned.finish(number).state == "COMPLETED"
    assert partitioned.finish(growing).state == "COMPLETED", partitioned.output(growing)
    history = json.loads(partitioned.answer("history", "--json"))["jobs"]
    assert {job["job"]: job["partition"] for job in history} == {
        growing: "grow",
        other: "batch",
        waiting: "batch",
    }
    assert "identical" in invoke("replay", partitioned.directory).stdout
