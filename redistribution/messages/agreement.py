"""Check on all ranks, before anything moves, that their arguments are valid and the same."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any

import numpy as np
from mpi4py import MPI

from redistribution.messages.arguments import Arguments
from redistribution.messages.waiting import may_share_cores, wait
from redistribution.plans.transfers import Order

# Each rank contributes one word, since reducing one takes half the time of reducing two. The word
# holds a number of this length that stands for its arguments, the same bits inverted, and a bit
# for an error. After a bitwise or over all ranks, a bit is set in both numbers if ranks disagree.
_BITS = 31
_MASK = (1 << _BITS) - 1
_FAULT = 1 << 2 * _BITS


class Agreement:
    """The arguments of this rank, prepared for being compared with those of the others.

    Preparing them once allows to compare them before each of many moves.
    """

    def __init__(self, given: Arguments) -> None:
        routes, comm, a, b, order, max_extra_bytes, _ = given
        array = a if a is not None else b
        fault = given.fault()
        word, kind = 0, "no array"  # a rank without arrays agrees with all others
        if fault is not None:
            word = _FAULT
        elif array is not None:
            kind = f"dtype {array.dtype}"
            number = routes.fingerprint ^ _fingerprint(array.dtype, order, max_extra_bytes)
            word = number & _MASK | (~number & _MASK) << _BITS
        self.routes, self.comm = routes, comm
        self.fault = fault
        self.description = f"{kind}, order {order!r}, {max_extra_bytes} bytes"
        self._all = np.empty(1, np.int64)
        self._own = np.array([word], np.int64)
        self._may_share_cores = may_share_cores(comm)

    def check(self) -> None:
        """Collective over comm. Compare the arguments of all ranks.

        Raises
        ------
        ValueError : on every rank, if the arguments of any rank are invalid or if ranks disagree.
        """
        comm = self.comm
        if self._may_share_cores:
            wait([comm.Iallreduce(self._own, self._all, MPI.BOR)])
        else:
            comm.Allreduce(self._own, self._all, MPI.BOR)
        word = int(self._all[0])
        if word & _FAULT:
            first = comm.allreduce(comm.size if self.fault is None else comm.rank, MPI.MIN)
            raise ValueError(comm.bcast(self.fault, root=first))
        if word & word >> _BITS & _MASK:
            raise ValueError(
                f"ranks disagree on the plan, the dtype, the order or max_extra_bytes; "
                f"rank {comm.rank} has {self.routes}, {self.description}"
            )


@lru_cache(maxsize=64)
def _fingerprint(dtype: np.dtype[Any], order: Order, max_extra_bytes: int) -> int:
    """A number in [0, 2**32) that differs for different dtypes, orders and limits."""
    return zlib.crc32(f"{dtype.descr} {order} {max_extra_bytes}".encode())
