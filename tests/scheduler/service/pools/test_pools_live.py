"""Pools of a service, with programs in place of those of Slurm (`fake_slurm`).

The batch jobs run their scripts, so the agents are real.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from fake_slurm import FakeSlurm
from told import WAITS
from waiting import wait_until

from reshape.errors import ReshapeError
from scheduler.protocol import messages as m

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
#: Allocations of one node with two processors, quickly given back.
OPTIONS = {
    "nodes": "0-2",
    "time_limit": "10:00",
    "processors": "2",
    "idle_timeout": "0:03",
    "hysteresis": "0:02",
}


#: Run by each Python process at its start: the service looks at batch jobs more often.
CUSTOMIZE = """
import sys
if "serve" in sys.orig_argv:
    from scheduler.service.pools import batch_jobs
    batch_jobs.LOOK_UP_S = 1.0
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Programs in place of those of Slurm, first on PATH."""
    made = FakeSlurm(tmp_path / "slurm")
    monkeypatch.setenv("PATH", made.environment()["PATH"])
    (made.programs / "sitecustomize.py").write_text(CUSTOMIZE)
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{made.programs}{os.pathsep}{before}".rstrip(os.pathsep))
    return made


def serve(served: Any, *options: str, processors: int = 1) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    served.start(
        *("--processors", str(processors), "--scenario", "easy"),
        *("--listen", f"127.0.0.1:{port}", "--allow-root", *options),
    )


def add(served: Any, **options: str) -> m.Message:
    return served.ask(m.ChangeMachine(change=m.AddPool("p", OPTIONS | options)))


def pool(served: Any) -> m.PoolInfo:
    answer = served.ask(m.ListMachine(part="pools"))
    assert isinstance(answer, m.PoolList)
    return answer.pools[0]


def submit(served: Any, argv: list[str], **more: Any) -> int:
    """Submit a job that fills a node of the pool."""
    job: int = served.submit(argv, 2, 300.0, **more)
    return job


def states(served: Any) -> list[str]:
    return [each.state for each in pool(served).allocations]


def test_nodes_come_when_jobs_wait_and_go_when_they_are_idle(served: Any, slurm: FakeSlurm) -> None:
    serve(served)
    answer = add(served)
    assert isinstance(answer, m.PoolAdded)
    assert "to start at" in answer.said  # of the dry run
    job = submit(served, WAITS)
    wait_until(lambda: states(served) == ["queued"])
    assert "pool p is active; it has requested 1 node" in served.story(job)
    long = served.submit(["true"], 2, 600.0)
    assert "its allocations have 00:09:00 for a job, too little for it" in served.story(long)
    invoke("cancel", "--dir", served.directory, long)
    assert "p-1" in invoke("pool", "info", "--dir", served.directory, "p").stdout
    slurm.grant(2)
    assert served.until(job, "RUNNING").nodes == "p-1"
    nodes = served.ask(m.ListMachine(part="nodes")).nodes
    assert {node.name: node.launcher for node in nodes} == {"local": "local", "p-1": "pool"}
    assert served.finish(job).state == "COMPLETED"
    wait_until(lambda: states(served) == [])
    assert [each["state"] for each in slurm.jobs().values()] == ["COMPLETED"]  # not cancelled
    times = [at for at, *_ in slurm.calls()]
    assert all(after - before > 0.99 for before, after in pairwise(times)), "a second between calls"
    invoke("pool", "remove", "--dir", served.directory, "p")
    wait_until(lambda: served.ask(m.ListMachine(part="pools")).pools == [])
    with pytest.raises(ReshapeError, match="the machine has 1"):
        submit(served, ["true"])


def test_a_service_without_nodes_gets_them_from_a_pool(served: Any, slurm: FakeSlurm) -> None:
    serve(served, processors=0)
    with pytest.raises(ReshapeError, match="no processors: add a pool first"):
        served.submit(["true"])
    add(served)
    with pytest.raises(ReshapeError, match="the machine has 4"):
        served.submit(["true"], 5)
    slurm.grant(2)
    job = served.submit(["true"], 4, 300.0)  # the pool's largest number of nodes
    assert served.wait(job).state == "COMPLETED"


def test_a_running_job_expands_onto_a_node_that_the_pool_gets_for_it(
    served: Any, slurm: FakeSlurm
) -> None:
    serve(served, "--scenario", "fcfs-pr", "--verify", processors=0)
    add(served, grow_running="yes")
    slurm.grant(2)
    argv = [sys.executable, "-m", "apps.synthetic", "--iterations", "600", "--seconds", "0.3"]
    argv += ["--speedup", "amdahl:serial=0", "--mib", "1"]
    job = submit(served, argv, max_processors=4)
    # Both nodes are on this host, so they have the shared memory of the job in common.
    info = served.when(job, lambda info: info.nodes == "p-1,p-2" and info.size == 4)
    assert {each.outcome for each in info.resizes} == {"done"}
    invoke("cancel", "--dir", served.directory, job)
    assert "grow running yes" in invoke("pool", "info", "--dir", served.directory, "p").stdout


def test_a_queued_allocation_is_cancelled_when_its_job_is_gone(
    served: Any, slurm: FakeSlurm
) -> None:
    serve(served)
    add(served)
    job = submit(served, ["true"])
    wait_until(lambda: states(served) == ["queued"])
    invoke("cancel", "--dir", served.directory, job)
    wait_until(lambda: [each["state"] for each in slurm.jobs().values()] == ["CANCELLED"])
    wait_until(lambda: states(served) == [])


def test_no_allocation_is_forgotten_or_submitted_twice_by_a_crash(
    served: Any, slurm: FakeSlurm
) -> None:
    """The service is killed after Slurm has accepted a batch job and before it knows its id."""
    serve(served)
    add(served)
    assert served.process is not None
    slurm.set("crash", str(served.process.pid))
    job = submit(served, ["true"])
    wait_until(lambda: served.process.poll() is not None)
    assert len(slurm.jobs()) == 1
    served.start()
    wait_until(lambda: [each.id for each in pool(served).allocations] == ["1"])
    slurm.grant(1)
    assert served.wait(job).state == "COMPLETED"
    assert len(slurm.jobs()) == 1


def test_a_pool_and_its_running_jobs_survive_the_service(served: Any, slurm: FakeSlurm) -> None:
    serve(served)
    add(served)
    slurm.grant(2)
    job = submit(served, WAITS)
    served.until(job, "RUNNING")
    served.kill()
    served.start()
    wait_until(lambda: states(served) == ["running"])
    info = served.finish(job)
    assert (info.state, info.restarts) == ("COMPLETED", 0)
    wait_until(lambda: states(served) == [])
    assert len(slurm.jobs()) == 1


def test_a_refused_submission_is_followed_by_a_wait_that_commands_show(
    served: Any, slurm: FakeSlurm
) -> None:
    serve(served)
    slurm.set("refuse", "Invalid account")
    with pytest.raises(ReshapeError, match=r"would be refused: .*Invalid account"):
        add(served)
    slurm.clear("refuse")
    add(served)
    slurm.set("refuse", "Invalid account")
    job = submit(served, ["true"])
    wait_until(lambda: pool(served).state == "waiting")
    shown = invoke("pool", "list", "--dir", served.directory).stdout
    assert "Invalid account" in shown
    assert "pool p is waiting" in invoke("queue", "--dir", served.directory).stderr
    assert "Invalid account" in served.story(job)
    assert slurm.jobs() == {}
    # An administrator who has corrected it need not wait.
    slurm.clear("refuse")
    slurm.grant(1)
    invoke("pool", "resume", "--dir", served.directory, "p")
    assert served.wait(job).state == "COMPLETED"


def test_a_paused_pool_says_so_and_submits_nothing(served: Any, slurm: FakeSlurm) -> None:
    serve(served)
    add(served)
    invoke("pool", "pause", "--dir", served.directory, "--reason", "maintenance", "p")
    job = submit(served, ["true"])
    for command in (["pool", "list"], ["queue"], ["explain", job]):
        done = invoke(command[0], *command[1:], "--dir", served.directory)
        assert "maintenance" in done.stdout + done.stderr
    assert slurm.jobs() == {}
    invoke("pool", "remove", "--dir", served.directory, "p")


@pytest.mark.long  # the pool waits for a minute before it requests a node again
def test_a_batch_job_that_is_cancelled_ends_its_jobs_and_its_nodes(
    served: Any, slurm: FakeSlurm
) -> None:
    serve(served, "--config", str(_quick(served)))
    add(served)
    slurm.grant(1)
    job = submit(served, SLEEPER, requeue=True)
    served.until(job, "RUNNING")
    slurm.run("scancel", "1")
    served.until(job, "PENDING")
    served.until(job, "RUNNING")
    assert len(slurm.jobs()) == 2
    wait_until(lambda: states(served) == ["running"])
    invoke("cancel", "--dir", served.directory, job)


def test_an_allocation_that_expires_ends_without_a_cancellation(
    served: Any, slurm: FakeSlurm
) -> None:
    config = served.work / "config.yaml"
    config.write_text("kill_at_walltime: false\n")
    began = time.monotonic()
    serve(served, "--config", str(config))
    # The job below starts before the allocation expires, however slow the machine is.
    limit_s = round(14 + 4 * (time.monotonic() - began))
    add(served, time_limit=f"{limit_s // 60}:{limit_s % 60:02}", margin="0:02")
    slurm.grant(1)
    job = served.submit(SLEEPER, 2, 5.0, requeue=True)
    served.until(job, "RUNNING")
    slurm.grant(0)
    log = served.place.log("serve")
    wait_until(lambda: "pool=p allocation=1 has ended" in log.read_text())
    assert served.job(job).requeues == 1
    assert slurm.jobs()[1]["state"] == "COMPLETED"  # its agents ended before its time limit
    assert "pool=p allocation=1 expires" in log.read_text()
    assert not [
        line for line in log.read_text().splitlines() if re.search("(WARN|ERR).* pool=", line)
    ]
    assert "scancel" not in [name for _, name, _ in slurm.calls()]
    invoke("cancel", "--dir", served.directory, job)


def _quick(served: Any) -> Path:
    """Configuration in which a silent agent is lost after a few seconds."""
    path: Path = served.work / "config.yaml"
    path.write_text("deadlines: {node_lost_s: 8}\n")
    return path


def test_a_batch_system_that_does_not_answer_changes_nothing(served: Any, slurm: FakeSlurm) -> None:
    serve(served)
    add(served)
    slurm.grant(1)
    job = submit(served, WAITS)
    served.until(job, "RUNNING")
    wait_until(lambda: states(served) == ["running"])
    slurm.set("fail", "slurm_load_jobs error: Unable to contact slurm controller")
    wait_until(lambda: "Unable to contact" in pool(served).reason)
    assert states(served) == ["running"]
    assert served.finish(job).state == "COMPLETED"
    slurm.clear("fail")
    wait_until(lambda: states(served) == [])


def test_a_pool_needs_a_service_that_other_hosts_reach(served: Any, slurm: FakeSlurm) -> None:
    served.start("--processors", "1")
    with pytest.raises(ReshapeError, match="--listen"):
        add(served)
