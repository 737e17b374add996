"""Steps of a job script on another host, where it has the key of jobs and its token alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cluster import Cluster
from host_programs import skip_without_hosts

from scheduler.protocol import messages as m

pytestmark = pytest.mark.hosts

SCRIPT = """
SLURM='python -P -m scheduler.client.slurm.variables {"tasks":2,"name":"x"}'
SHOW='echo $SLURM_JOB_NODELIST $SLURM_JOB_NUM_NODES $SLURM_NODEID $SLURM_PROCID'
$SLURM sh -c "$SHOW"
reshape run -n 2 $SLURM sh -c "$SHOW"
reshape run -n 1 sh -c 'hostname; touch left; until test -e right; do sleep 0.05; done' & a=$!
reshape run -n 1 sh -c 'until test -e left; do sleep 0.05; done; hostname; touch right' && wait $a
got=$(reshape run -n 1 sh -c 'echo piped; exit 4'); echo $got $?
reshape queue 2>/dev/null || echo no more than its steps
"""


@pytest.fixture(scope="module", autouse=True)
def _can_make_hosts() -> None:
    skip_without_hosts()


def test_steps_of_a_script_on_other_hosts(tmp_path: Path) -> None:
    with Cluster(tmp_path, hosts=2, processors=1) as cluster:
        job = cluster.submit(["bash", "-c", SCRIPT], 2, script=True)
        ended = cluster.wait(job)
        output = cluster.output(job)
        assert ended.state == "COMPLETED", output
        lines = [line for line in output.splitlines() if not line.startswith("reshape:")]
        assert lines[0] == "n1,n2 2 0 0"
        assert sorted(lines[1:3]) == ["n1,n2 2 0 0", "n1,n2 2 1 1"]
        assert sorted(lines[3:5]) == ["n1", "n2"], "side by side, each on a host of its own"
        assert lines[5:] == ["piped 4", "no more than its steps"]
        codes = [cluster.job(number).exit_code for _, number in cluster.job(job).steps]
        assert codes == [0, 0, 0, 4]


MPIEXEC = """
mpiexec python -c 'from mpi4py import MPI; world = MPI.COMM_WORLD
hosts = world.gather(MPI.Get_processor_name())
if hosts: print(world.size, *hosts)'
mpirun -np 1 -env A 7 sh -c 'echo $A; exit 3'; echo $?
mpiexec -f hosts true
mpiexec sleep 612
"""


def sleeping(cluster: Cluster, name: str) -> bool:
    """Whether a rank of the last mpiexec runs on a host."""
    found = subprocess.run(
        cluster.hosts[name].command(["pgrep", "-f", "^sleep 612"]), capture_output=True, check=False
    )
    return bool(found.stdout)


def test_plain_mpiexec_of_a_script_reaches_all_hosts(tmp_path: Path) -> None:
    with Cluster(tmp_path, hosts=2, processors=1) as cluster:
        job = cluster.submit(["bash", "-c", MPIEXEC], 2, script=True)
        cluster.until(lambda: sleeping(cluster, "n1") and sleeping(cluster, "n2"))
        lines = cluster.output(job).splitlines()
        assert lines[:2] == ["2 n1 n2", "7"]
        assert lines[3] == "3"
        assert "mpiexec -f: this job is on several hosts" in lines[4]
        cluster.ask(m.ChangeJobs.one(job, m.CancelJob()))
        assert cluster.wait(job).state == "CANCELLED"
        cluster.until(lambda: not (sleeping(cluster, "n1") or sleeping(cluster, "n2")))
