"""What all ranks compare before anything moves: their arguments. Importing this starts MPI."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import Any

import numpy as np
from mpi4py import MPI

from redistribution.layout import MemoryOrder
from redistribution.messages.arguments import Arguments
from redistribution.messages.mailboxes import CommunicatorUse
from redistribution.messages.waiting import all_or

# Each rank contributes one word. It holds a number of this length that stands for its arguments,
# the same bits inverted, and flags. After a bitwise or over all ranks, a bit is set in both numbers
# if ranks disagree, and a flag if any rank has set it.
_BITS = 30
_MASK = (1 << _BITS) - 1
_FAULT = 1 << 2 * _BITS
#: The rank cannot move its part through mailboxes, or moves it faster by messages.
NEEDS_MESSAGES = 2 * _FAULT
#: The rank has not yet packed its mailbox.
IS_UNREADY = 4 * _FAULT
#: The rank has more to move in another round.
HAS_MORE = 8 * _FAULT


class Agreement:
    """The arguments of this rank, prepared for being compared with those of the others.

    Preparing them once allows to compare them before each of many moves.

    Attributes
    ----------
    use : the use of the communicator.
    fault : as `Arguments.fault`.
    flags : what this rank tells the others each time.
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
        self.use, self.fault, self.flags = CommunicatorUse.of(comm), fault, 0
        self._routes, self._comm, self._word = routes, comm, word
        self._description = f"{kind}, order {order!r}, {max_extra_bytes} bytes"

    def check(self, flags: int = 0) -> int:
        """Collective over comm. Compare the arguments of all ranks.

        Parameters
        ----------
        flags : what this rank tells the others this time.

        Returns
        -------
        the flags of all ranks, among other bits.

        Raises
        ------
        ValueError : on every rank, if the arguments of any rank are invalid or if ranks disagree.
        """
        comm, mailboxes = self._comm, self.use.mailboxes
        word = self._word | self.flags | flags
        word = all_or(comm, word) if mailboxes is None else mailboxes.meet(word)
        if word & _FAULT:
            first = comm.allreduce(comm.size if self.fault is None else comm.rank, MPI.MIN)
            raise ValueError(comm.bcast(self.fault, root=first))
        if word & word >> _BITS & _MASK:
            raise ValueError(
                f"ranks disagree on the plan, the dtype, the order or max_extra_bytes; "
                f"rank {comm.rank} has {self._routes}, {self._description}"
            )
        return word


@lru_cache(maxsize=64)
def _fingerprint(dtype: np.dtype[Any], order: MemoryOrder, max_extra_bytes: int) -> int:
    """A number in [0, 2**32) that differs for different dtypes, orders and limits."""
    return zlib.crc32(f"{dtype} {order} {max_extra_bytes}".encode())
