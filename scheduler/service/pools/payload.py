"""The batch job of an allocation: a script that starts an agent on each of its nodes.

Under Slurm srun starts the agents. Other batch systems differ in how a script starts processes on
its further nodes; there each allocation has one node, on which the script becomes the agent.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scheduler.batch_systems.interface import BatchRequest
from scheduler.batch_systems.slurm import Slurm
from scheduler.pools.options import PoolOptions

_SCRIPT = """#!/bin/sh
# An allocation of pool {pool} of the service in {directory}: an agent on each node.
set -- {nodes}
exec srun --nodes=$# --ntasks=$# --ntasks-per-node=1 --cpus-per-task={processors} --cpu-bind=none \\
  --mpi=none --kill-on-bad-exit=0 --wait=0 --job-name=reshape-agent --quiet \\
  sh -c 'shift "$SLURM_PROCID"; exec {agent} --node "$1"' sh "$@"
"""
_SCRIPT_OF_ONE = """#!/bin/sh
# An allocation of pool {pool} of the service in {directory}: an agent on its node.
exec {agent} --node {node}
"""


def starts_on_all_nodes(system: str) -> bool:
    """Whether the script of a batch job of a batch system can start agents on several nodes."""
    return system == Slurm.name


def batch_job_name(service: str, pool: str, number: int) -> str:
    """Name of the batch job of an allocation, by which it is found again.

    Parameters
    ----------
    service : name of the service that no other service has.
    """
    return f"{service}.{pool}.{number}"


def batch_request(
    directory: Path,
    system: str,
    name: str,
    pool: str,
    options: PoolOptions,
    nodes: Sequence[str],
    arguments: Sequence[str],
) -> BatchRequest:
    """Describe the batch job of an allocation.

    Parameters
    ----------
    directory : of the service; the nodes must share it.
    system : name of the batch system.
    name : see `batch_job_name`.
    nodes : names of the nodes in the service; one unless `starts_on_all_nodes`.
    arguments : further options of the batch system, which precede those that the pool determines.
    """
    access = directory / "access" / "agent.json"
    agent = [sys.executable, "-m", "reshape", "agent", "--connect", str(access)]
    request = BatchRequest(
        script="",
        nodes=len(nodes),
        time_limit_s=options.time_limit_s,
        name=name,
        directory=Path(os.sep),
        output=directory / f"pool-{pool}.log",
        options=tuple(arguments),
        processors=options.processors,
    )
    if not starts_on_all_nodes(system):
        (node,) = nodes
        script = _SCRIPT_OF_ONE.format(
            pool=pool, directory=directory, agent=shlex.join(agent), node=node
        )
        return replace(request, script=script)
    script = _SCRIPT.format(
        pool=pool,
        directory=directory,
        nodes=shlex.join(nodes),
        processors=options.processors,
        agent=shlex.join(agent).replace("'", "'\"'\"'"),
    )
    own = ("--ntasks-per-node=1", f"--cpus-per-task={options.processors}", "--no-requeue")
    return replace(
        request, script=script, options=(*own, "--open-mode=append", *arguments), processors=0
    )
