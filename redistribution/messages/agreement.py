"""Ask all ranks, before anything moves, whether their arguments are right and the same."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redistribution.messages.waiting import share_cores, wait
from redistribution.plan import Order, Plan

# What a rank says is one word, as reducing a single one takes half the time of reducing two: of its
# arguments a number of so many bits, the same bits inverted, and whether it is at fault. If all
# words are put together bit by bit, a bit is set in both numbers where two ranks disagree.
_BITS = 31
_MASK = (1 << _BITS) - 1
_AT_FAULT = 1 << 2 * _BITS


class Arguments(NamedTuple):
    """What a rank gives to a run of a plan; see `redistribution.messages.prepared.run`."""

    plan: Plan
    comm: MPI.Intracomm
    a: NDArray[Any] | None
    b: NDArray[Any] | None
    order: Order
    max_extra_bytes: int

    @property
    def itemsize(self) -> int:
        """Bytes of an element; 0 on a rank without arrays."""
        array = self.a if self.a is not None else self.b
        return 0 if array is None else array.dtype.itemsize


class Agreement:
    """What a rank says of its arguments. They may be found right once, and agreed on often."""

    def __init__(self, given: Arguments) -> None:
        plan, comm, a, b, order, max_extra_bytes = given
        array = a if a is not None else b
        fault = _fault(given)
        word, kind = 0, "no array"  # who has no array agrees with anyone
        if fault is not None:
            word = _AT_FAULT
        elif array is not None:
            kind = f"dtype {array.dtype}"
            number = plan.fingerprint ^ _description(array.dtype, order, max_extra_bytes)
            word = number & _MASK | (~number & _MASK) << _BITS
        self.plan, self.comm = plan, comm
        self.fault = fault
        self.words = f"{kind}, order {order!r}, {max_extra_bytes} bytes"
        self._all = np.empty(1, np.int64)
        self._mine = np.array([word], np.int64)
        self._share_cores = share_cores(comm)

    def reach(self) -> None:
        """Collective over comm. Raise the same error on every rank if any has bad arguments."""
        comm = self.comm
        if self._share_cores:
            wait([comm.Iallreduce(self._mine, self._all, MPI.BOR)])
        else:
            comm.Allreduce(self._mine, self._all, MPI.BOR)
        word = int(self._all[0])
        if word & _AT_FAULT:
            speaker = comm.allreduce(comm.size if self.fault is None else comm.rank, MPI.MIN)
            raise ValueError(comm.bcast(self.fault, root=speaker))
        if word & word >> _BITS & _MASK:
            raise ValueError(
                f"ranks disagree on the plan, the dtype, the order or max_extra_bytes; "
                f"rank {comm.rank} has {self.plan}, {self.words}"
            )


def _fault(given: Arguments) -> str | None:
    """What is wrong with this rank's arguments."""
    plan, comm, a, b, order, max_extra_bytes = given
    if comm.size < plan.size:
        return f"the plan needs {plan.size} ranks, the communicator has {comm.size}"
    if order not in ("C", "F"):
        return f"order must be 'C' or 'F', got {order!r}"
    if max_extra_bytes < 1:
        return f"max_extra_bytes must be >= 1, got {max_extra_bytes}"
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
def _description(dtype: np.dtype[Any], order: Order, max_extra_bytes: int) -> int:
    """A number that differs for different dtypes, orders and limits, in [0, 2**32)."""
    return zlib.crc32(f"{dtype.descr} {order} {max_extra_bytes}".encode())
