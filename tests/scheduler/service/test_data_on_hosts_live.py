"""Data of jobs on several hosts: what crosses the network, restart points, left-over segments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import BIN, Cluster
from host_programs import finish, skip_without_hosts, synthetic
from paths import SUPPORT
from told import ENDLESS

from apps.synthetic import BLOCK, COLUMNS
from redistribution import BlockCyclic, Plan
from reshape.files.job_folder import RESTART_FILE
from reshape.topology import nearly_square

pytestmark = pytest.mark.hosts
DEADLINES = "deadlines: {node_lost_s: 8, heartbeat_s: 0.3}"


@pytest.fixture(scope="module", autouse=True)
def _can_make_hosts() -> None:
    skip_without_hosts()


def scripted(steps: str, gate: Path | str = "") -> list[str]:
    """Options of a service that resizes a job in steps, each when there is its file of `gate`."""
    set_steps = ["--set", f"resizing.steps='{steps}'", "--set", f"resizing.gate='{gate}'"]
    return ["--verify", "--scenario", "scripted:Scripted", *set_steps]


def submit(
    cluster: Cluster,
    size: int,
    requeue: bool = False,
    **environment: str,
) -> int:
    """Submit the program that verifies data of every kind, with faults in its environment.

    It goes on until the test tells it to end.
    """
    more = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "SPARSE": "1", **environment}
    program = [sys.executable, str(SUPPORT / "resizable.py"), str(ENDLESS), "0.1"]
    return cluster.submit(program, size, max_processors=6, environment=more, requeue=requeue)


def sent_bytes(cluster: Cluster) -> int:
    """Bytes that all hosts have sent to the network so far."""
    command = cluster.hosts.on_head("ip", "-s", "-j", "link", "show")
    links = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return sum(link["stats64"]["rx"]["bytes"] for link in links if link["ifname"][:2] == "vn")


def files(cluster: Cluster, host: str, job: int) -> list[str] | None:
    """Names of the files in the shared memory of a job on a host; None if there is no folder."""
    folder = cluster.place.shm(job)
    done = subprocess.run(
        cluster.hosts[host].command(["ls", str(folder)]),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.split() if done.returncode == 0 else None


def test_only_what_changes_its_host_crosses_the_network(tmp_path: Path) -> None:
    """5 ranks become 6, 4 of them on the first host; most elements change their rank."""
    with Cluster(
        tmp_path,
        hosts=2,
        processors=4,
        options=scripted("6", tmp_path / "step-"),
        policies=SUPPORT,
    ) as cluster:
        job = cluster.submit(synthetic(mib=48), 5, max_processors=6)
        cluster.until(lambda: cluster.job(job).iteration >= 5)
        before = sent_bytes(cluster)
        (tmp_path / "step-1").touch()
        cluster.until(lambda: cluster.job(job).size == 6)
        crossed = sent_bytes(cluster) - before
        info = finish(cluster, job)
        assert info.facts["verified"] is True, cluster.output(job)
        shape = (128 * 48, COLUMNS)
        plan = Plan(
            *(BlockCyclic(shape, BLOCK, nearly_square(size)) for size in (5, 6)),
            hosts=(0, 0, 0, 0, 1, 1),
        )
        assert info.resizes[0].moved_bytes == plan.bytes_moved(8)
        assert plan.bytes_sent(8) < crossed < plan.bytes_sent(8) + (6 << 20)
        assert crossed < 0.7 * plan.bytes_moved(8)


@pytest.mark.parametrize("fault", ["process", "agent"])
def test_a_job_on_two_hosts_restarts_after_a_death_within_a_resize(
    tmp_path: Path, fault: str
) -> None:
    with Cluster(
        tmp_path, hosts=3, processors=2, options=scripted("6 6"), policies=SUPPORT, config=DEADLINES
    ) as cluster:
        mark = tmp_path / "stopped"
        faults = {"KILL": "1:2:before:run"} if fault == "process" else {"STOP": f"1:2:{mark}"}
        job = submit(cluster, 3, **faults)
        if fault == "agent":
            cluster.until(mark.exists)
            cluster.until(lambda: RESTART_FILE in (files(cluster, "n1", job) or []))
            cluster.kill_agent("n2")
            cluster.start_agent("n2")
        cluster.until(lambda: cluster.job(job).size == 6)
        info = finish(cluster, job)
        assert info.state == "COMPLETED", (info, cluster.output(job))
        assert info.restarts == 1
        assert info.facts == {"verified": True, "size": 6}
        assert "sizes 3 6 right" in cluster.output(job)


def test_groups_on_several_hosts_restart_together(tmp_path: Path) -> None:
    """A group that joined on another host dies when the next one joins."""
    with Cluster(
        tmp_path,
        hosts=3,
        processors=2,
        options=scripted("4 6 6", tmp_path / "step-"),
        policies=SUPPORT,
    ) as cluster:
        kill = tmp_path / "kill"
        (tmp_path / "step-1").touch()
        job = submit(cluster, 2, KILL_FILE=str(kill))
        cluster.until(lambda: cluster.job(job).size == 4)
        kill.write_text("3:0:before:run")
        for step in (2, 3):
            (tmp_path / f"step-{step}").touch()
        cluster.until(lambda: cluster.job(job).restarts == 1 and cluster.job(job).size == 6)
        info = finish(cluster, job)
        assert info.state == "COMPLETED", (info, cluster.output(job))
        assert info.facts == {"verified": True, "size": 6}
        assert "sizes 2 4 6 right" in cluster.output(job)


def test_a_host_that_a_running_job_has_left_keeps_none_of_its_memory(tmp_path: Path) -> None:
    with Cluster(
        tmp_path,
        hosts=2,
        processors=2,
        options=scripted("4 2/1", tmp_path / "step-"),
        policies=SUPPORT,
    ) as cluster:
        job = submit(cluster, 2)
        (tmp_path / "step-1").touch()
        cluster.until(lambda: cluster.job(job).size == 4)
        assert files(cluster, "n1", job)
        left = cluster.place.shm(job) / "a.e0.r9"  # as of a process that was killed
        cluster.hosts["n1"].start("touch", str(left)).wait()
        (tmp_path / "step-2").touch()
        cluster.until(lambda: cluster.job(job).nodes == "n2")
        cluster.until(lambda: files(cluster, "n1", job) is None)
        assert cluster.job(job).state == "RUNNING"
        assert files(cluster, "n2", job)
        info = finish(cluster, job)
        assert info.facts["verified"] is True, cluster.output(job)
        cluster.until(lambda: files(cluster, "n2", job) is None)


def test_a_job_whose_data_is_lost_with_a_host_restarts_from_its_checkpoint(tmp_path: Path) -> None:
    """The restart point on the other host does not help."""
    with Cluster(
        tmp_path, hosts=3, processors=2, options=scripted("6"), policies=SUPPORT, config=DEADLINES
    ) as cluster:
        mark = tmp_path / "stopped"
        checkpoints = f"5:{tmp_path / 'checkpoints'}"
        more = {"STOP": f"1:2:{mark}", "CHECKPOINT": checkpoints}
        job = submit(cluster, 3, requeue=True, **more)
        cluster.until(mark.exists)
        cluster.until(lambda: RESTART_FILE in (files(cluster, "n1", job) or []))
        cluster.hosts["n2"].kill()
        cluster.until(lambda: "restarted_from" in cluster.job(job).facts)
        info = finish(cluster, job)
        assert info.state == "COMPLETED", (info, cluster.output(job))
        assert (info.restarts, info.requeues) == (0, 1)
        assert "node n2 is gone" in info.reason
        assert info.facts["verified"] is True
        assert Path(str(info.facts["restarted_from"])).parent == tmp_path / "checkpoints"
        for host in ("n1", "n3"):
            cluster.until(lambda host=host: files(cluster, host, job) is None)


def test_a_job_whose_segments_are_lost_says_why_it_cannot_restart(tmp_path: Path) -> None:
    with Cluster(
        tmp_path, hosts=3, processors=2, options=scripted("6"), policies=SUPPORT, config=DEADLINES
    ) as cluster:
        mark = tmp_path / "stopped"
        job = submit(cluster, 3, STOP=f"1:2:{mark}")
        cluster.until(mark.exists)
        cluster.until(lambda: RESTART_FILE in (files(cluster, "n1", job) or []))
        n2 = cluster.hosts["n2"]
        n2.start("rm", "-r", str(cluster.place.shm(job))).wait(10)
        n2.start("pkill", "-9", "-f", "resizable.py").wait(10)
        info = cluster.wait(job)
        assert (info.state, info.restarts) == ("FAILED", 0)
        assert "cannot restart: its data on n2 is lost" in info.reason
        for host in ("n1", "n2", "n3"):
            cluster.until(lambda host=host: files(cluster, host, job) is None)
