"""Snakemake with its executor plugin for Slurm, unmodified from the index, over this service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from slurm_programs import SlurmPrograms, installed

from scheduler.protocol import messages as m

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

WORKFLOW = """
rule all:
    input: "all.txt"
rule one:
    output: "part-{i}.txt"
    resources: runtime=5, mem_mb=100
    shell: "echo {wildcards.i} > {output}"
rule sum:
    input: expand("part-{i}.txt", i=range(6))
    output: "all.txt"
    resources: runtime=5, mem_mb=100
    shell: "cat {input} | awk '{{s += $1}} END {{print s}}' > {output}"
"""


def test_a_workflow(served: Any, tmp_path: Path) -> None:
    packages = ("snakemake==9.*", "snakemake-executor-plugin-slurm==2.8.0")
    python = installed(tmp_path / "venv", *packages)
    served.start("--processors", "6")
    programs = SlurmPrograms(served, tmp_path / "bin")
    (served.work / "Snakefile").write_text(WORKFLOW)
    path = os.pathsep.join([str(Path(python).parent), programs.environment["PATH"]])
    options = ("--executor", "slurm", "--jobs", "6")
    often = ("--slurm-init-seconds-before-status-checks", "2")
    programs.run("snakemake", *options, *often, PATH=path)
    assert (served.work / "all.txt").read_text() == "15\n"
    ended = [served.job(job) for job in range(1, served.ask(m.ServerInfo()).last + 1)]
    assert len([job for job in ended if not job.step_of]) == 7
    assert {job.state for job in ended} == {"COMPLETED"}
