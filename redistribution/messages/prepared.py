"""Moves that are bound to their arrays. Importing this starts MPI.

A small move spends most of its time on checking arguments, finding runs and allocating messages. A
prepared move does this once; running it only copies and sends. All ranks check, before anything
moves, that their arguments are valid and the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from mpi4py import MPI

from redistribution.copies.buffers import Bytes
from redistribution.copies.byte_ranges import contiguous_message
from redistribution.copies.copying import Copy, bind
from redistribution.copies.regions import KeptArrays, array_region, message_region
from redistribution.messages import exchange
from redistribution.messages.arguments import Arguments
from redistribution.messages.waiting import may_share_cores, wait
from redistribution.plans.transfers import Order, Transfer
from redistribution.tuning import tuning

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


class PreparedMove:
    """Collective over comm. Routes bound to arrays; made by `redistribution.Plan.prepare`.

    The contents of the arrays may change between runs, their memory must not.

    Raises
    ------
    ValueError : as in `redistribution.Plan.run`.

    Notes
    -----
    Extra memory: at most `Tuning.small_move_bytes` (4 MB) of messages on a rank, as long as this
    object exists. Larger moves allocate what `redistribution.Plan.run` does.
    """

    def __init__(self, given: Arguments) -> None:
        self.agreement = Agreement(given)
        self.agreement.check()
        self.given = given
        self.arrays = KeptArrays(given.a, given.b)
        sends, receives = given.sends, given.receives
        message_bytes = sum(t.elements for t in (*sends, *receives)) * given.itemsize
        # Other ranks must not split a message that this rank sends or receives as a whole.
        longest = exchange.longest_message(given.max_extra_bytes)
        self.is_small = message_bytes <= min(tuning.small_move_bytes, longest)
        self._sends: list[tuple[list[Any], int, list[Callable[[], None]]]] = []
        self._receives: list[tuple[list[Any], int]] = []
        self._staying: list[Callable[[], None]] = []
        self._unpacking: list[Callable[[], None]] = []
        if self.is_small and given.itemsize:
            self._bind(sends, receives)

    @property
    def may_be_kept(self) -> bool:
        """Whether the move and its arrays are small enough for a plan to keep them.

        The source arrays of other ranks are not kept.
        """
        return (
            self.given.sources is None
            and self.is_small
            and self.arrays.nbytes <= tuning.kept_run_bytes
        )

    def run_again(self, given: Arguments) -> bool:
        """Collective over comm. Run if these are the arguments of this move, arrays unchanged.

        Returns
        -------
        False, without communication, if they are not.

        Raises
        ------
        ValueError : as in `redistribution.Plan.run`.
        """
        _, comm, a, b, order, limit, sources = given
        _, own_comm, _, _, own_order, own_limit, _ = self.given
        same = sources is None and own_order == order and own_limit == limit and own_comm == comm
        if not (same and self.arrays.match(a, b)):
            return False
        self.agreement.check()
        self.run()
        return True

    def run(self) -> None:
        """Collective over comm. Move the present contents of ``a`` into ``b``."""
        if not self.is_small:
            exchange.Exchange(self.given).run()
            return
        comm, tag = self.given.comm, exchange.TAG
        receiving = [comm.Irecv(message, peer, tag) for message, peer in self._receives]
        sending = []
        for message, peer, copies in self._sends:
            for copy in copies:
                copy()
            sending.append(comm.Isend(message, peer, tag))
        for copy in self._staying:
            copy()
        wait(receiving)
        for copy in self._unpacking:
            copy()
        wait(sending)

    def _bind(self, sends: list[Transfer], receives: list[Transfer]) -> None:
        """Prepare all copies, and allocate the messages that are not contiguous in the arrays."""
        order, size = self.given.order, self.given.itemsize
        source, target = array_region(self.given.a, "source"), array_region(self.given.b, "target")
        for t in sends:
            message, is_packed = _memory(t, size, contiguous_message(t, size, source, order))
            region = message_region(t, message, size, order)
            copies = list(bind(size, Copy(t, source, region))) if is_packed else []
            self._sends.append(([message, MPI.BYTE], t.peer, copies))
        for t in receives:
            message, is_packed = _memory(t, size, contiguous_message(t, size, target, order))
            self._receives.append(([message, MPI.BYTE], t.peer))
            if is_packed:
                region = message_region(t, message, size, order)
                self._unpacking += bind(size, Copy(t, region, target))
        self._staying = [
            copy
            for t, array in self.given.copies
            for copy in bind(size, Copy(t, array_region(array, "source"), target))
        ]


def _memory(transfer: Transfer, itemsize: int, in_array: Bytes | None) -> tuple[Bytes, bool]:
    """Memory of a message, and whether the message is packed into it."""
    if in_array is not None:
        return in_array, False
    return np.empty(transfer.elements * itemsize, np.uint8), True
