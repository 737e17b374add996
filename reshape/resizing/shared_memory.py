"""Moves without messages between the ranks of a host: each maps the segments of the others.

On one host the local parts of a job are files that all its processes can map
(`reshape.data.segments`). There each target reads its share from the source segments, which copies
every element once. Between hosts the data is sent in messages, in the same move.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from mpi4py import MPI
from numpy.typing import NDArray

from redistribution import Plan
from reshape.data import segments
from reshape.data.arrays import Array
from reshape.data.job_context import JobContext
from reshape.data.segments import FolderPlace, RankMemory, place_of

#: Source arrays by process.
Sources: TypeAlias = dict[int, NDArray[Any]]


class Reach(NamedTuple):
    """Which ranks can map each other's segments.

    Attributes
    ----------
    hosts : for each rank, the lowest rank of its host that shares memory with it; a rank whose
        segments cannot be mapped has its own number.
    epoch : epoch of the source segments.
    """

    hosts: tuple[int, ...]
    epoch: int

    @property
    def is_one_host(self) -> bool:
        """Whether every rank can map the segments of every other."""
        return not any(self.hosts)


def reach_of_ranks(job: JobContext, comm: MPI.Intracomm, is_source: bool) -> Reach:
    """Collective over comm. Find which ranks can map each other's segments.

    Also a barrier: the source arrays are complete when it returns.

    Parameters
    ----------
    is_source : whether this rank holds parts of the arrays.
    """
    can_be_mapped = all(
        array.segment is not None and array.segment.outlives
        for array in (job.arrays.values() if is_source else ())
    )
    place = place_of(job.folder) if can_be_mapped else None
    gathered: list[tuple[FolderPlace | None, int | None]]
    gathered = comm.allgather((place, job.epoch if is_source else None))
    first: dict[FolderPlace | int, int] = {}
    hosts = [
        first.setdefault(rank if place is None else place, rank)
        for rank, (place, _) in enumerate(gathered)
    ]
    return Reach(tuple(hosts), next(epoch for _, epoch in gathered if epoch is not None))


def map_sources(
    job: JobContext, comm: MPI.Intracomm, array: Array, plan: Plan, epoch: int
) -> Sources:
    """Map the local arrays of all source processes near this rank that it needs elements of.

    Raises
    ------
    OSError, ReshapeError : a segment cannot be mapped.
    """
    declaration, sources = array.declaration, Sources()
    for transfer in plan.incoming(comm.rank):
        process = plan.source_process[transfer.peer]
        if transfer.peer == comm.rank and array.segment is not None:
            sources[process] = array.segment.array
        elif plan.is_near(comm.rank, transfer.peer):
            memory = RankMemory(job.folder, epoch, process)
            shape = plan.source.local_shape(process)
            sources[process] = segments.view(
                memory, array.name, shape, declaration.dtype, declaration.order
            )
    return sources
