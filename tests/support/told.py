"""How a test tells a job that it may end: by a file in the working directory of the job.

A job that computes for a fixed time ends too early on a loaded machine. The jobs of tests go on
until the test has seen what it waits for.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py import MPI

#: More iterations than any test waits for.
ENDLESS = 10**9
#: A program that waits until its job may end.
WAITS = ["sh", "-c", "until test -e end-$RESHAPE_JOB; do sleep 0.05; done"]


def end_file(job: int | str) -> str:
    """Name of the file that a job waits for."""
    return f"end-{job}"


def may_end(comm: MPI.Intracomm) -> bool:
    """Collective over comm. Whether the test has told this job to end."""
    return bool(comm.bcast(os.path.exists(end_file(os.environ["RESHAPE_JOB"])), root=0))
