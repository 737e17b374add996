"""A plan bound to its arrays, for moves that are made again and again. Importing this starts MPI.

Everything that a small move spends its time on is done once: agreeing on the arguments, finding
the runs, allocating messages. What is left is to copy and to send.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redistribution import exchange
from redistribution.agreement import agree
from redistribution.buffers import Bytes
from redistribution.packing import actions, in_place, of_array, of_message
from redistribution.plan import EXTRA_BYTES, Order, Plan, Transfer

# Up to this many bytes of messages on a rank they all have buffers of their own; beyond, a run
# goes through `redistribution.exchange`, whose cost does not matter any more.
SMALL_BYTES = 1 << 20


class Prepared:
    """Collective over comm. A plan with the arrays it moves; made by `Plan.prepare`.

    Parameters and errors are those of `redistribution.exchange.run`. The arrays may change their
    contents between runs, not their memory.

    Notes
    -----
    Extra memory: messages of at most `SMALL_BYTES` (1 MB) a rank, kept as long as this object
    lives; larger moves take what `redistribution.exchange.run` takes.
    """

    def __init__(
        self,
        plan: Plan,
        comm: MPI.Intracomm,
        a: NDArray[Any] | None,
        b: NDArray[Any] | None,
        order: Order = "C",
        max_extra_bytes: int = EXTRA_BYTES,
    ) -> None:
        agree(plan, comm, a, b, order, max_extra_bytes)
        self.max_extra_bytes = max_extra_bytes
        self.plan, self.comm, self.order = plan, comm, order
        self.a, self.b = a, b
        array = a if a is not None else b
        self.itemsize = 0 if array is None else array.dtype.itemsize
        rank = comm.rank
        sends = [t for t in plan.outgoing(rank) if t.peer != rank]
        receives = [t for t in plan.incoming(rank) if t.peer != rank]
        crossing = sum(t.elements for t in (*sends, *receives)) * self.itemsize
        self._is_small = crossing <= min(SMALL_BYTES, max_extra_bytes)
        if self._is_small and self.itemsize:
            self._bind(sends, receives)

    def run(self) -> None:
        """Collective over comm. Move the present contents of ``a`` into ``b``."""
        if not self.itemsize:
            return
        if not self._is_small:
            exchange.Exchange(
                self.plan,
                self.comm,
                self.a,
                self.b,
                self.itemsize,
                self.order,
                self.max_extra_bytes,
            ).run()
            return
        comm, tag = self.comm, exchange.TAG
        receiving = [comm.Irecv(message, peer, tag) for message, peer in self._receives]
        sending = []
        for message, peer, copies in self._sends:
            for copy in copies:
                copy()
            sending.append(comm.Isend(message, peer, tag))
        for copy in self._staying:
            copy()
        exchange.wait(receiving)
        for copy in self._unpacking:
            copy()
        exchange.wait(sending)

    def _bind(self, sends: list[Transfer], receives: list[Transfer]) -> None:
        """Bind all copies, and find memory for the messages that do not lie ready in the arrays."""
        size, order, plan, rank = self.itemsize, self.order, self.plan, self.comm.rank
        source, target = of_array(self.a, "source"), of_array(self.b, "target")
        self._sends = []
        for t in sends:
            message, is_ready = self._message(t, in_place(t, size, source, order))
            region = of_message(t, message, size, order)
            copies = [] if is_ready else list(actions(t, size, source, region))
            self._sends.append(([message, MPI.BYTE], t.peer, copies))
        self._receives = []
        self._unpacking: list[Callable[[], None]] = []
        for t in receives:
            message, is_ready = self._message(t, in_place(t, size, target, order))
            self._receives.append(([message, MPI.BYTE], t.peer))
            if not is_ready:
                region = of_message(t, message, size, order)
                self._unpacking += actions(t, size, region, target)
        self._staying = [
            copy
            for t in plan.outgoing(rank)
            if t.peer == rank
            for copy in actions(t, size, source, target)
        ]

    def _message(self, transfer: Transfer, ready: Bytes | None) -> tuple[Bytes, bool]:
        """Memory of a message, and whether it is the array itself."""
        if ready is not None:
            return ready, True
        return np.empty(transfer.elements * self.itemsize, np.uint8), False
