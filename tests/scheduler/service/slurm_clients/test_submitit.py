"""submitit, unmodified from the package index, over this service."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from slurm_programs import SlurmPrograms, installed

from scheduler.protocol import messages as m

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

#: A resizable job beside those of the client.
RESIZABLE = ["python", "-m", "apps.synthetic", "--iterations", "1000000", "--seconds", "0.1"]
PROGRAM = """
import os, time, submitit

def add(a, b):
    return a + b

class Slow(submitit.helpers.Checkpointable):
    def __call__(self, path):
        begun = len(open(path).read()) if os.path.exists(path) else 0
        open(path, "a").write("x")
        while not begun:
            time.sleep(0.1)
        return begun

executor = submitit.AutoExecutor(folder="logs", cluster="slurm")
executor.update_parameters(timeout_min=5, mem_gb=1, tasks_per_node=1, cpus_per_task=1)
print(executor.submit(add, 2, 3).result())
print([job.result() for job in executor.map_array(add, [1, 2, 3], [10, 20, 30])])
executor.update_parameters(timeout_min=5, slurm_signal_delay_s=260)  # 40 s after the start
print(executor.submit(Slow(), os.path.abspath("begun")).result())
executor.update_parameters(tasks_per_node=2, slurm_signal_delay_s=90)
job = executor.submit(lambda: submitit.JobEnvironment().global_rank)
print(job.results())
"""


def test_functions_arrays_and_a_job_that_is_queued_again(served: Any, tmp_path: Path) -> None:
    python = installed(tmp_path / "venv", "submitit==1.5.4")
    served.start("--processors", "4", "--scenario", "fcfs-pr")
    resizable = served.submit(RESIZABLE, 1, max_processors=4)
    served.when(resizable, lambda job: job.size == 4)
    programs = SlurmPrograms(served, tmp_path / "bin")
    assert programs.run(python, "-c", PROGRAM).splitlines() == ["5", "[11, 22, 33]", "1", "[0, 1]"]
    assert (served.work / "begun").read_text() == "xx"
    sizes = [size for _, size in served.job(resizable).sizes]
    assert any(now < before for before, now in pairwise(sizes)), "it gave processors up"
    served.ask(m.ChangeJobs.one(resizable, m.CancelJob()))
    served.wait(resizable)
