"""The order of the ranks after a resize for which the fewest bytes are sent.

A process may take any rank of the new layouts. It needs no message for the elements that its new
local part has in common with the old local parts of its host, summed over all registered arrays.
The assignment of ranks for which the most bytes need no message is computed exactly (linear sum
assignment). On one host, where all moves read shared memory (`reshape.resizing.shared_memory`), all
orders cost the same, and the order is not changed.
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

# Below this, the order is not computed: that and splitting the communicator take milliseconds.
WORTH_BYTES = 64 << 20


def prepare(job: JobContext) -> None:
    """Import what `best_order` needs, in a group that joins, while the job still computes.

    The import of SciPy takes from 0.2 s to more than a second on busy processors, which would
    extend the pause of the job.
    """
    declared = sum(math.prod(array.shape) * array.dtype.itemsize for array in job.arrays.values())
    if job.comm.rank == 0 and (declared >= WORTH_BYTES or job.ragged):
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
    given = tuple(ranks)
    if sum(plan.bytes_sent(itemsize) for plan, itemsize in plans) < WORTH_BYTES:
        return given
    order = given
    if comm.rank == root:
        from scipy.optimize import linear_sum_assignment

        near = np.zeros((len(given), len(given)), np.int64)  # bytes, by position and process
        for plan, itemsize in plans:
            near += shared_elements(plan, given) * itemsize
        positions, processes = linear_sum_assignment(near, maximize=True)
        if near[positions, processes].sum() > near.trace():
            order = tuple(given[position] for position in positions[np.argsort(processes)])
    return tuple(comm.bcast(order, root))


def reordered(comm: MPI.Intracomm, order: Sequence[int]) -> MPI.Intracomm:
    """Collective over comm. Return a communicator of these ranks in this order, else COMM_NULL.

    `comm` is freed unless it is returned.
    """
    if tuple(order) == tuple(range(comm.size)):
        return comm
    remains = comm.rank in order
    place = order.index(comm.rank) if remains else 0
    new = comm.Split(0 if remains else MPI.UNDEFINED, place)
    comm.Free()
    return cast(MPI.Intracomm, new)  # Split of an intracommunicator returns one
