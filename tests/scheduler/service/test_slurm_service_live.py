"""A service in an allocation of a real Slurm: agents by srun, jobs over several hosts."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import NoHosts
from paths import ROOT
from slurm_cluster import SlurmCluster
from slurm_service import SlurmService

from scheduler.protocol import messages as m

SUPPORT = ROOT / "tests" / "support"
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    try:
        with SlurmCluster(hosts=2, processors=2) as cluster:
            yield cluster
    except NoHosts as reason:
        pytest.skip(str(reason))


def program(name: str, *options: str) -> list[str]:
    return [sys.executable, "-m", f"apps.{name}", *options]


def serve(slurm: SlurmCluster, tmp_path: Path, *options: str, **variables: str) -> str:
    """Run `reshape serve` where it fails, and return what it says."""
    command = [sys.executable, "-m", "reshape", "serve", "--dir", str(tmp_path / "s"), *options]
    settings = [f"{name}={value}" for name, value in variables.items()]
    done = subprocess.run(
        slurm.command("env", *settings, *command),
        capture_output=True,
        text=True,
        env=slurm.environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


def test_jobs_on_all_hosts_of_an_allocation(slurm: SlurmCluster, tmp_path: Path) -> None:
    with SlurmService(tmp_path, slurm, nodes=2) as service:
        answer = service.ask(m.ListMachine(part="nodes"))
        assert isinstance(answer, m.Nodes)
        assert [(node.name, node.processors, node.launcher) for node in answer.nodes] == [
            ("n1", 2, "slurm"),
            ("n2", 2, "slurm"),
        ]
        # The environment of the submission is that of a shell in the allocation.
        environment = service.environment() | {"PYTHONPATH": str(ROOT)}
        job = service.submit(
            program("jacobi", "--n", "128", "--sweeps", "4"), 4, environment=environment
        )
        info = service.wait(job)
        assert info.state == "COMPLETED", service.output(job)
        assert info.facts["verified"] is True
        assert info.allocation[0][1] == "0-3"


def test_an_agent_that_dies_is_started_again_and_its_siblings_live(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    with SlurmService(tmp_path, slurm, nodes=2) as service:
        rows = program("synthetic", "--iterations", "60", "--seconds", "0.2", "--mib", "1")
        first, second = service.submit(rows, 2), service.submit(rows, 2)
        service.until(lambda: {service.job(n).state for n in (first, second)} == {"RUNNING"})
        slurm.hosts["n1"].start("pkill", "-9", "-f", "reshape agent").wait(10)
        assert service.wait(first).state == "NODE_FAIL"
        service.until_up("n1", "n2")
        assert service.job(second).state == "RUNNING"
        assert service.wait(service.submit(["true"])).state == "COMPLETED"
        assert service.wait(second).state == "COMPLETED", service.output(second)


def test_a_service_that_is_started_again_finds_its_agents(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    with SlurmService(tmp_path, slurm, nodes=2) as service:
        job = service.submit(
            program("synthetic", "--iterations", "30", "--seconds", "0.2", "--mib", "1"), 2
        )
        service.until(lambda: service.job(job).state == "RUNNING")
        service.kill_service()
        service.start_service()
        service.until_up("n1", "n2")
        assert service.wait(job).state == "COMPLETED", service.output(job)
        log = (service.directory / "agent-n1.log").read_text()
        assert log.count("INFO agent of n1 pid=") == 1, "no second agent was started"


def test_jobs_continue_while_slurmctld_is_away(slurm: SlurmCluster, tmp_path: Path) -> None:
    with SlurmService(tmp_path, slurm, nodes=2) as service:
        rows = program("synthetic", "--iterations", "80", "--seconds", "0.1", "--mib", "1")
        job = service.submit(rows, 2, max_processors=4)
        service.until(lambda: service.job(job).size == 4)
        time.sleep(6.0)  # slurmctld saves what has happened every 5 s
        slurm.stop_controller(kill=True)
        try:
            assert service.job(job).state in ("RUNNING", "COMPLETED")
            info = service.wait(job)
            assert info.state == "COMPLETED", service.output(job)
            assert info.facts["verified"] is True
            assert service.nodes() == {"n1": "up", "n2": "up"}
        finally:
            slurm.start_controller()
        assert slurm.state_of(service.allocation) == "RUNNING"
        assert service.wait(service.submit(["true"], 4)).state == "COMPLETED"


def test_a_change_of_the_time_limit_is_noticed(slurm: SlurmCluster, tmp_path: Path) -> None:
    with SlurmService(tmp_path, slurm, nodes=1, time_limit="10") as service:

        def until() -> float:
            answer = service.ask(m.ListMachine(part="nodes"))
            assert isinstance(answer, m.Nodes)
            return float(answer.nodes[0].until or 0.0)

        end = until()
        job = service.submit(["sleep", "60"], 2, walltime_s=1200.0)
        assert service.job(job).state == "PENDING"  # it could not end in ten minutes
        slurm.run("scontrol", "update", f"JobId={service.allocation}", "TimeLimit=30")
        service.until(lambda: service.job(job).state == "RUNNING")
        assert until() == pytest.approx(end + 1200.0, abs=2.0)


def test_a_service_ends_with_its_allocation_and_continues_in_the_next_one(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    """The first allocation is cancelled; the second one is another node."""
    service = SlurmService(tmp_path, slurm, nodes=1)
    options = ["--n", "256", "--sweeps", "10", "--iterations", "120", "--checkpoint", "10"]
    with service:
        first = service.submit(program("jacobi", *options), 2, requeue=True)
        queued = service.submit(["true"], 2)
        service.until(lambda: service.job(first).iteration > 12)
        (before,) = service.names
        blocker = slurm.start("srun", f"--nodelist={before}", "--exclusive", "sleep", "1000")
        service.release()
        service.until_ended()
        service.prepare_hosts()
        (after,) = service.names
        assert before != after
        service.start_service()
        assert {after: "up"} == service.nodes()
        info = service.wait(first)
        assert info.state == "COMPLETED", service.output(first)
        assert info.requeues == 1
        assert f"node {before} is gone" in info.reason
        assert info.facts["verified"] is True
        assert info.facts["restarted_from"]
        assert service.wait(queued).state == "COMPLETED"
        blocker.terminate()
        blocker.wait(20)


def test_the_script_of_the_page_runs_as_it_is(slurm: SlurmCluster, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    script = page.partition("```bash\n")[2].partition("```")[0]
    assert "reshape serve --slurm" in script
    script = script.replace("serve --slurm", "serve --slurm --allow-root")  # tests may run as root
    path = f"{Path(sys.executable).parent}:{slurm.environment['PATH']}"
    variables = {"HOME": str(tmp_path), "PATH": path, "PYTHONPATH": str(ROOT)}
    settings = [f"{name}={value}" for name, value in variables.items()]
    options = ["--parsable", f"--chdir={tmp_path}", "--output=output"]
    number = slurm.run("env", *settings, "sbatch", *options, stdin=script).stdout.strip()
    end = time.monotonic() + 60.0
    while slurm.state_of(number) in ("PENDING", "RUNNING", "COMPLETING"):
        assert time.monotonic() < end, (tmp_path / "output").read_text()
        time.sleep(0.2)
    output = (tmp_path / "output").read_text()
    assert slurm.state_of(number) == "COMPLETED", output
    assert "job 1: COMPLETED" in output
    assert "job 2: COMPLETED" in output
    for job in (1, 2):
        assert " verified" in (tmp_path / f"reshape-{job}.out").read_text()


def test_wrong_environments_are_refused(slurm: SlurmCluster, tmp_path: Path) -> None:
    assert serve(slurm, tmp_path, "--slurm") == (
        "reshape: error: this process is in no Slurm allocation (SLURM_JOB_ID is not set): call it"
        " in a script of sbatch, or in the shell of salloc\n"
    )
    assert "SLURM_JOB_ID is set and SLURM_JOB_NODELIST is not" in serve(
        slurm, tmp_path, "--slurm", SLURM_JOB_ID="7"
    )
    some = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}
    assert "SLURM_JOB_CPUS_PER_NODE=4(x3) does not give the processors of the 2 nodes n1, n2" in (
        serve(slurm, tmp_path, "--slurm", **some, SLURM_JOB_CPUS_PER_NODE="4(x3)")
    )
    machine = tmp_path / "machine.yaml"
    machine.write_text("nodes: [n1, n7]\nprocessors_per_node: 2\nlauncher: slurm\n")
    options = ["--machine", str(machine), "--listen", "10.99.0.254:7177", "--allow-root"]
    some |= {"SLURM_JOB_CPUS_PER_NODE": "2(x2)"}
    assert "node n7 has the launcher slurm and is not in Slurm allocation 7" in (
        serve(slurm, tmp_path, *options, **some)
    )
    assert "no Slurm allocation (SLURM_JOB_ID is not set)" in serve(slurm, tmp_path, *options)
    without = {"PATH": str(Path(sys.executable).parent) + ":/usr/sbin"}
    assert "there is no srun, scontrol, squeue on PATH, which Slurm allocation 7 needs" in (
        serve(slurm, tmp_path, "--slurm", **some, **without)
    )
