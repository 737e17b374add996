"""Moves that are bound to their arrays. Importing this starts MPI.

A small move spends most of its time on checking arguments, finding runs and allocating messages. A
prepared move does this once; running it only copies and sends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from redistribution.copies.buffers import Bytes
from redistribution.copies.byte_ranges import contiguous_message
from redistribution.copies.copying import Copy, bind
from redistribution.copies.regions import KeptArrays, array_region, message_region
from redistribution.messages import exchange
from redistribution.messages.agreement import Agreement
from redistribution.messages.arguments import Arguments
from redistribution.messages.waiting import wait
from redistribution.plans.transfers import Transfer
from redistribution.tuning import tuning


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
