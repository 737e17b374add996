"""Relabelling: assign target processes to ranks so that the fewest bytes move."""

from __future__ import annotations

from collections.abc import Sequence

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
    """Number of elements that each rank needs no message for, by the target process it may get.

    These are the elements that the target process shares with the source process on the rank, or,
    if the routes have hosts, with any source process on the host of the rank.

    Returns
    -------
    (len(ranks), target.nprocs) int64; 0 for ranks without a source process near.
    """
    shared = routes.common_elements()
    whole = shared.sum(axis=0) // max(1, routes.source.copies)  # elements of each target process
    counts = np.zeros((len(ranks), routes.target.nprocs), dtype=np.int64)
    for position, rank in enumerate(ranks):
        near = [p for p, other in enumerate(routes.source_ranks) if routes.is_near(rank, other)]
        counts[position] = np.minimum(shared[near].sum(axis=0), whole)
    return counts
