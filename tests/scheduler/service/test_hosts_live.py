"""Agents on other hosts: they connect over TCP, and hosts are namespaces without common memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster
from command_line import invoke
from host_programs import finish, let_end, skip_without_hosts, synthetic
from hosts import NETWORK
from paths import SUPPORT
from told import WAITS
from waiting import LIMIT_S

from scheduler.protocol import messages as m

pytestmark = pytest.mark.hosts


@pytest.fixture(scope="module", autouse=True)
def _can_make_hosts() -> None:
    skip_without_hosts()


def started_agent(cluster: Cluster, *options: str) -> subprocess.CompletedProcess[str]:
    """Run an agent that the service is expected to refuse."""
    command = cluster.hosts["n2"].command([sys.executable, "-m", "reshape", "agent", *options])
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def test_a_job_grows_onto_another_host_and_leaves_the_one_it_began_on(tmp_path: Path) -> None:
    steps = ["--scenario", "scripted:Scripted", "--set", "resizing.steps=4 2/1 4"]
    options = ["--verify", *steps, "--set", "resizing.hold=5"]
    with Cluster(tmp_path, hosts=2, processors=2, options=options, policies=SUPPORT) as cluster:
        job = cluster.submit(synthetic(), 2, max_processors=4)
        cluster.until(lambda: len(cluster.job(job).sizes) == 4)
        info = finish(cluster, job)
        assert info.state == "COMPLETED", cluster.output(job)
        assert info.facts["verified"] is True
        # Processors 0-1 are those of n1, and 2-3 those of n2.
        held = [processors for _, processors in info.allocation]
        assert held == ["0-1", "0-3", "2-3", "0-3", ""]
        assert [resize.outcome for resize in info.resizes] == ["done"] * 3
        assert info.resizes[0].moved_bytes > 0  # hosts have no common memory
        cluster.until(lambda: not any(left for _, left in _memory_of(cluster)))


def _memory_of(cluster: Cluster) -> list[tuple[str, str]]:
    """Job folders in the shared memory of each host."""
    found = []
    for name, host in cluster.hosts.hosts.items():
        command = host.command(["sh", "-c", "ls -d /dev/shm/reshape-*/job-* 2>/dev/null"])
        listed = subprocess.run(command, capture_output=True, text=True, check=False)
        found.append((name, listed.stdout))
    return found


def test_jobs_outlive_a_partition_and_a_restart_of_the_service(tmp_path: Path) -> None:
    with Cluster(tmp_path, hosts=2, processors=2) as cluster:
        program = ["sh", "-c", f"{WAITS[-1]}; echo done"]
        first, second = cluster.submit(program, 2), cluster.submit(program, 2)
        cluster.until(lambda: cluster.job(second).state == "RUNNING")
        cluster.hosts.cut("n2")
        cluster.kill_service()
        cluster.start_service()
        cluster.until_up("n1")
        let_end(cluster, second)
        cluster.hosts.join("n2")
        for job in (second, first):
            assert finish(cluster, job).state == "COMPLETED"
            assert cluster.output(job) == "done\n" * 2


def test_a_node_that_was_declared_lost_ends_its_processes_when_it_returns(tmp_path: Path) -> None:
    config = "deadlines: {node_lost_s: 6, heartbeat_s: 0.3}"
    with Cluster(tmp_path, hosts=2, processors=2, config=config) as cluster:
        cluster.wait(cluster.submit(["true"], 1))
        jobs = [cluster.submit(["sleep", "600"], 2) for _ in range(2)]
        cluster.until(lambda: cluster.job(jobs[1]).state == "RUNNING")
        cluster.hosts.cut("n2")
        cluster.until(lambda: cluster.job(jobs[1]).state == "NODE_FAIL")
        assert "n2" in cluster.job(jobs[1]).reason
        assert cluster.job(jobs[0]).state == "RUNNING"
        assert _sleeps(cluster, "n2") == 2
        cluster.hosts.join("n2")
        cluster.until_up("n2")
        assert _sleeps(cluster, "n2") == 0
        assert cluster.wait(cluster.submit(["true"], 2)).state == "COMPLETED"


def _sleeps(cluster: Cluster, name: str) -> int:
    """Number of processes of jobs on a host."""
    command = cluster.hosts[name].command(["pgrep", "-cf", "^sleep 600"])
    return int(subprocess.run(command, capture_output=True, text=True, check=False).stdout)


def test_an_agent_that_dies_ends_its_jobs_and_the_next_one_serves_again(tmp_path: Path) -> None:
    config = "deadlines: {node_lost_s: 6, heartbeat_s: 0.3}"
    with Cluster(tmp_path, hosts=2, processors=2, config=config) as cluster:
        job = cluster.submit(["sleep", "600"], 2)
        cluster.until(lambda: cluster.job(job).state == "RUNNING")
        cluster.kill_agent("n1")
        cluster.start_agent("n1")  # another process on the same host, at once
        assert cluster.wait(job).state == "NODE_FAIL"
        cluster.until_up("n1")
        assert _sleeps(cluster, "n1") == 0
        assert cluster.wait(cluster.submit(["true"], 2)).state == "COMPLETED"


def test_the_end_of_a_rank_on_another_host_is_that_of_its_job(tmp_path: Path) -> None:
    with Cluster(tmp_path, hosts=2, processors=2) as cluster:
        for script, ended in (
            ("test $PMI_RANK = 3 && kill -SEGV $$; exec sleep 600", (0, 11)),
            ("test $PMI_RANK = 3 && exit 11; exit 0", (11, 0)),
        ):
            job = cluster.wait(cluster.submit(["sh", "-c", script], 4))
            assert (job.state, job.exit_code, job.signal) == ("FAILED", *ended), script


def test_a_node_whose_shared_memory_is_full_fails_no_job_and_drains(tmp_path: Path) -> None:
    """An agent that is terminated says so, so that no job goes to its node."""
    with Cluster(tmp_path, hosts=3, processors=2) as cluster:
        cluster.hosts["n2"].start("pkill", "-TERM", "-f", "reshape agent").wait(10)
        cluster.until(lambda: cluster.nodes()["n2"] == "down")
        go = tmp_path / "go"
        cluster.submit(["sh", "-c", f"echo up; until test -e {go}; do sleep 0.1; done"], 4)
        cluster.until(lambda: cluster.output(1).count("up") == 4)
        full = ["sh", "-c", "mount -o remount,size=16M /dev/shm; fallocate -l 12M /dev/shm/file"]
        subprocess.run(cluster.hosts["n1"].command(full), check=True)
        jobs = [cluster.submit(["true"], 1) for _ in range(8)]
        go.touch()
        ended = [cluster.wait(job) for job in jobs]
        assert {job.state for job in ended} == {"COMPLETED"}
        assert {job.allocation[-2][1] for job in ended} == {"4", "5"}  # those of n3
        answer = cluster.ask(m.ListMachine(part="nodes"))
        assert isinstance(answer, m.Nodes)
        n1, n2, _ = answer.nodes
        assert (n1.state, n2.state) == ("drain", "down")
        assert "jobs 2, 3 could not start here: cannot start: /dev/shm has" in n1.reason


def test_agents_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with Cluster(tmp_path, hosts=2, processors=2) as cluster:
        access = cluster.directory / "access"
        agent = str(access / "agent.json")
        done = started_agent(cluster, "--connect", agent, "--node", "n7")
        assert done.returncode == 1
        assert "node 'n7' is not configured; there are n1, n2" in done.stderr
        done = started_agent(cluster, "--connect", str(access / "job.json"), "--node", "n2")
        assert "has the role job: an agent needs one of the role agent" in done.stderr
        done = started_agent(cluster, "--connect", agent, "--node", "n2")
        assert "an agent of n2 already runs on this host" in done.stderr
        done = started_agent(cluster, "--connect", agent, "--node", "n1", "--background")
        assert done.returncode == 1
        assert "node n1 is served by an agent on n1, and not on n2: end one" in done.stderr
        assert "serves tcp" not in done.stdout
        invoke("access", "revoke", "--dir", cluster.directory, "--user", cluster.place.owner)
        done = started_agent(cluster, "--connect", agent, "--node", "n2")
        assert "refuses the key of the access file" in done.stderr
        assert "Traceback" not in done.stderr
        answer = cluster.ask(m.ServerInfo())
        assert isinstance(answer, m.Info)
        assert answer.refused["key"] > 0
        cluster.kill_agent("n1")  # the service cannot tell them to stop any more
        cluster.kill_agent("n2")


def test_the_agent_of_a_removed_node_ends_and_another_one_is_refused(tmp_path: Path) -> None:
    with Cluster(tmp_path, hosts=2, processors=2) as cluster:
        cluster.hosts.cut("n2")
        invoke("node", "remove", "--dir", cluster.directory, "n2")
        assert list(cluster.nodes()) == ["n1"]
        cluster.hosts.join("n2")
        assert cluster.agents["n2"].wait(LIMIT_S) == 0
        done = started_agent(
            cluster, "--connect", str(cluster.directory / "access" / "agent.json"), "--node", "n2"
        )
        assert done.returncode == 1
        assert "node n2 was removed from the service, so its agent ends" in done.stderr
        invoke("node", "resume", "--dir", cluster.directory, "n2")
        cluster.start_agent("n2")
        cluster.until_up("n1", "n2")
        assert cluster.wait(cluster.submit(["true"], 4)).state == "COMPLETED"


class SshCluster(Cluster):
    """A cluster whose agents the service starts through a real sshd on each host."""

    def prepare_hosts(self) -> None:
        ssh = self.folder / "ssh"
        ssh.mkdir(mode=0o700)
        Path("/run/sshd").mkdir(exist_ok=True)
        for name in ("host", "user"):
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh / name)]
            subprocess.run(key, check=True)
        (ssh / "authorized").write_text((ssh / "user.pub").read_text())
        (ssh / "known").write_text(f"{NETWORK}.1 {(ssh / 'host.pub').read_text()}")
        (ssh / "config").write_text(
            f"IdentityFile {ssh}/user\nUserKnownHostsFile {ssh}/known\n"
            "StrictHostKeyChecking yes\nLogLevel ERROR\n"
        )
        (ssh / "sshd").write_text(
            f"HostKey {ssh}/host\nAuthorizedKeysFile {ssh}/authorized\nStrictModes no\n"
            "PermitRootLogin yes\nUsePAM no\nPidFile none\n"
        )
        for host in self.hosts.hosts.values():
            server = host.start("/usr/sbin/sshd", "-D", "-e", "-f", str(ssh / "sshd"))
            self.agents[f"sshd {host.name}"] = server

    def _end(self) -> None:
        for host in self.hosts.hosts.values():
            host.start("pkill", "-x", "sshd").wait(10)
        super()._end()


@pytest.mark.skipif(not Path("/usr/sbin/sshd").exists(), reason="there is no sshd")
def test_the_service_starts_agents_by_ssh(tmp_path: Path) -> None:
    ssh = f"ssh: ssh -F {tmp_path}/ssh/config"
    with SshCluster(tmp_path, hosts=1, config=ssh, launcher="ssh") as cluster:
        job = cluster.submit(["hostname"], 2)
        assert cluster.wait(job).state == "COMPLETED"
        assert cluster.output(job) == "n1\n" * 2


@pytest.mark.skipif(not Path("/usr/sbin/sshd").exists(), reason="there is no sshd")
def test_a_host_key_that_is_not_known_is_named(tmp_path: Path) -> None:
    ssh = f"ssh: ssh -F {tmp_path}/ssh/config -o UserKnownHostsFile=/dev/null"
    cluster = SshCluster(tmp_path, hosts=1, config=ssh, launcher="ssh", awaits=False)
    with cluster:
        fault = f"ssh {NETWORK}.1 ended with exit code 255: Host key verification failed."
        assert fault in cluster.warnings
        assert cluster.nodes() == {"n1": "down"}
