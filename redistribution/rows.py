"""Move rows of different lengths: sparse matrices, work items. Importing this starts MPI.

A ragged array is two plain ones: the number of elements of each row, and all elements one after
another. Both move by a `Plan` of `Cuts`: the first as the layouts say, the second with cuts where
those rows begin.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redistribution.layout import Cuts
from redistribution.plan import Plan

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Counts: TypeAlias = NDArray[np.int64]
Ragged: TypeAlias = tuple[Counts, tuple[NDArray[Any], ...]]


def move_rows(
    comm: MPI.Intracomm,
    plan: Plan,
    counts: Counts | None,
    values: Sequence[NDArray[Any]] | None,
) -> Ragged | None:
    """Collective over comm. Move rows of different lengths from ``plan.source`` to ``plan.target``.

    Parameters
    ----------
    comm : at least ``plan.size`` ranks.
    plan : both layouts are 1-D `Cuts` of the rows.
    counts : (m_local,) int64, elements in each row of this rank's source process; None if it
        holds none.
    values : one or more arrays of shape (counts.sum(), ...) that hold the elements of the rows,
        one row after another; dtype and trailing extents of each are the same on all ranks. None
        if this rank holds no source process.

    Returns
    -------
    counts and values of this rank's target process, new arrays; None if it holds none.

    Raises
    ------
    ValueError : on every rank, before elements are moved: layouts of another kind; counts that do
        not fit the layout or the values; ranks that disagree on the values' number, dtypes or
        trailing extents.
    """
    fault, kinds = _checked(comm, plan, counts, values)
    _raise_together(comm, fault)
    told = comm.allgather((kinds, 0 if counts is None else int(counts.sum())))
    known = [kinds for kinds, _ in told if kinds is not None]
    _raise_together(
        comm,
        None
        if kinds in (None, known[0])
        else f"rank {comm.rank}: values are {kinds}, other ranks have {known[0]}",
    )

    process = plan.target_process.get(comm.rank)
    new_counts = None
    if process is not None:
        new_counts = np.empty(plan.target.local_shape(process), np.int64)
    plan.run(comm, counts, new_counts)

    taken = comm.allgather(0 if new_counts is None else int(new_counts.sum()))
    source = [told[rank][1] for rank in plan.source_ranks]
    target = [taken[rank] for rank in plan.target_ranks]
    new_values = []
    for k, (dtype, extents) in enumerate(known[0]):
        shape = (sum(source), *extents)
        elements = Plan(
            Cuts(shape, tuple(accumulate(source, initial=0))),
            Cuts(shape, tuple(accumulate(target, initial=0))),
            plan.source_ranks,
            plan.target_ranks,
            ordering=plan.ordering,
        )
        room = None
        if process is not None:
            room = np.empty(elements.target.local_shape(process), dtype)
        elements.run(comm, None if values is None else values[k], room)
        if room is not None:
            new_values.append(room)
    return None if new_counts is None else (new_counts, tuple(new_values))


def move_csr(comm: MPI.Intracomm, plan: Plan, block: csr_array | None) -> csr_array | None:
    """Collective over comm. Move a sparse matrix in row blocks.

    Cuts that balance the stored entries come from `Cuts.by_weight`, of the entries in each row.

    Parameters
    ----------
    comm, plan : as of `move_rows`; the rows are those of the matrix.
    block : rows of this rank's source process, all columns; None if it holds none.

    Returns
    -------
    The rows of this rank's target process, in the order of entries that they had; None if it
    holds none. Its index arrays have the widest integers that any source block has.

    Raises
    ------
    ValueError : those of `move_rows`, or blocks with different numbers of columns.
    """
    from scipy.sparse import csr_array

    held = None if block is None else (block.shape[1], block.indices.dtype)
    told = [each for each in comm.allgather(held) if each is not None]
    columns = {columns for columns, _ in told}
    if len(columns) > 1:
        raise ValueError(f"blocks have different numbers of columns: {sorted(columns)}")
    counts = values = None
    if block is not None:
        widest = np.result_type(*(dtype for _, dtype in told))
        counts = np.diff(block.indptr).astype(np.int64)
        # A block may be a view with room before its first and behind its last entry.
        entries = slice(block.indptr[0], block.indptr[-1])
        values = (block.indices[entries].astype(widest, copy=False), block.data[entries])
    moved = move_rows(comm, plan, counts, values)
    if moved is None:
        return None
    counts, (indices, data) = moved
    indptr = np.concatenate(([0], np.cumsum(counts))).astype(indices.dtype)
    return csr_array((data, indices, indptr), shape=(len(counts), columns.pop()))


def deal(
    comm: MPI.Intracomm,
    items: Sequence[Any] | None,
    target_ranks: Sequence[int],
    weights: Sequence[int] | None = None,
) -> list[Any] | None:
    """Collective over comm. Deal the items of all ranks anew, in their order, over target ranks.

    Parameters
    ----------
    items : any objects that pickle; None or empty if this rank holds none.
    target_ranks : ranks that get the items, in turn; the same on every rank.
    weights : cost of each of this rank's items, non-negative integers; shares then cost as evenly
        as possible (`Cuts.by_weight`). Otherwise they hold as many items, up to 1.

    Returns
    -------
    This rank's share of the items, in order; None if it is not among the target ranks.

    Raises
    ------
    ValueError : weights that are not one for each item, or those of `Cuts.by_weight` and `Plan`.
    """
    held = list(items or ())
    fault = None
    if weights is not None and len(weights) != len(held):
        fault = f"rank {comm.rank}: {len(held)} items but {len(weights)} weights"
    _raise_together(comm, fault)
    told = comm.allgather([1] * len(held) if weights is None else [int(w) for w in weights])
    source = Cuts((sum(map(len, told)),), tuple(accumulate(map(len, told), initial=0)))
    if any(len(set(each)) > 1 or 1 not in each for each in told if each):
        every = [weight for each in told for weight in each]
        target = Cuts.by_weight(every, len(target_ranks))
    else:
        target = Cuts.even(source.shape, len(target_ranks))
    pickled = [pickle.dumps(item, pickle.HIGHEST_PROTOCOL) for item in held]
    moved = move_rows(
        comm,
        Plan(source, target, None, target_ranks),
        np.array([len(each) for each in pickled], np.int64),
        (np.frombuffer(b"".join(pickled), np.uint8),),
    )
    if moved is None:
        return None
    counts, (stream,) = moved
    ends = np.cumsum(counts).tolist()
    data = stream.tobytes()
    return [pickle.loads(data[end - n : end]) for end, n in zip(ends, counts.tolist(), strict=True)]


Kinds: TypeAlias = list[tuple[np.dtype[Any], tuple[int, ...]]]


def _checked(
    comm: MPI.Intracomm,
    plan: Plan,
    counts: Counts | None,
    values: Sequence[NDArray[Any]] | None,
) -> tuple[str | None, Kinds | None]:
    """What is wrong with this rank's arguments; dtype and trailing extents of its values."""
    rank = comm.rank
    for layout in (plan.source, plan.target):
        if not isinstance(layout, Cuts) or len(layout.shape) != 1:
            return f"rows move between one-dimensional Cuts, got {layout}", None
    process = plan.source_process.get(rank)
    if process is None:
        if counts is not None or values is not None:
            return f"rank {rank} holds no source part; pass None", None
        return None, None
    (rows,) = plan.source.local_shape(process)
    if counts is None or values is None or not len(values):
        return f"rank {rank} holds source part {process}, but passed no counts or no values", None
    if counts.shape != (rows,) or counts.dtype != np.int64 or (counts < 0).any():
        return (
            f"rank {rank}: counts must be {rows} non-negative int64, one for each row, got "
            f"{counts.dtype} {counts.shape}"
        ), None
    elements = int(counts.sum())
    for array in values:
        if len(array) != elements:
            return f"rank {rank}: counts add up to {elements}, values have {len(array)}", None
    return None, [(array.dtype, array.shape[1:]) for array in values]


def _raise_together(comm: MPI.Intracomm, fault: str | None) -> None:
    """Collective over comm. Raise the fault of the lowest rank that has one on every rank."""
    for each in comm.allgather(fault):
        if each is not None:
            raise ValueError(each)
