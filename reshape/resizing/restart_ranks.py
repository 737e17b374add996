"""The ranks of a job that restarts from a restart point: each where its segments lie.

A rank finds its segments only on the host on which they were written. A resize may have changed the
order of the ranks, so that it does not follow from the groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reshape.data.job_context import JobContext
from reshape.data.places import FolderPlace, place_of
from reshape.errors import ReshapeError
from reshape.files.restart_file import has_restart_point
from reshape.resizing.rank_order import reordered
from reshape.resizing.restart_point import RestartPoint


def restore_ranks(job: JobContext, folder: Path) -> RestartPoint:
    """Collective over job.comm. Read the restart point and give each process the rank of its data.

    Raises
    ------
    ReshapeError : on every rank: there is no restart point on any host, it is damaged, it has the
        data of another number of processes, or data is on a host that no process of the job is on.
    """
    has_file = job.comm.allgather(has_restart_point(folder))
    root = has_file.index(True) if any(has_file) else 0
    read: RestartPoint | str = ""
    if job.comm.rank == root:
        try:
            read = RestartPoint.read(folder)
        except ReshapeError as error:
            read = str(error)
    read = job.comm.bcast(read, root)
    if isinstance(read, str):
        raise ReshapeError(read)
    if read.size != job.comm.size:
        raise ReshapeError(
            f"cannot restart on {job.comm.size} processes: the restart point in {folder} "
            f"has the data of {read.size}; start that many"
        )
    order = ranks_at(read.places, job.comm.allgather(place_of(folder)))
    job.groups = tuple(job.groups[rank] for rank in order)
    job.comm = reordered(job.comm, order)
    return read


def ranks_at(before: Sequence[FolderPlace], now: Sequence[FolderPlace | None]) -> tuple[int, ...]:
    """Present rank of the process that takes each rank of before; the same one if possible.

    Parameters
    ----------
    before : place of the segments of each rank.
    now : place of the folder of each process, by present rank; None if it has none. There are as
        many processes as before.

    Raises
    ------
    ReshapeError : there are fewer processes at a place than ranks with segments there.
    """
    spare: dict[FolderPlace, list[int]] = {}
    for rank, place in enumerate(now):
        if place is not None and before[rank] != place:
            spare.setdefault(place, []).append(rank)
    order = []
    for rank, place in enumerate(before):
        if now[rank] == place:
            order.append(rank)
        elif spare.get(place):
            order.append(spare[place].pop(0))
        else:
            raise ReshapeError(
                f"cannot restart: no process of the job reaches the data of rank {rank}, which was"
                f" in shared memory on host {place.host}; submit the job again"
            )
    return tuple(order)
