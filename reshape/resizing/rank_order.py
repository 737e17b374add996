"""The order of the ranks after a resize, and in a job that restarts.

After a resize it is the order for which the fewest bytes are sent. A process may take any rank of
the new layouts. It needs no message for the elements that its new local part has in common with the
old local parts of its host, summed over all registered arrays. The assignment of ranks for which
the most bytes need no message is computed exactly (linear sum assignment). On one host, where all
moves read shared memory (`reshape.resizing.move`), all orders cost the same, and the order
is not changed.

A job that restarts from a restart point has each rank where its segments lie: a rank finds them
only on the host on which they were written. Because a resize may have changed the order of the
ranks, it does not follow from the groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import cast

from mpi4py import MPI

from redistribution import Plan, relabel
from reshape.data.job_context import JobContext
from reshape.data.segments import FolderPlace, place_of
from reshape.errors import ReshapeError
from reshape.files.job_folder import has_restart_point, read_positions
from reshape.ranks.agree import all_values, found_by
from reshape.resizing.restart_point import RestartPoint

# Below this, the order is not computed: that and splitting the communicator take milliseconds.
WORTH_BYTES = 64 << 20


def prepare(job: JobContext, before: int) -> None:
    """Collective over job.comm. Import what `best_order` will need, while the job still computes.

    The import of SciPy takes from 0.2 s to more than a second on busy processors, which would
    extend the pause of the job. If the whole job is on one host, nothing is imported.

    Parameters
    ----------
    before : number of processes of the job that this group joins.
    """
    declared = sum(math.prod(array.shape) * array.dtype.itemsize for array in job.arrays.values())
    if declared < WORTH_BYTES and not job.ragged:
        return
    places = set(all_values(job.comm, place_of(job.folder)))
    is_on_one_host = False
    if len(places) == 1 and job.folder is not None:
        is_on_one_host = 0 < before == len({p.rank for p in read_positions(job.folder)})
    if job.comm.rank == 0 and not is_on_one_host:
        import scipy.optimize  # noqa: F401


def best_order(
    comm: MPI.Intracomm, plans: Sequence[tuple[Plan, int]], ranks: Sequence[int], root: int
) -> tuple[int, ...]:
    """Collective over comm. Return the rank of `comm` for each rank of the new layouts.

    Parameters
    ----------
    plans : plan and itemsize of each array; target process q is on ``ranks[q]``.
    ranks : ranks that remain; returned unchanged if no other order sends fewer bytes.
    root : the rank that computes the order, preferably one that has called `prepare`.
    """
    if sum(plan.bytes_sent(itemsize) for plan, itemsize in plans) < WORTH_BYTES:
        return tuple(ranks)
    return tuple(comm.bcast(relabel(plans, ranks) if comm.rank == root else None, root))


def reordered(comm: MPI.Intracomm, order: Sequence[int]) -> MPI.Intracomm:
    """Collective over comm. Return a communicator of these ranks in this order, else COMM_NULL.

    `comm` is freed unless it is returned.
    """
    if tuple(order) == tuple(range(comm.size)):
        return comm
    remains = comm.rank in order
    own_rank = order.index(comm.rank) if remains else 0
    new = comm.Split(0 if remains else MPI.UNDEFINED, own_rank)
    comm.Free()
    return cast(MPI.Intracomm, new)  # Split of an intracommunicator returns one


def restore_ranks(job: JobContext, folder: Path) -> RestartPoint:
    """Collective over job.comm. Read the restart point and give each process the rank of its data.

    Raises
    ------
    ReshapeError : on every rank: there is no restart point on any host, it is damaged, it has the
        data of another number of processes, or data is on a host that no process of the job is on.
    """
    has_file = job.comm.allgather(has_restart_point(folder))
    root = has_file.index(True) if any(has_file) else 0
    read = found_by(job.comm, partial(RestartPoint.read, folder), root)
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
