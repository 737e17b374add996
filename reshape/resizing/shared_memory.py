"""Moves without messages: each process maps the segments of the others.

On one node the local parts of a job are files that all its processes can map
(`reshape.data.segments`). Then each target reads its share from the source segments
(`redistribution.copies.gather`), which copies every element once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from mpi4py import MPI
from numpy.typing import NDArray

from redistribution import Plan
from reshape.data import segments
from reshape.data.arrays import Array
from reshape.data.job_context import JobContext
from reshape.data.segments import RankMemory

Find: TypeAlias = Callable[[int], NDArray[Any]]
FolderIdentity: TypeAlias = tuple[str, int, int]


def shared_epoch(job: JobContext, comm: MPI.Intracomm, is_source: bool) -> int | None:
    """Collective over comm. Return the epoch of the source segments if all ranks can map them.

    Also a barrier: the source arrays are complete when it returns.

    Parameters
    ----------
    is_source : whether this rank holds parts of the arrays.

    Returns
    -------
    None if a rank has another folder, or a part is in private memory.
    """
    can_be_mapped = all(
        array.segment is not None and array.segment.outlives
        for array in (job.arrays.values() if is_source else ())
    )
    identity = folder_identity(job.folder) if can_be_mapped else None
    gathered: list[tuple[FolderIdentity | None, int | None]]
    gathered = comm.allgather((identity, job.epoch if is_source else None))
    if identity is None or any(other != identity for other, _ in gathered):
        return None
    return next(epoch for _, epoch in gathered if epoch is not None)


def source_finder(
    job: JobContext, comm: MPI.Intracomm, array: Array, plan: Plan, epoch: int
) -> Find:
    """Return the function by which `Plan.gather` gets the local array of a source process.

    The function raises OSError or ReshapeError if a segment cannot be mapped.
    """
    declaration = array.declaration

    def find(process: int) -> NDArray[Any]:
        if plan.source_ranks[process] == comm.rank and array.segment is not None:
            return array.segment.array
        shape = plan.source.local_shape(process)
        memory = RankMemory(job.folder, epoch, process)
        return segments.view(memory, array.name, shape, declaration.dtype, declaration.order)

    return find


def folder_identity(folder: Path | None) -> FolderIdentity | None:
    """Identity of a folder among those of all nodes; None if it does not exist."""
    try:
        # Device and inode number files of one kernel only; another boot is another kernel.
        found = None if folder is None else folder.stat()
        return None if found is None else (boot_id(), found.st_dev, found.st_ino)
    except OSError:
        return None


@lru_cache
def boot_id() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else os.uname().nodename
