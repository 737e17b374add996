"""Groups with processes on several hosts: one mpiexec, a proxy on each host under its agent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster
from command_line import invoke
from host_programs import finish, skip_without_hosts, synthetic
from paths import SUPPORT
from told import WAITS

from reshape.topology import Topology
from scheduler.client.tables import ranks_text
from scheduler.node.directory import ServiceDirectory

pytestmark = pytest.mark.hosts

WHERE = """
from mpi4py import MPI
import socket, time
world = MPI.COMM_WORLD
assert world.size == 5, world.size
found = world.gather(socket.gethostname())
if world.rank == 0:
    print(*found, flush=True)
time.sleep(1)
world.Barrier()
"""


@pytest.fixture(scope="module", autouse=True)
def _can_make_hosts() -> None:
    skip_without_hosts()


def processes(cluster: Cluster, name: str, pattern: str) -> int:
    """Number of processes of a host whose command matches a pattern."""
    command = cluster.hosts[name].command(["pgrep", "-c", "-r", "R,S,D", "-f", pattern])
    return int(subprocess.run(command, capture_output=True, text=True, check=False).stdout)


def test_ranks_are_where_the_placement_says(tmp_path: Path) -> None:
    with Cluster(tmp_path, hosts=3, processors=2) as cluster:
        expected = {
            "block": ("n1 n1 n2 n2 n3", "0-1 on n1:0-1, 2-3 on n2:0-1, 4 on n3:0"),
            "cyclic": ("n1 n2 n3 n1 n2", "0 3 on n1:0-1, 1 4 on n2:0-1, 2 on n3:0"),
        }
        for placement, (hosts, text) in expected.items():
            job = cluster.submit([sys.executable, "-c", WHERE], 5, placement=placement)
            cluster.until(lambda job=job: cluster.output(job) != "")
            assert cluster.output(job) == hosts + "\n"
            assert ranks_text(cluster.job(job)) == f"group 1: {text}"
            assert cluster.wait(job).state == "COMPLETED"


def test_a_group_on_several_hosts_is_resized_and_verified(tmp_path: Path) -> None:
    steps = ["--scenario", "scripted:Scripted", "--set", "resizing.steps=6 3/1"]
    options = ["--verify", *steps, "--set", f"resizing.gate={tmp_path}/step-"]
    with Cluster(tmp_path, hosts=3, processors=2, options=options, policies=SUPPORT) as cluster:
        topology = Topology.parse("list:3,6")
        job = cluster.submit(synthetic(), 3, max_processors=6, topology=topology)
        (tmp_path / "step-1").touch()
        cluster.until(lambda: cluster.job(job).size == 6)
        assert ranks_text(cluster.job(job)) == (
            "group 1: 0-1 on n1:0-1, 2 on n2:0; group 2: 0 on n2:1, 1-2 on n3:0-1"
        )
        (tmp_path / "step-2").touch()
        cluster.until(lambda: cluster.job(job).nodes == "n2,n3")
        info = finish(cluster, job)
        assert info.state == "COMPLETED", cluster.output(job)
        assert info.facts["verified"] is True
        for name in cluster.names:
            cluster.until(lambda name=name: processes(cluster, name, "hydra|synthetic") == 0)


@pytest.mark.parametrize("lost", ["n1", "n3"])
def test_a_job_starts_with_groups_that_span_hosts_and_loses_one(tmp_path: Path, lost: str) -> None:
    """The host with the first group, the minimum of the job, counts no more than another one."""
    steps = ["--scenario", "scripted:Scripted", "--set", "resizing.steps='3'"]
    options = ["--verify", *steps, "--set", f"resizing.gate={tmp_path}/step-"]
    options += ["--set", "backfill.adaptive_start=0.5"]
    limits = "deadlines: {node_lost_s: 6, heartbeat_s: 0.3, start_s: 200, join_s: 200}"
    with Cluster(
        tmp_path, hosts=4, processors=2, options=options, policies=SUPPORT, config=limits
    ) as cluster:
        topology = Topology.parse("list:3,6,8")
        program, most = synthetic(), {"max_processors": 8, "topology": topology}
        job = cluster.submit(program, 6, requeue=True, **most)
        cluster.until(lambda: cluster.job(job).state == "RUNNING")
        assert ranks_text(cluster.job(job)) == (
            "group 1: 0-1 on n1:0-1, 2 on n2:0; group 2: 0 on n2:1, 1-2 on n3:0-1"
        )
        cluster.hosts[lost].kill()
        cluster.until(lambda: cluster.job(job).requeues == 1)
        cluster.until(lambda: cluster.job(job).state == "RUNNING")
        assert cluster.job(job).size == 6  # on the others, which have as many processors
        (tmp_path / "step-1").touch()
        cluster.until(lambda: cluster.job(job).size == 3)
        info = finish(cluster, job)
        assert info.state == "COMPLETED", cluster.output(job)
        assert info.facts["verified"] is True
        for name in set(cluster.names) - {lost}:
            cluster.until(lambda name=name: processes(cluster, name, "hydra|synthetic") == 0)


def test_shared_memory_has_another_name_where_a_user_has_taken_it(tmp_path: Path) -> None:
    steps = ["--scenario", "scripted:Scripted", "--set", "resizing.steps='4'"]
    with Cluster(tmp_path, hosts=2, processors=2, options=steps, policies=SUPPORT) as cluster:
        taken = f"/dev/shm/{ServiceDirectory(cluster.directory).name}"
        cluster.kill_agent("n2")
        takes = f"rm -r {taken} && mkdir -m 777 {taken} && chown 65534 {taken}"
        subprocess.run(cluster.hosts["n2"].command(["sh", "-c", takes]), check=True)
        cluster.start_agent("n2")
        log = cluster.directory / "serve.log"
        cluster.until(lambda: "agent replaced node=n2" in log.read_text())
        job = cluster.submit(synthetic(), 3, max_processors=4)
        cluster.until(lambda: cluster.job(job).resize_count == 1)
        assert cluster.job(job).size == 4
        info = finish(cluster, job)
        assert info.state == "COMPLETED", cluster.output(job)
        assert info.facts["verified"] is True
        left = subprocess.run(
            cluster.hosts["n2"].command(["ls", "/dev/shm", taken]), capture_output=True, check=True
        )
        assert f"{Path(taken).name}-" in left.stdout.decode()


def test_local_nodes_are_one_host_beside_the_others(tmp_path: Path) -> None:
    local = "  - {name: a, processors: 2}\n  - {name: b, processors: 1}\n"
    with Cluster(tmp_path, hosts=2, processors=1, local_nodes=local) as cluster:
        topology = Topology.parse("list:2,5")
        job = cluster.submit(synthetic(), 2, max_processors=5, topology=topology)
        cluster.until(lambda: cluster.job(job).size == 5)
        assert ranks_text(cluster.job(job)) == (
            "group 1: 0-1 on a:0-1; group 2: 0 on b:0, 1 on n1:0, 2 on n2:0"
        )
        info = finish(cluster, job)
        assert info.state == "COMPLETED", cluster.output(job)
        assert info.facts["verified"] is True


@pytest.mark.parametrize("fault", ["kill", "cut"])
def test_a_host_that_is_lost_within_a_join_costs_no_result(tmp_path: Path, fault: str) -> None:
    """The job rolls back, or restarts from its restart point on the host that it began on."""
    limits = "deadlines: {node_lost_s: 6, heartbeat_s: 0.3, start_s: 200, join_s: 5}"
    steps = ["--scenario", "scripted:Scripted", "--set", "resizing.steps='4'"]
    with Cluster(
        tmp_path, hosts=2, processors=2, config=limits, options=steps, policies=SUPPORT
    ) as cluster:
        job = cluster.submit(synthetic(mib=512), 2, max_processors=4)
        log = cluster.directory / "serve.log"
        cluster.until(lambda: "serial=1 joining" in log.read_text())
        if fault == "kill":
            cluster.hosts["n2"].kill()
        else:
            cluster.hosts.cut("n2")
        cluster.until(lambda: cluster.job(job).resizes[0].outcome != "under way")
        info = finish(cluster, job)
        assert info.state == "COMPLETED", cluster.output(job)
        assert info.facts["verified"] is True
        assert info.nodes == "n1"
        assert info.sizes[-1][1] == 2
        cluster.until(lambda: processes(cluster, "n1", "hydra|synthetic") == 0)
        if fault == "cut":
            cluster.hosts.join("n2")
            cluster.until_up("n2")
            assert processes(cluster, "n2", "hydra|synthetic") == 0


def test_a_lost_host_ends_the_job_on_all_hosts(tmp_path: Path) -> None:
    config = "deadlines: {node_lost_s: 6, heartbeat_s: 0.3}"
    with Cluster(tmp_path, hosts=3, processors=2, config=config) as cluster:
        job = cluster.submit(["sleep", "600"], 6)
        cluster.until(lambda: processes(cluster, "n3", "^sleep 600") == 2)
        cluster.hosts["n2"].kill()
        info = cluster.wait(job)
        assert info.state == "NODE_FAIL"
        assert "node n2 is gone" in info.reason
        for name in ("n1", "n3"):
            cluster.until(lambda name=name: processes(cluster, name, "hydra|^sleep 600") == 0)
        assert cluster.wait(cluster.submit(["true"], 4)).state == "COMPLETED"


def test_a_killed_agent_of_a_further_host_ends_the_job(tmp_path: Path) -> None:
    with Cluster(tmp_path, hosts=2, processors=2) as cluster:
        job = cluster.submit(["sleep", "600"], 4)
        cluster.until(lambda: processes(cluster, "n2", "^sleep 600") == 2)
        cluster.kill_agent("n2")
        cluster.start_agent("n2")
        assert cluster.wait(job).state in ("NODE_FAIL", "FAILED")
        cluster.until_up("n2")
        for name in cluster.names:
            cluster.until(lambda name=name: processes(cluster, name, "hydra|^sleep 600") == 0)
        assert cluster.wait(cluster.submit(["true"], 4)).state == "COMPLETED"


def test_a_working_directory_that_a_host_lacks_is_named(tmp_path: Path) -> None:
    with Cluster(tmp_path, hosts=2, processors=2) as cluster:
        cluster.hosts["n1"].start("mkdir", "/dev/shm/work").wait(10)
        output = str(tmp_path / "out")
        info = cluster.wait(cluster.submit(["true"], 4, cwd="/dev/shm/work", output=output))
        assert info.state == "FAILED"
        assert "n2: cannot start in /dev/shm/work: No such file or directory" in info.reason
        info = cluster.wait(cluster.submit(["true"], 2, cwd="/dev/shm/no", output=output))
        assert "n1: cannot start in /dev/shm/no: No such file or directory" in info.reason


def test_a_job_on_hosts_goes_on_without_room_for_its_output(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    program = (
        "yes lost | head -c 300000; touch printed-$PMI_RANK;"
        " until test -e go; do sleep 0.05; done; echo end"
    )
    with Cluster(tmp_path, hosts=2, processors=1) as cluster:

        def on_host(command: str) -> str:
            words = cluster.hosts["n1"].command(["sh", "-c", command])
            return subprocess.run(words, check=True, capture_output=True, text=True).stdout

        on_host(f"mount -t tmpfs -o size=256k none {small}; head -c 252k /dev/zero >{small}/filler")
        output = {"cwd": str(tmp_path), "output": str(small / "out")}
        job = cluster.submit(["sh", "-c", program], 2, **output)
        cluster.until(lambda: all((tmp_path / f"printed-{rank}").exists() for rank in (0, 1)))
        on_host(f"rm {small}/filler")
        (tmp_path / "go").touch()
        assert cluster.wait(job).state == "COMPLETED"
        lines = on_host(f"cat {small}/out").splitlines()
    assert "reshape: output is missing here: there was no room for it" in lines
    assert lines[-2:] == ["end", "end"]


#: Rank 3 leaves the loop alone, rank 1 waits for something, and the others for these.
STUCK = """
import pathlib, time, reshape
with reshape.application(topology="arbitrary") as app:
    for step in app.iterations(1000):
        time.sleep(0.01)
        if step == 5 and app.comm.rank == 3:
            break
        while step == 7 and app.comm.rank == 1:
            time.sleep(0.01)
        if app.comm.rank in (0, 2) and step == 8:
            app.comm.Barrier()
time.sleep(1000)
"""


@pytest.mark.long
def test_a_late_job_says_where_its_ranks_are_on_all_hosts(tmp_path: Path) -> None:
    """Also after a restart of the service, which has not seen a resize point of it."""
    with Cluster(tmp_path, hosts=2, processors=2) as cluster:
        job = cluster.submit([sys.executable, "-c", STUCK], 4)
        cluster.until(lambda: "rank 3 behind the loop" in cluster.job(job).late)
        cluster.kill_service()
        cluster.start_service()
        places = ("rank 3 behind the loop", "rank 1 in iteration 7", "ranks 0 2 in iteration 8")
        cluster.until(lambda: all(place in cluster.job(job).late for place in places))
        assert cluster.job(job).state == "RUNNING"
        explained = invoke("explain", "--dir", cluster.directory, job).stdout
        assert explained.splitlines()[0].startswith(
            f"job {job} is running on 4 processors of n1,n2: no resize point for "
        )
        invoke("cancel", "--dir", cluster.directory, job)
        assert cluster.wait(job).state == "CANCELLED"


def test_a_restarted_service_finds_groups_on_several_hosts(tmp_path: Path) -> None:
    with Cluster(tmp_path, hosts=2, processors=2) as cluster:
        job = cluster.submit(WAITS, 4)
        cluster.until(lambda: processes(cluster, "n2", "^sh -c until") == 2)
        cluster.kill_service()
        cluster.start_service()
        assert finish(cluster, job).state == "COMPLETED"


def test_a_job_leaves_a_node_that_drains(tmp_path: Path) -> None:
    with Cluster(tmp_path, hosts=2, processors=2, options=["--verify"]) as cluster:
        directory = ("--dir", cluster.directory)
        job = cluster.submit(synthetic(), 2, max_processors=4, topology=Topology.parse("list:2,4"))
        cluster.until(lambda: cluster.job(job).size == 4)
        invoke("node", "drain", *directory, "--reason", "new disk", "n1")
        cluster.until(lambda: cluster.job(job).nodes == "n2")
        assert "off n1, which drains" in invoke("explain", *directory, job).stdout
        rigid = cluster.submit(["true"], 2)
        cluster.until(lambda: cluster.job(rigid).state == "PENDING")
        assert "2 are on nodes that drain" in invoke("explain", *directory, rigid).stdout
        lines = invoke("node", "list", *directory).stdout.splitlines()
        user = ServiceDirectory(cluster.directory).owner
        assert [" ".join(line.split()) for line in lines] == [
            "NODE STATE PROCS(USED/ALL) HOST LAUNCHER JOBS REASON",
            f"n1 drain 0/2 n1 none - new disk; drained by user {user}",
            f"n2 alloc 2/2 n2 none {job}",
        ]
        cluster.kill_service()
        cluster.start_service()
        cluster.until_up("n1", "n2")
        assert "node n1 drains already" in invoke("node", "drain", *directory, "n1", code=1).stderr
        invoke("node", "resume", *directory, "n1")
        assert cluster.wait(rigid).state == "COMPLETED"
        info = finish(cluster, job)
        assert info.state == "COMPLETED", cluster.output(job)
        assert info.facts["verified"] is True
