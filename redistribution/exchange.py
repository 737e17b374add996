"""Run a plan over MPI. Importing this module starts MPI."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redistribution.packing import Bytes, copy, in_place, of_array, pack, unpack
from redistribution.plan import Order, Plan, Transfer

# All messages of a plan carry this tag. Plans that follow one another on a communicator cannot
# be confused: MPI keeps the order of messages between two ranks.
TAG = 27183

_NOTHING = -(2**62)


def run(
    plan: Plan,
    comm: MPI.Intracomm,
    a: NDArray[Any] | None,
    b: NDArray[Any] | None,
    *,
    order: Order = "C",
) -> None:
    """Collective over comm. Fill ``b`` with this rank's part of the target layout.

    One message goes from a rank to another, in an order in which all send to different ranks.
    What stays on a rank is copied directly; parts that lie in memory as they travel are sent from
    and received into the arrays themselves.

    Parameters
    ----------
    plan : the same on every rank.
    comm : at least ``plan.size`` ranks. No other messages with tag `TAG` may be under way on it.
    a : this rank's local source array, shape ``plan.source.local_shape(process)``, or None if the
        rank holds no source part. Any strides; not changed.
    b : this rank's local target array, shape ``plan.target.local_shape(process)``, or None if the
        rank holds no target part. Same dtype as ``a``, any strides, must not overlap ``a``.
    order : order of the elements in the messages, the same on every rank. Any order works with
        any arrays; the memory order of the arrays is the fast one.

    Raises
    ------
    ValueError : on every rank, before anything is moved: an array is missing, superfluous, of the
        wrong shape, or cannot be written; its dtype holds Python objects; the ranks disagree on
        plan, dtype or order; or comm is too small.

    Notes
    -----
    Extra memory: at most this rank's outgoing plus incoming message bytes.
    """
    _agree(plan, comm, a, b, order)
    array = a if a is not None else b
    if array is None:
        return
    rank, itemsize = comm.rank, array.dtype.itemsize
    outgoing, incoming = plan.outgoing(rank), plan.incoming(rank)
    source = of_array(a, "source") if outgoing and a is not None else None
    target = of_array(b, "target") if incoming and b is not None else None

    arrivals: list[tuple[Transfer, Bytes, bool]] = []
    receives: list[MPI.Request] = []
    for transfer in incoming:
        if transfer.peer != rank:
            assert target is not None
            lying = in_place(transfer, itemsize, target, order)
            message = np.empty(transfer.elements * itemsize, np.uint8) if lying is None else lying
            receives.append(comm.Irecv([message, MPI.BYTE], transfer.peer, TAG))
            arrivals.append((transfer, message, lying is not None))
    sends: list[MPI.Request] = []
    for transfer in outgoing:
        if transfer.peer != rank:
            assert source is not None
            message = pack(transfer, itemsize, source, order)
            sends.append(comm.Isend([message, MPI.BYTE], transfer.peer, TAG))
    for transfer in outgoing:
        if transfer.peer == rank:
            assert source is not None
            assert target is not None
            copy(transfer, itemsize, source, target)
    for _ in arrivals:
        transfer, message, is_done = arrivals[MPI.Request.Waitany(receives)]
        if not is_done:
            assert target is not None
            unpack(transfer, itemsize, message, target, order)
    MPI.Request.Waitall(sends)


def _agree(
    plan: Plan, comm: MPI.Intracomm, a: NDArray[Any] | None, b: NDArray[Any] | None, order: Order
) -> None:
    """Collective over comm. Raise the same error on every rank if any has bad arguments."""
    fault = _fault(plan, comm, a, b, order)
    array = a if a is not None else b
    terms = _NOTHING
    if array is not None and fault is None:
        terms = plan.fingerprint << 29 ^ _description(array.dtype, order) >> 3
    # One reduction tells whether anyone is at fault (the lowest rank speaks) and, as the highest
    # and lowest terms, whether all agree.
    mine = np.array([_NOTHING if fault is None else -comm.rank, terms, _negated(terms)])
    seen = np.empty_like(mine)
    comm.Allreduce(mine, seen, MPI.MAX)
    if seen[0] != _NOTHING:
        raise ValueError(comm.bcast(fault, root=-int(seen[0])))
    if _NOTHING != seen[1] != -seen[2]:
        kind = "no array" if array is None else f"dtype {array.dtype}"
        raise ValueError(
            f"ranks disagree on the plan, the dtype or the order; "
            f"rank {comm.rank} has {plan}, {kind}, order {order!r}"
        )


def _negated(terms: int) -> int:
    return terms if terms == _NOTHING else -terms


def _fault(
    plan: Plan, comm: MPI.Intracomm, a: NDArray[Any] | None, b: NDArray[Any] | None, order: Order
) -> str | None:
    """What is wrong with this rank's arguments."""
    if comm.size < plan.size:
        return f"the plan needs {plan.size} ranks, the communicator has {comm.size}"
    if order not in ("C", "F"):
        return f"order must be 'C' or 'F', got {order!r}"
    rank = comm.rank
    for name, array, layout, processes in (
        ("source", a, plan.source, plan.source_process),
        ("target", b, plan.target, plan.target_process),
    ):
        if rank not in processes:
            if array is not None:
                return (
                    f"rank {rank} holds no {name} part, but was given an array of shape "
                    f"{np.shape(array)}; pass None"
                )
            continue
        if array is not None and not isinstance(array, np.ndarray):
            return f"rank {rank}: the {name} array must be a NumPy array, got {array!r:.80}"
        process = processes[rank]
        expected = layout.local_shape(process)
        got = "None" if array is None else str(array.shape)
        if array is None or array.shape != expected:
            return (
                f"rank {rank} holds {name} part {process}: expected an array of shape "
                f"{expected}, got {got}"
            )
        if array.dtype.hasobject:
            return f"rank {rank}: the {name} array has dtype {array.dtype}, which holds objects"
    if a is not None and b is not None:
        if a.dtype != b.dtype:
            return f"rank {rank}: source has dtype {a.dtype}, target has dtype {b.dtype}"
        if np.may_share_memory(a, b):
            return f"rank {rank}: source and target arrays overlap in memory"
    if b is not None and not b.flags.writeable:
        return f"rank {rank}: the target array is read-only"
    return None


@lru_cache(maxsize=64)
def _description(dtype: np.dtype[Any], order: Order) -> int:
    """A number that differs for different dtypes and orders, in [0, 2**32)."""
    return zlib.crc32(f"{dtype.descr} {order}".encode())
