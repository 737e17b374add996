"""Run a plan over MPI. Importing this module starts MPI.

Messages are packed into and unpacked from a few small buffers that are used again and again: they
stay in cache and their pages are touched once, so that memory sees little more than one read of
the source and one write of the target.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from redistribution.agreement import agree
from redistribution.packing import Bytes, copy, in_place, of_array, pack, unpack
from redistribution.plan import Order, Plan, Transfer, pieces

# All messages of a plan carry this tag. Plans that follow one another on a communicator cannot
# be confused: MPI keeps the order of messages between two ranks.
TAG = 27183

# What one rank sends another goes in one message up to this size, in several beyond it.
# Measured on one node: 64 kB and 4 MB are slower, the first by overhead, the second by cache.
PIECE_BYTES = 1 << 20

# Bytes of messages under way at a time, in each direction.
WINDOW_BYTES = 4 * PIECE_BYTES

# Buffers up to this size come from the allocator, which keeps them warm; others from the pool.
_SMALL_BYTES = 1 << 17

# Tests of the messages under way, of about a microsecond, before a rank gives up its core.
_PATIENCE = 50

# Message buffers of PIECE_BYTES between runs; list.pop and list.append are atomic.
_pool: list[Bytes] = []


def run(
    plan: Plan,
    comm: MPI.Intracomm,
    a: NDArray[Any] | None,
    b: NDArray[Any] | None,
    *,
    order: Order = "C",
) -> None:
    """Collective over comm. Fill ``b`` with this rank's part of the target layout.

    One message of up to `PIECE_BYTES` goes from a rank to another, several if there is more, in
    an order in which all send to different ranks. What stays on a rank is copied directly; parts
    that lie in memory as they travel are sent from and received into the arrays themselves.

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
    Extra memory: at most 2 * `WINDOW_BYTES` (8 MB) of buffers, whatever the size of the arrays.
    Those for large messages are kept for the next run.
    """
    agree(plan, comm, a, b, order)
    array = a if a is not None else b
    if array is not None and array.dtype.itemsize:
        Exchange(plan, comm, a, b, array.dtype.itemsize, order).run()


def wait(requests: list[MPI.Request]) -> None:
    """Return when all requests are done; give up the core meanwhile if it takes long."""
    polls = 0
    while not MPI.Request.Testall(requests):
        polls += 1
        if polls > _PATIENCE:
            os.sched_yield()


class _Stream:
    """Pieces that go in one direction, handed out in turn while the window has room."""

    def __init__(self, transfers: Iterable[Transfer], itemsize: int, order: Order) -> None:
        limit = max(1, PIECE_BYTES // itemsize)
        self.itemsize = itemsize
        self.pieces = (piece for t in transfers for piece in pieces(t, limit, order))
        self.waiting = next(self.pieces, None)
        self.under_way = 0

    def memory(self, piece: Transfer) -> int:
        """Bytes of the buffer of a piece."""
        size = piece.elements * self.itemsize
        return size if size <= _SMALL_BYTES else max(size, PIECE_BYTES)

    def begin(self) -> Transfer | None:
        """The next piece, if there is one and room for it."""
        piece = self.waiting
        if piece is not None:
            if self.under_way and self.under_way + self.memory(piece) > WINDOW_BYTES:
                return None
            self.under_way += self.memory(piece)
            self.waiting = next(self.pieces, None)
        return piece

    def end(self, piece: Transfer) -> None:
        """Give back the room of a piece that came through."""
        self.under_way -= self.memory(piece)

    def buffer(self, piece: Transfer) -> Bytes:
        """Memory for the message of a piece; give it to `_keep` afterwards."""
        size = self.memory(piece)
        try:
            return _pool.pop() if size == PIECE_BYTES else np.empty(size, np.uint8)
        except IndexError:
            return np.empty(size, np.uint8)


class Exchange:
    """One run of a plan on one rank.

    It cannot deadlock: a rank sends and receives at once, and both in the turn in which the plan
    lists the transfers. So the earliest message that is not yet through is under way on both its
    ends, and all others come after it.
    """

    def __init__(
        self,
        plan: Plan,
        comm: MPI.Intracomm,
        a: NDArray[Any] | None,
        b: NDArray[Any] | None,
        itemsize: int,
        order: Order,
    ) -> None:
        self.comm = comm
        self.source, self.target = of_array(a, "source"), of_array(b, "target")
        self.itemsize = itemsize
        self.order: Order = order
        rank = comm.rank
        outgoing, incoming = plan.outgoing(rank), plan.incoming(rank)
        self.staying = _Stream((t for t in outgoing if t.peer == rank), itemsize, order)
        self.outgoing = _Stream((t for t in outgoing if t.peer != rank), itemsize, order)
        self.incoming = _Stream((t for t in incoming if t.peer != rank), itemsize, order)
        # What is under way, and what it is, at the same positions.
        self.requests: list[MPI.Request] = []
        self.messages: list[tuple[_Stream, Transfer, Bytes | None]] = []

    def run(self) -> None:
        """Send, receive and copy until nothing is left."""
        self.receive()
        self.send()
        while piece := self.staying.begin():
            copy(piece, self.itemsize, self.source, self.target)
            self.staying.end(piece)
            self.finish()
        polls = 0
        while self.requests:
            polls = 0 if self.finish() else polls + 1
            if polls > _PATIENCE:
                # With more ranks than cores, the rank that is waited for may need this core. A
                # blocking wait of MPI would keep it for milliseconds.
                os.sched_yield()

    def receive(self) -> None:
        """Post receives, in place where possible, while the window has room."""
        while piece := self.incoming.begin():
            message = in_place(piece, self.itemsize, self.target, self.order)
            buffer = self.incoming.buffer(piece) if message is None else None
            self.post(self.comm.Irecv, self.incoming, piece, message, buffer)

    def send(self) -> None:
        """Pack, unless the message lies ready, and send while the window has room."""
        while piece := self.outgoing.begin():
            message = in_place(piece, self.itemsize, self.source, self.order)
            buffer = self.outgoing.buffer(piece) if message is None else None
            if buffer is not None:
                pack(piece, self.itemsize, self.source, buffer, self.order)
            self.post(self.comm.Isend, self.outgoing, piece, message, buffer)

    def post(
        self,
        how: Callable[..., MPI.Request],
        stream: _Stream,
        piece: Transfer,
        message: Bytes | None,
        buffer: Bytes | None,
    ) -> None:
        """Put a message under way."""
        if message is None:
            assert buffer is not None
            message = buffer[: piece.elements * self.itemsize]
        self.requests.append(how([message, MPI.BYTE], piece.peer, TAG))
        self.messages.append((stream, piece, buffer))

    def finish(self) -> bool:
        """Whether messages came through; unpack them and let others follow."""
        done = MPI.Request.Testsome(self.requests)
        if not done:
            return False
        for position in sorted(done, reverse=True):
            del self.requests[position]
            stream, piece, buffer = self.messages.pop(position)
            if buffer is not None:
                if stream is self.incoming:
                    unpack(piece, self.itemsize, buffer, self.target, self.order)
                if buffer.size == PIECE_BYTES and len(_pool) * PIECE_BYTES < 2 * WINDOW_BYTES:
                    _pool.append(buffer)
            stream.end(piece)
        self.receive()
        self.send()
        return True
