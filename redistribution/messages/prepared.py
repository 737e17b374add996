"""Run a plan over MPI, once or, bound to its arrays, again and again. Importing this starts MPI.

Everything that a small move spends its time on is done once: checking the arguments, finding the
runs, allocating messages. What is left is to copy and to send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redistribution.copies.buffers import Bytes
from redistribution.copies.copying import Copy, Held, actions, of_array, of_message
from redistribution.copies.stretches import in_place
from redistribution.messages import exchange
from redistribution.messages.agreement import Agreement, Arguments
from redistribution.messages.waiting import wait
from redistribution.plan import EXTRA_BYTES, Order, Plan, Transfer

# Up to this many bytes of messages on a rank they all have buffers of their own; beyond, a run
# goes through `redistribution.messages.exchange`, whose cost does not matter any more.
SMALL_BYTES = 1 << 22

# The last runs between arrays of up to so many bytes on a rank are kept, and as many of them.
HELD_BYTES = 1 << 23
KEPT_RUNS = 4

# The plans that keep a run, in the order in which they began to.
_keeping: deque[ReferenceType[Plan]] = deque()


def run(
    plan: Plan,
    comm: MPI.Intracomm,
    a: NDArray[Any] | None,
    b: NDArray[Any] | None,
    *,
    order: Order = "C",
    max_extra_bytes: int = EXTRA_BYTES,
) -> None:
    """Collective over comm. Fill ``b`` with this rank's part of the target layout.

    One message goes from a rank to another, several if it is large, in an order in which all send
    to different ranks. What stays on a rank is copied directly; parts that lie in memory as they
    travel are sent from and received into the arrays themselves.

    Parameters
    ----------
    plan : the same on every rank.
    comm : at least ``plan.size`` ranks. No other messages with tag
        `redistribution.messages.exchange.TAG` may be under way on it.
    a : this rank's local source array, shape ``plan.source.local_shape(process)``, or None if the
        rank holds no source part. Any strides; not changed.
    b : this rank's local target array, shape ``plan.target.local_shape(process)``, or None if the
        rank holds no target part. Same dtype as ``a``, any strides, must not overlap ``a``.
    order : order of the elements in the messages, the same on every rank. Any order works with
        any arrays; the memory order of the arrays is the fast one.
    max_extra_bytes : most memory for messages on a rank, the same on every rank. Less of it means
        more and shorter messages.

    Raises
    ------
    ValueError : on every rank, before anything is moved: an array is missing, superfluous, of the
        wrong shape, or cannot be written; its dtype holds Python objects; the ranks disagree on
        plan, dtype, order or max_extra_bytes, or it is < 1; or comm is too small.

    Notes
    -----
    Extra memory: at most ``max_extra_bytes`` (by default 24 MB) of buffers, and at most 1.25 times
    the larger of ``a`` and ``b``, or 16 MB if that is more. They are kept for the next run
    (`redistribution.copies.buffers`). Of arrays up to 8 MB in all a plan keeps the last ones and
    what it has found out about them, as long as not four other plans do: to move them again takes
    half of the time.
    """
    plan.last_run = None
    prepared = Prepared(Arguments(plan, comm, a, b, order, max_extra_bytes))
    if prepared.is_small and prepared.held.nbytes <= HELD_BYTES:
        plan.last_run = prepared
        _keep(plan)
    prepared.run()


def _keep(plan: Plan) -> None:
    """Let a plan keep its last run, and the one that has kept one for longest give it up."""
    here = ref(plan)
    if here in _keeping:
        _keeping.remove(here)
    _keeping.append(here)
    if len(_keeping) > KEPT_RUNS and (first := _keeping.popleft()()):
        first.last_run = None


class Prepared:
    """Collective over comm. A plan with the arrays it moves; made by `Plan.prepare`.

    Parameters and errors are those of `run`. The arrays may change their contents between runs, not
    their memory.

    Notes
    -----
    Extra memory: messages of at most `SMALL_BYTES` (4 MB) a rank, kept as long as this object
    lives; larger moves take what `run` takes.
    """

    def __init__(self, given: Arguments) -> None:
        self.agreement = Agreement(given)
        self.agreement.reach()
        self.given = given
        self.held = Held(given.a, given.b)
        plan, rank = given.plan, given.comm.rank
        sends = [t for t in plan.outgoing(rank) if t.peer != rank]
        receives = [t for t in plan.incoming(rank) if t.peer != rank]
        crossing = sum(t.elements for t in (*sends, *receives)) * given.itemsize
        # The other ranks must not cut a message that this one has in one piece.
        longest = exchange.longest_message(given.max_extra_bytes)
        self.is_small = crossing <= min(SMALL_BYTES, longest)
        self._sends: list[tuple[list[Any], int, list[Callable[[], None]]]] = []
        self._receives: list[tuple[list[Any], int]] = []
        self._staying: list[Callable[[], None]] = []
        self._unpacking: list[Callable[[], None]] = []
        if self.is_small and given.itemsize:
            self._bind(sends, receives)

    def again(
        self,
        comm: MPI.Intracomm,
        a: NDArray[Any] | None,
        b: NDArray[Any] | None,
        order: Order,
        max_extra_bytes: int,
    ) -> bool:
        """Collective over comm. Run if these are its arguments and the arrays as they were.

        Returns
        -------
        whether it ran; if not, nothing was said to other ranks. Errors are those of `run`.
        """
        given = self.given
        same = given.order == order and given.max_extra_bytes == max_extra_bytes
        if not (same and given.comm == comm and self.held.are(a, b)):
            return False
        self.agreement.reach()
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
        """Bind all copies, and find memory for the messages that do not lie ready in the arrays."""
        plan, comm, a, b, order, _ = self.given
        size, rank = self.given.itemsize, comm.rank
        source, target = of_array(a, "source"), of_array(b, "target")
        for t in sends:
            message, is_ready = _message(t, size, in_place(t, size, source, order))
            region = of_message(t, message, size, order)
            copies = [] if is_ready else list(actions(size, Copy(t, source, region)))
            self._sends.append(([message, MPI.BYTE], t.peer, copies))
        for t in receives:
            message, is_ready = _message(t, size, in_place(t, size, target, order))
            self._receives.append(([message, MPI.BYTE], t.peer))
            if not is_ready:
                region = of_message(t, message, size, order)
                self._unpacking += actions(size, Copy(t, region, target))
        self._staying = [
            copy
            for t in plan.outgoing(rank)
            if t.peer == rank
            for copy in actions(size, Copy(t, source, target))
        ]


def _message(transfer: Transfer, itemsize: int, ready: Bytes | None) -> tuple[Bytes, bool]:
    """Memory of a message, and whether it is the array itself."""
    if ready is not None:
        return ready, True
    return np.empty(transfer.elements * itemsize, np.uint8), False
