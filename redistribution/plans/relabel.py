"""Relabelling: assign target processes to ranks so that the fewest bytes move."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from redistribution.layout import Layout
from redistribution.plans.routes import Routes, rank_tuple


def relabel(
    source: Layout,
    target: Layout,
    source_ranks: Sequence[int] | None = None,
    target_ranks: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Assign target processes to ranks so that as many elements as possible stay on their rank.

    A rank keeps the elements that its source process and its target process have in common. The
    best assignment is found exactly (Hungarian method). If no assignment keeps more elements than
    the given one, the given one is returned.

    Parameters
    ----------
    source, target, source_ranks, target_ranks : as in `Plan`. If there are more ``target_ranks``
        than target processes, the best of them are chosen.

    Returns
    -------
    (target.nprocs,) int : ``target_ranks`` for `Plan`, the same on every process that asks.

    Raises
    ------
    ValueError : as in `Plan`.

    Examples
    --------
    >>> from redistribution import Cuts
    >>> relabel(Cuts((9,), (0, 1, 9)), Cuts((9,), (0, 8, 9)))
    (1, 0)
    """
    given = rank_tuple(target_ranks, target.nprocs)
    if len(given) > target.nprocs:
        given = tuple(dict.fromkeys(given))
    source_given = rank_tuple(source_ranks, source.nprocs)
    routes = Routes(source, target, source_given, given[: target.nprocs])

    # SciPy loads slowly, and most programs never relabel.
    from scipy.optimize import linear_sum_assignment

    positions, processes = linear_sum_assignment(shared_elements(routes, given), maximize=True)
    ranks = [0] * target.nprocs
    for position, process in zip(positions.tolist(), processes.tolist(), strict=True):
        ranks[process] = given[position]
    relabelled = Routes(source, target, source_given, tuple(ranks))
    fewer = relabelled.bytes_moved(itemsize=1) < routes.bytes_moved(itemsize=1)
    return (relabelled if fewer else routes).target_ranks


def shared_elements(routes: Routes, ranks: Sequence[int]) -> NDArray[np.int64]:
    """Number of elements that the source process on each rank shares with each target process.

    Returns
    -------
    (len(ranks), target.nprocs) int64; rows of ranks without a source process are 0.
    """
    # Processes are numbered row-major over the coordinates, and so is the Kronecker product.
    shared = reduce(np.kron, (axis.elements for axis in routes.joint_axes))
    shared = np.tile(shared, (routes.source.copies, routes.target.copies))
    found = np.zeros((len(ranks), routes.target.nprocs), dtype=np.int64)
    for position, rank in enumerate(ranks):
        if rank in routes.source_process:
            found[position] = shared[routes.source_process[rank]]
    return found
