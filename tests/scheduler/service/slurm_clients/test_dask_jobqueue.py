"""dask-jobqueue, unmodified from the package index, over this service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from slurm_programs import SlurmPrograms, installed

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PROGRAM = """
from dask.distributed import Client
from dask_jobqueue import SLURMCluster

if __name__ == "__main__":
    with SLURMCluster(cores=1, memory="1GB", walltime="00:10:00", interface="lo") as cluster:
        cluster.scale(2)
        with Client(cluster) as client:
            client.wait_for_workers(2, timeout=120)
            print(sum(client.gather(client.map(lambda x: x * x, range(100)))))
            cluster.scale(0)
            cluster.sync(cluster._correct_state)
"""


def test_workers_come_work_and_go(served: Any, tmp_path: Path) -> None:
    python = installed(tmp_path / "venv", "dask-jobqueue==0.9.0")
    served.start("--processors", "4")
    programs = SlurmPrograms(served, tmp_path / "bin")
    (served.work / "program.py").write_text(PROGRAM)
    assert programs.run(python, "program.py").splitlines() == ["328350"]
    ended = [served.wait(job) for job in (1, 2)]
    assert {job.state for job in ended} <= {"CANCELLED", "COMPLETED"}
    assert all(job.name == "dask-worker" for job in ended)
