"""An elastic pool of a real Slurm on hosts made of namespaces."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import NoHosts
from slurm_cluster import SlurmCluster
from slurm_pool import PoolService

from reshape.errors import ReshapeError

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]
POOL = {
    "nodes": "0-2",
    "processors": "2",
    "time_limit": "10:00",
    "idle_timeout": "0:04",
    "hysteresis": "0:02",
}
CONFIG = "deadlines: {node_lost_s: 6, heartbeat_s: 0.5}"


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    try:
        with SlurmCluster(hosts=2, processors=2) as cluster:
            yield cluster
    except NoHosts as reason:
        pytest.skip(str(reason))


def synthetic(iterations: int) -> list[str]:
    argv = [sys.executable, "-m", "apps.synthetic", "--iterations", str(iterations)]
    return [*argv, "--seconds", "0.2", "--speedup", "amdahl:serial=0", "--mib", "4"]


def test_jobs_grow_onto_nodes_of_the_pool_which_are_given_back(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    competing = ["--exclusive", "--nodelist=n2", "--wrap=sleep 20", "--output=/dev/null"]
    ordinary = slurm.run("sbatch", "--parsable", *competing).stdout.strip()
    with PoolService(tmp_path, slurm, POOL, config=CONFIG, options=["--verify"]) as service:
        assert re.search(r"to start at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d ", service.add_pool())
        resizable = service.submit(synthetic(200), 2, walltime_s=240.0, max_processors=4)
        service.until(lambda: service.job(resizable).state == "RUNNING", 60.0)
        assert service.job(resizable).nodes == "slurm-1"
        rigid = service.submit(synthetic(10), 2, walltime_s=60.0)
        service.until(lambda: service.allocations() == ["running", "queued"], 30.0)
        assert slurm.state_of(ordinary) == "RUNNING"
        # The second node comes when the ordinary Slurm job has ended.
        assert service.wait(rigid, 90.0).state == "COMPLETED"
        service.until(lambda: service.job(resizable).nodes == "slurm-1,slurm-2", 60.0)
        info = service.wait(resizable, 90.0)
        assert info.state == "COMPLETED", service.output(resizable)
        assert info.facts["verified"] is True
        service.until(lambda: service.allocations() == [], 60.0)
        left = slurm.run("squeue", "--noheader", "--states=PENDING,RUNNING").stdout
        assert left.strip() == ""


def test_a_batch_job_that_is_cancelled_while_no_service_runs(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    # The service is killed first: one that dies while it submits the next batch job looks for that
    # job for two minutes.
    argv = [sys.executable, "-m", "apps.jacobi", "--n", "128", "--sweeps", "10",
            "--iterations", "200", "--checkpoint", "10"]  # fmt: skip
    with PoolService(tmp_path, slurm, POOL, config=CONFIG) as service:
        service.add_pool()
        job = service.submit(argv, 2, walltime_s=240.0, requeue=True)
        service.until(lambda: service.job(job).iteration > 12, 60.0)
        (first,) = service.pool().allocations
        service.kill_service()
        slurm.run("scancel", first.id)
        service.start_service()
        service.until(lambda: service.job(job).requeues == 1, 60.0)
        numbers = {first.number}

        def has_ended() -> bool:
            numbers.update(each.number for each in service.pool().allocations)
            return service.job(job).state in ("COMPLETED", "FAILED", "NODE_FAIL")

        service.until(has_ended, 120.0)
        info = service.job(job)
        assert info.state == "COMPLETED", service.output(job)
        assert info.facts["restarted_from"]
        assert numbers == {first.number, first.number + 1}
        service.until(lambda: service.allocations() == [], 60.0)


def test_a_dry_run_refuses_what_slurm_would(slurm: SlurmCluster, tmp_path: Path) -> None:
    with (
        PoolService(tmp_path, slurm, POOL, ["--partition=none"]) as service,
        pytest.raises(ReshapeError, match=r"would be refused: .*partition"),
    ):
        service.add_pool()
