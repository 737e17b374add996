"""Machine files of a live service: places in a network, further resources, restarts."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from paths import SUPPORT

from reshape.errors import ReshapeError

#: Four nodes of two processors below two switches, which the top switch joins.
TREE = """
nodes: [a, b, c, d]
processors_per_node: 2
resources_per_node: {memory_gib: 16}
network: {topology: tree, k: 2, levels: 2}
"""
PACED = ["python", str(SUPPORT / "paced.py")]
#: Waits until there is a file of the name it was given.
WAITER = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    file = tmp_path / "tree.yaml"
    file.write_text(TREE)
    return file


@pytest.fixture
def placing(served: Any, machine: Path) -> Any:
    """EASY with places below one switch."""
    served.start("--machine", str(machine), "--scenario", "easy", "--set", "selection=tree")
    return served


def waits(served: Any, until: str, processors: int, **more: object) -> int:
    number: int = served.submit([sys.executable, "-c", WAITER, until], processors, **more)
    return number


def test_places_in_a_tree_and_a_death_in_between(placing: Any, machine: Path) -> None:
    """Three processors are free and no switch has three; so a job of three waits for two more."""
    two, three = waits(placing, "one", 2), waits(placing, "other", 3)
    assert placing.until(two, "RUNNING").nodes == "a"
    job = placing.until(three, "RUNNING")
    assert (job.processors, job.nodes) == ("4-6", "c,d")
    assert placing.free() == 3
    waiting = waits(placing, "never", 3)
    assert placing.when(waiting, lambda job: job.reason).state == "PENDING"
    reason = placing.job(waiting).reason
    assert "3 processors, 64 memory_gib free" in reason
    assert re.search(r"enough by \d{4}-\d\d-\d\dT[\d:]{8}Z if walltimes hold", reason)
    assert "T" in re.findall(r"enough by (\S+)", placing.story(waiting))[0]
    placing.kill()
    with pytest.raises(ReshapeError, match="this directory began with another network"):
        placing.start("--processors", "8")
    other = machine.with_name("other.yaml")
    other.write_text(TREE.replace("[a, b, c, d]", "[b, a, c, d]"))
    with pytest.raises(ReshapeError, match="or another place in it for a node"):
        placing.start("--machine", str(other), "--set", "selection=tree")
    placing.start("--machine", str(machine), "--scenario", "easy", "--set", "selection=tree")
    assert placing.job(three).processors == "4-6"
    assert placing.job(waiting).state == "PENDING"
    (placing.work / "one").touch()
    job = placing.until(waiting, "RUNNING")
    assert (job.processors, job.nodes) == ("0-2", "a,b")
    with pytest.raises(ReshapeError, match="the job asks for 9 processors, the machine has 8"):
        placing.submit(["true"], 9)
    placing.command("cancel", str(three), str(waiting))
    assert placing.wait(three).state == "CANCELLED"
    again = invoke("replay", placing.directory)
    assert "decisions identical, 0 resizes among them" in again.stdout, again.stdout + again.stderr


def test_a_job_that_grows_in_a_tree_stays_below_a_switch(served: Any, machine: Path) -> None:
    served.start("--machine", str(machine), "--set", "selection=tree")
    program = [*PACED, "0.4", "apps.synthetic", "--iterations", "2", "--seconds", "0"]
    beside = waits(served, "done", 2)
    growing = served.submit(program, 1, max_processors=4)
    served.when(growing, lambda job: job.size > 1)
    job = served.finish(growing)
    assert job.state == "COMPLETED"
    assert max(size for _, size in job.sizes) > 1
    held = [processors for _, processors in job.allocation if processors]
    assert held[0] == "2"
    assert all("0" not in processors for processors in held), "those of the job beside it"
    (served.work / "done").touch()
    assert served.wait(beside).state == "COMPLETED"


def test_further_resources(served: Any, machine: Path) -> None:
    served.start("--machine", str(machine), "--scenario", "easy")

    def submit(memory_gib: int, until: str) -> int:
        words = "submit", "-n", "2", "--resources", f"memory_gib={memory_gib}", "--json", "--"
        done = served.command(*words, sys.executable, "-c", WAITER, until)
        number: int = json.loads(done.stdout)["job"]
        return number

    first, second = submit(30, "a"), submit(40, "b")
    served.until(first, "RUNNING")
    assert served.job(second).state == "PENDING", "processors enough, but no memory"
    assert "40 memory_gib wanted" in served.job(second).reason
    info = json.loads(served.command("info", "--json").stdout)
    assert (info["free"], info["resources"]) == (6, {"memory_gib": [64, 34]})
    assert "Resources:   memory_gib 64, 34 free" in served.command("info").stdout
    assert "Resources:  memory_gib=40" in served.command("info", str(second)).stdout
    assert "2 processors, 40 memory_gib, 3600 s" in served.command("explain", str(second)).stdout
    long = waits(served, "b", 2, resources={"memory_gib": 34}, walltime_s=1e5)
    assert "[Priority]" in served.until(long, "PENDING").reason, "it would delay job 2"
    assert served.free() == 6
    (served.work / "a").touch()
    served.until(second, "RUNNING")
    assert served.job(long).state == "PENDING"
    for words, says in (
        ("memry=1", "there is no resource 'memry'; did you mean memory_gib"),
        ("memory_gib=65", "asks for 65 memory_gib, the machine has 64"),
    ):
        done = served.command("submit", "-n", "1", "--resources", words, "--", "true", code=1)
        assert says in done.stderr
    for words in ("memory_gib", "memory_gib=-1", "memory_gib=1,memory_gib=2", "processors=1"):
        served.command("submit", "-n", "1", "--resources", words, "--", "true", code=2)
    (served.work / "b").touch()
    assert served.wait(long).state == served.wait(second).state == "COMPLETED"


TORUS = """
nodes: [a, b, c, d, e, f]
network: {topology: torus, dims: [2, 3]}
"""


def test_places_in_a_torus_across_a_restart(served: Any, tmp_path: Path) -> None:
    """Nodes a to c are one ring, d to f the other; a box of two by two may cross the border."""
    file = tmp_path / "torus.yaml"
    file.write_text(TORUS)
    options = "--machine", str(file), "--scenario", "easy", "--set", "selection=submesh"
    served.start(*options)
    one = waits(served, "one", 1)
    assert served.until(one, "RUNNING").nodes == "a"
    four = waits(served, "four", 4)
    assert served.until(four, "RUNNING").nodes == "b,c,e,f"
    waiting = waits(served, "never", 2)
    assert served.when(waiting, lambda job: job.reason).state == "PENDING"
    assert served.free() == 1
    served.kill()
    served.start(*options)
    assert served.job(four).nodes == "b,c,e,f"
    (served.work / "one").touch()
    assert served.until(waiting, "RUNNING").nodes == "a,d"
    served.command("cancel", str(four), str(waiting))
    assert served.wait(four).state == "CANCELLED"
    again = invoke("replay", served.directory)
    assert "decisions identical" in again.stdout, again.stdout + again.stderr
