"""Which rank should hold which target process, so that the fewest bytes move."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from redistribution.layout import Layout
from redistribution.plan import Plan


def relabel(
    source: Layout,
    target: Layout,
    source_ranks: Sequence[int] | None = None,
    target_ranks: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Deal the ranks of the target anew, so that as much as possible stays where it is.

    A rank keeps what its source process and its target process have in common. The assignment
    that keeps most is found exactly (Hungarian method); if none keeps more than the ranks as
    given, those are returned.

    Parameters
    ----------
    source, target, source_ranks, target_ranks : as of `Plan`. With more ``target_ranks`` than
        target processes, the best of them are chosen.

    Returns
    -------
    (target.nprocs,) int : ``target_ranks`` for `Plan`, the same on every process that asks.

    Raises
    ------
    ValueError : those of `Plan`.

    Examples
    --------
    >>> from redistribution import Cuts
    >>> relabel(Cuts((9,), (0, 1, 9)), Cuts((9,), (0, 8, 9)))
    (1, 0)
    """
    given = tuple(range(target.nprocs)) if target_ranks is None else tuple(target_ranks)
    if len(given) > target.nprocs:
        given = tuple(dict.fromkeys(given))
    plan = Plan(source, target, source_ranks, given[: target.nprocs])

    # SciPy loads slowly, and most programs never relabel.
    from scipy.optimize import linear_sum_assignment

    positions, processes = linear_sum_assignment(in_common(plan, given), maximize=True)
    ranks = [0] * target.nprocs
    for position, process in zip(positions.tolist(), processes.tolist(), strict=True):
        ranks[process] = given[position]
    moved = Plan(source, target, source_ranks, ranks).bytes_moved(itemsize=1)
    return tuple(ranks) if moved < plan.bytes_moved(itemsize=1) else plan.target_ranks


def in_common(plan: Plan, ranks: Sequence[int]) -> NDArray[np.int64]:
    """Elements that the source process on each rank shares with each target process.

    Returns
    -------
    (len(ranks), target.nprocs) int64; rows of ranks without a source process are 0.
    """
    # Processes are numbered row-major over the coordinates, and so is the Kronecker product.
    common = reduce(np.kron, (axis.elements for axis in plan.joint))
    common = np.tile(common, (plan.source.copies, plan.target.copies))
    stays = np.zeros((len(ranks), plan.target.nprocs), dtype=np.int64)
    for position, rank in enumerate(ranks):
        if rank in plan.source_process:
            stays[position] = common[plan.source_process[rank]]
    return stays
