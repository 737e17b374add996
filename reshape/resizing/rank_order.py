"""In which order the processes go on after a resize, so that the fewest bytes are sent.

Which of them takes which place of the new layouts is free. Each keeps what it has in common with
the place it gets, summed over all registered arrays; the assignment that keeps most is found
exactly. Where moves read memory (`reshape.resizing.shared_memory`) every place costs the same, and
the order stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from mpi4py import MPI

from redistribution import Plan
from redistribution.plans.relabel import shared_elements

if TYPE_CHECKING:
    from reshape.data.job_context import JobContext

# Below, nothing is gained: finding the order and splitting the communicator take milliseconds.
WORTH_BYTES = 64 << 20


def prepare(job: JobContext) -> None:
    """Load what `best_order` will need, in a group that joins, while the job still computes.

    SciPy takes from 0.2 s to more than a second to load on busy processors: too long for a pause.
    """
    declared = sum(math.prod(array.shape) * array.dtype.itemsize for array in job.arrays.values())
    if job.comm.rank == 0 and (declared >= WORTH_BYTES or job.ragged):
        import scipy.optimize  # noqa: F401


def best_order(
    comm: MPI.Intracomm, plans: Sequence[tuple[Plan, int]], ranks: Sequence[int], root: int
) -> tuple[int, ...]:
    """Collective over comm. Rank of `comm` that should take each place of the new layouts.

    Parameters
    ----------
    plans : of all arrays, each with its itemsize; target process q on ``ranks[q]``.
    ranks : of those that go on; returned as they are if no other order sends fewer bytes.
    root : the rank that finds the order; best one that has gone through `prepare`.
    """
    given = tuple(ranks)
    if sum(plan.bytes_moved(itemsize) for plan, itemsize in plans) < WORTH_BYTES:
        return given
    order = given
    if comm.rank == root:
        from scipy.optimize import linear_sum_assignment

        kept = np.zeros((len(given), len(given)), np.int64)  # bytes, by position and process
        for plan, itemsize in plans:
            kept += shared_elements(plan, given) * itemsize
        positions, processes = linear_sum_assignment(kept, maximize=True)
        if kept[positions, processes].sum() > kept.trace():
            order = tuple(given[position] for position in positions[np.argsort(processes)])
    return tuple(comm.bcast(order, root))


def reordered(comm: MPI.Intracomm, order: Sequence[int]) -> MPI.Intracomm:
    """Collective over comm. The processes of these ranks in this order; COMM_NULL for others.

    Frees `comm`, unless it is returned.
    """
    if tuple(order) == tuple(range(comm.size)):
        return comm
    goes_on = comm.rank in order
    place = order.index(comm.rank) if goes_on else 0
    new = comm.Split(0 if goes_on else MPI.UNDEFINED, place)
    comm.Free()
    return cast(MPI.Intracomm, new)  # what Split gives on an intracommunicator
