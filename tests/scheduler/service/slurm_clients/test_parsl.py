"""Parsl's SlurmProvider, unmodified from the package index, over this service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from slurm_programs import SlurmPrograms, installed

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PROGRAM = """
import parsl
from parsl.app.app import python_app
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.launchers import SimpleLauncher
from parsl.providers import SlurmProvider

provider = SlurmProvider(
    nodes_per_block=1, init_blocks=1, max_blocks=1, walltime="00:10:00", exclusive=False,
    launcher=SimpleLauncher(),
)
executor = HighThroughputExecutor(address="127.0.0.1", max_workers_per_node=2, provider=provider)

@python_app
def square(x):
    return x * x

with parsl.load(Config(executors=[executor], strategy="none")):
    print(sum(each.result() for each in [square(i) for i in range(50)]))
"""


def test_fifty_apps_run_in_a_block(served: Any, tmp_path: Path) -> None:
    python = installed(tmp_path / "venv", "parsl==2026.10.26")
    served.start("--processors", "2")
    programs = SlurmPrograms(served, tmp_path / "bin")
    path = os.pathsep.join([str(Path(python).parent), programs.environment["PATH"]])
    assert programs.run(python, "-c", PROGRAM, PATH=path).splitlines() == ["40425"]
    assert served.wait(1).state == "CANCELLED", "Parsl cancels its block"
