"""Ranks that are bound to the CPUs of their processors, as psutil sees them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from cluster import Cluster
from command_line import invoke
from hosts import Hosts, NoHosts

from reshape.topology import Topology
from scheduler.client.tables import binding_text
from scheduler.node.launching.cores import cores

CPUS = sorted(os.sched_getaffinity(0))
WORLD = """
from mpi4py import MPI
world = MPI.COMM_WORLD
print(world.size, flush=True)
while True:
    world.Barrier()
    __import__("time").sleep(0.2)
"""
RANKS = [sys.executable, "-c", WORLD]
pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        [core[:1] for core in cores()] != [[cpu] for cpu in CPUS] or len(CPUS) < 2,
        reason="this machine has fewer than two CPUs, or cores with several hardware threads",
    ),
]


@pytest.fixture
def _hosts() -> None:
    try:
        with Hosts(1):
            pass
    except NoHosts as reason:
        pytest.skip(str(reason))


def affinities(folder: Path, job: int) -> dict[tuple[int, int], list[int]]:
    """CPUs of each rank of a job, by group and rank."""
    found = {}
    for process in psutil.process_iter():
        try:
            of = process.environ()
            if process.cwd() != str(folder) or process.cmdline()[-1:] != [WORLD]:
                continue
            if of.get("RESHAPE_JOB") == str(job) and "PMI_RANK" in of:
                rank = int(of["RESHAPE_GROUP"]), int(of["PMI_RANK"])
                found[rank] = process.cpu_affinity()
        except (psutil.Error, OSError, IndexError):
            continue
    return found


def shown(cluster: Cluster, job: int) -> dict[tuple[int, int], list[int]]:
    """CPUs of each rank as `reshape info` shows them."""
    return {(place.group, place.rank): place.cpus for place in cluster.job(job).ranks}


@pytest.mark.usefixtures("_hosts")
def test_ranks_on_hosts_are_bound_to_the_cpus_of_their_processors(tmp_path: Path) -> None:
    with Cluster(tmp_path, hosts=2, processors=2, binding="hosts") as cluster:
        expected = {"block": [0, 1, 0], "cyclic": [0, 0, 1]}
        for placement, numbers in expected.items():
            job = cluster.submit(RANKS, 3, placement=placement)
            cluster.until(lambda job=job: cluster.output(job).count("3") == 3)
            wanted = {(1, rank): [CPUS[number]] for rank, number in enumerate(numbers)}
            assert affinities(tmp_path, job) == wanted
            assert shown(cluster, job) == wanted
            if placement == "block":
                a, b = CPUS[:2]
                text = f"group 1: 0 to CPU {a}, 1 to CPU {b}, 2 to CPU {a}"
                assert binding_text(cluster.job(job)) == text
                cluster.kill_service()
                cluster.start_service()
                cluster.until_up("n1", "n2")
                assert shown(cluster, job) == wanted
            invoke("cancel", "--dir", cluster.directory, job)
            cluster.wait(job)
        job = cluster.submit(RANKS, 3, bind=False)
        cluster.until(lambda: cluster.output(job).count("3") == 3)
        assert affinities(tmp_path, job) == {(1, rank): CPUS for rank in range(3)}
        assert binding_text(cluster.job(job)) == "-"


@pytest.mark.usefixtures("_hosts")
def test_a_host_with_fewer_cpus_than_processors_binds_no_rank(tmp_path: Path) -> None:
    count = len(CPUS) + 1
    with Cluster(tmp_path, hosts=1, processors=count, binding="hosts") as cluster:
        job = cluster.submit(RANKS, 2)
        cluster.until(lambda: cluster.output(job).count("2") == 2)
        assert affinities(tmp_path, job) == {(1, 0): CPUS, (1, 1): CPUS}
        why = f"none on n1 (its agent may use {len(CPUS)} CPUs for {count} processors)"
        assert binding_text(cluster.job(job)) == why


def test_local_nodes_share_the_cpus_of_one_host(served: Any, tmp_path: Path) -> None:
    nodes = "  - {name: a, processors: 1}\n  - {name: b, processors: 1}\n"
    (tmp_path / "config.yaml").write_text(f"binding: all\nnodes:\n{nodes}")
    served.start("--config", str(tmp_path / "config.yaml"))
    job = served.submit(RANKS, 2, topology=Topology.parse("list:2"))
    served.when(job, lambda _: served.output(job).count("2") == 2)
    assert affinities(served.work, job) == {(1, 0): CPUS[:1], (1, 1): CPUS[1:2]}
