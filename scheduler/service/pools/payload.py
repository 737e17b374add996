"""The batch job of an allocation: a script that starts an agent on each of its nodes."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from scheduler.batch_systems.interface import BatchRequest
from scheduler.pools.options import PoolOptions

_SCRIPT = """#!/bin/sh
# An allocation of pool {pool} of the service in {directory}: an agent on each node.
set -- {nodes}
exec srun --nodes=$# --ntasks=$# --ntasks-per-node=1 --cpus-per-task={processors} --cpu-bind=none \\
  --mpi=none --kill-on-bad-exit=0 --wait=0 --job-name=reshape-agent --quiet \\
  sh -c 'shift "$SLURM_PROCID"; exec {agent} --node "$1"' sh "$@"
"""


def batch_job_name(service: str, pool: str, number: int) -> str:
    """Name of the batch job of an allocation, by which it is found again.

    Parameters
    ----------
    service : name of the service that no other service has.
    """
    return f"{service}.{pool}.{number}"


def batch_request(
    directory: Path,
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
    name : see `batch_job_name`.
    nodes : names of the nodes in the service.
    arguments : further options of sbatch, which precede those that the pool determines.
    """
    access = directory / "access" / "agent.json"
    agent = [sys.executable, "-m", "reshape", "agent", "--connect", str(access)]
    script = _SCRIPT.format(
        pool=pool,
        directory=directory,
        nodes=shlex.join(nodes),
        processors=options.processors,
        agent=shlex.join(agent).replace("'", "'\"'\"'"),
    )
    return BatchRequest(
        script=script,
        nodes=len(nodes),
        time_limit_s=options.time_limit_s,
        name=name,
        directory=Path(os.sep),
        output=directory / f"pool-{pool}.log",
        options=(
            "--ntasks-per-node=1",
            f"--cpus-per-task={options.processors}",
            "--no-requeue",
            "--open-mode=append",
            *arguments,
        ),
    )
