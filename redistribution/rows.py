"""Move rows of different lengths: sparse matrices, work items. Importing this starts MPI.

A ragged array is stored as two plain arrays: the number of elements of each row, and all elements
in sequence. Both move by a `Plan` between `Cuts`. The cuts of the elements follow from those of the
rows.
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
    counts : (m_local,) int64, number of elements in each row of this rank's source process; None
        if the rank has none.
    values : one or more arrays of shape (counts.sum(), ...) with the elements of the rows in
        sequence; dtype and trailing extents of each are the same on all ranks. None if the rank has
        no source process.

    Returns
    -------
    counts and values of this rank's target process in new arrays; None if the rank has none.

    Raises
    ------
    ValueError : on every rank, before elements are moved: the layouts are not 1-D cuts; counts do
        not match the layout or the values; the ranks disagree on the number, dtypes or trailing
        extents of the values.
    """
    fault, kinds = _check(comm, plan, counts, values)
    _raise_on_all_ranks(comm, fault)
    sent = comm.allgather((kinds, 0 if counts is None else int(counts.sum())))
    all_kinds = [kinds for kinds, _ in sent if kinds is not None]
    _raise_on_all_ranks(
        comm,
        None
        if kinds in (None, all_kinds[0])
        else f"rank {comm.rank}: values are {kinds}, other ranks have {all_kinds[0]}",
    )

    process = plan.target_process.get(comm.rank)
    new_counts = None
    if process is not None:
        new_counts = np.empty(plan.target.local_shape(process), np.int64)
    plan.run(comm, counts, new_counts)

    received = comm.allgather(0 if new_counts is None else int(new_counts.sum()))
    source = [sent[rank][1] for rank in plan.source_ranks]
    target = [received[rank] for rank in plan.target_ranks]
    new_values = []
    for k, (dtype, extents) in enumerate(all_kinds[0]):
        elements = _plan_of_elements(plan, source, target, extents)
        new = None
        if process is not None:
            new = np.empty(elements.target.local_shape(process), dtype)
        elements.run(comm, None if values is None else values[k], new)
        if new is not None:
            new_values.append(new)
    return None if new_counts is None else (new_counts, tuple(new_values))


def _plan_of_elements(
    rows: Plan, source: Sequence[int], target: Sequence[int], extents: tuple[int, ...]
) -> Plan:
    """Plan of the move of the elements of rows.

    Parameters
    ----------
    source, target : number of elements of each process of the plan of the rows.
    extents : trailing extents of an element.
    """
    shape = (sum(source), *extents)
    return Plan(
        Cuts(shape, tuple(accumulate(source, initial=0))),
        Cuts(shape, tuple(accumulate(target, initial=0))),
        rows.source_ranks,
        rows.target_ranks,
    )


def move_csr(comm: MPI.Intracomm, plan: Plan, block: csr_array | None) -> csr_array | None:
    """Collective over comm. Move a sparse matrix in row blocks.

    `Cuts.by_weight` of the number of entries in each row balances the stored entries.

    Parameters
    ----------
    comm, plan : as in `move_rows`; the rows are those of the matrix.
    block : rows of this rank's source process, all columns; None if the rank has none.

    Returns
    -------
    The rows of this rank's target process, with the order of their entries unchanged; None if the
    rank has none. The index arrays have the widest integer dtype of all source blocks.

    Raises
    ------
    ValueError : as in `move_rows`, or the blocks have different numbers of columns.
    """
    from scipy.sparse import csr_array

    own = None if block is None else (block.shape[1], block.indices.dtype)
    blocks = [part for part in comm.allgather(own) if part is not None]
    columns = {columns for columns, _ in blocks}
    if len(columns) > 1:
        raise ValueError(f"blocks have different numbers of columns: {sorted(columns)}")
    counts = values = None
    if block is not None:
        widest = np.result_type(*(dtype for _, dtype in blocks))
        counts = np.diff(block.indptr).astype(np.int64)
        # A block may be a view of arrays with entries before its first and after its last one.
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
    """Collective over comm. Deal the items of all ranks, in their order, to target ranks.

    Parameters
    ----------
    items : any objects that can be pickled; None or empty if this rank has none.
    target_ranks : ranks that receive consecutive items; the same on every rank.
    weights : cost of each of this rank's items, non-negative integers, to balance the costs of the
        ranks (`Cuts.by_weight`). Without weights, numbers of items differ by at most 1.

    Returns
    -------
    This rank's part of the items, in order; None if it is not a target rank.

    Raises
    ------
    ValueError : there is not one weight for each item, or as in `Cuts.by_weight` and `Plan`.
    """
    held = list(items or ())
    fault = None
    if weights is not None and len(weights) != len(held):
        fault = f"rank {comm.rank}: {len(held)} items but {len(weights)} weights"
    _raise_on_all_ranks(comm, fault)
    by_rank = comm.allgather([1] * len(held) if weights is None else [int(w) for w in weights])
    source = Cuts((sum(map(len, by_rank)),), tuple(accumulate(map(len, by_rank), initial=0)))
    if any(len(set(own)) > 1 or 1 not in own for own in by_rank if own):
        all_weights = [weight for own in by_rank for weight in own]
        target = Cuts.by_weight(all_weights, len(target_ranks))
    else:
        target = Cuts.even(source.shape, len(target_ranks))
    pickled = [pickle.dumps(item, pickle.HIGHEST_PROTOCOL) for item in held]
    moved = move_rows(
        comm,
        Plan(source, target, None, target_ranks),
        np.array([len(own) for own in pickled], np.int64),
        (np.frombuffer(b"".join(pickled), np.uint8),),
    )
    if moved is None:
        return None
    counts, (stream,) = moved
    ends = np.cumsum(counts).tolist()
    data = stream.tobytes()
    return [pickle.loads(data[end - n : end]) for end, n in zip(ends, counts.tolist(), strict=True)]


Kinds: TypeAlias = list[tuple[np.dtype[Any], tuple[int, ...]]]


def _check(
    comm: MPI.Intracomm,
    plan: Plan,
    counts: Counts | None,
    values: Sequence[NDArray[Any]] | None,
) -> tuple[str | None, Kinds | None]:
    """First error in this rank's arguments, if any; dtype and trailing extents of its values."""
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


def _raise_on_all_ranks(comm: MPI.Intracomm, fault: str | None) -> None:
    """Collective over comm. Raise the error of the lowest rank that has one on every rank."""
    for why in comm.allgather(fault):
        if why is not None:
            raise ValueError(why)
