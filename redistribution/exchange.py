"""Run a plan over MPI. Importing this module starts MPI.

What one rank sends another goes in pieces. They are packed in turn for all ranks, and in the same
turn a piece of what stays is copied: it often lies between them in memory, and is still in the last
cache. If the receiver does not run, the sender packs ahead, up to the memory for messages: wherever
ranks wait for one another, they also wait for whoever has the core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Any

from mpi4py import MPI
from numpy.typing import NDArray

from redistribution import buffers
from redistribution.agreement import agree
from redistribution.buffers import Bytes
from redistribution.packing import copy, in_place, of_array, pack, unpack
from redistribution.plan import EXTRA_BYTES, Order, Plan, Transfer, pieces

# All messages of a plan carry this tag. Plans that follow one another on a communicator cannot
# be confused: MPI keeps the order of messages between two ranks.
TAG = 27183

# What one rank sends another goes in one message up to this size, in several beyond it. Measured on
# a busy node: 4 MB are slower by the waits between ranks, 32 MB are no faster.
PIECE_BYTES = 1 << 23

# Messages of that size under way: the first to receive, the others to send. More are slower, as
# their buffers do not stay in the last cache.
_UNDER_WAY = 3

# Tests of the messages under way, of about a microsecond, before a rank gives up its core, and for
# how long in seconds. If it only yielded, its core would be counted as busy, and the ranks that are
# waited for would be left to share another one.
_PATIENCE = 50
_REST = 2e-5


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
    comm : at least ``plan.size`` ranks. No other messages with tag `TAG` may be under way on it.
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
    (`redistribution.buffers`).
    """
    agree(plan, comm, a, b, order, max_extra_bytes)
    array = a if a is not None else b
    if array is not None and array.dtype.itemsize:
        Exchange(plan, comm, a, b, array.dtype.itemsize, order, max_extra_bytes).run()


def wait(requests: list[MPI.Request]) -> None:
    """Return when all requests are done; give up the core meanwhile if it takes long."""
    polls = 0
    while not MPI.Request.Testall(requests):
        polls += 1
        if polls > _PATIENCE:
            time.sleep(_REST)


class _Stream:
    """Pieces that go in one direction, handed out in turn while the window has room.

    Parameters
    ----------
    window : bytes of messages under way at a time; a single one may be longer.
    """

    def __init__(self, transfers: Iterable[Transfer], itemsize: int, window: int) -> None:
        self.itemsize = itemsize
        self.window = window
        self.pieces = iter(transfers)
        self.waiting = next(self.pieces, None)
        self.under_way = 0

    def memory(self, piece: Transfer) -> int:
        """Bytes of the buffer of a piece."""
        return buffers.rounded(piece.elements * self.itemsize)

    def begin(self) -> Transfer | None:
        """The next piece, if there is one and room for it."""
        piece = self.waiting
        if piece is not None:
            if self.under_way and self.under_way + self.memory(piece) > self.window:
                return None
            self.under_way += self.memory(piece)
            self.waiting = next(self.pieces, None)
        return piece

    def end(self, piece: Transfer) -> None:
        """Give back the room of a piece that came through."""
        self.under_way -= self.memory(piece)


class Exchange:
    """One run of a plan on one rank.

    It cannot deadlock: a rank sends and receives at once, the first pieces of all transfers, then
    the second ones, and so on, each time in the turn in which the plan lists the transfers. So the
    earliest message that is not yet through is under way on both its ends, and all others come
    after it.
    """

    def __init__(
        self,
        plan: Plan,
        comm: MPI.Intracomm,
        a: NDArray[Any] | None,
        b: NDArray[Any] | None,
        itemsize: int,
        order: Order,
        max_extra_bytes: int,
    ) -> None:
        self.comm = comm
        self.source, self.target = of_array(a, "source"), of_array(b, "target")
        self.itemsize = itemsize
        self.order: Order = order
        rank = comm.rank
        most = max(1, min(PIECE_BYTES, max_extra_bytes // _UNDER_WAY) // itemsize)
        larger = max(0 if array is None else array.nbytes for array in (a, b))
        room = min(max_extra_bytes, 5 * larger // 4)
        posted = min(PIECE_BYTES, room // 2)

        def stream(transfers: Iterable[Transfer], window: int) -> _Stream:
            turns = zip_longest(*(pieces(t, most, order) for t in transfers))
            dealt = (piece for turn in turns for piece in turn if piece is not None)
            return _Stream(dealt, itemsize, window)

        outgoing, incoming = plan.outgoing(rank), plan.incoming(rank)
        self.staying = stream((t for t in outgoing if t.peer == rank), room)
        self.outgoing = stream((t for t in outgoing if t.peer != rank), room - posted)
        self.incoming = stream((t for t in incoming if t.peer != rank), posted)
        # What is under way, and what it is, at the same positions.
        self.requests: list[MPI.Request] = []
        self.messages: list[tuple[_Stream, Transfer, Bytes | None]] = []

    def run(self) -> None:
        """Send, receive and copy until nothing is left."""
        polls = 0
        self.receive()
        while (busy := self.send() | self.stay()) or self.requests:
            polls = 0 if self.finish() or busy else polls + 1
            if polls > _PATIENCE:
                # With more ranks than cores, the rank that is waited for may need this core. A
                # blocking wait of MPI would keep it for milliseconds.
                time.sleep(_REST)

    def stay(self) -> bool:
        """Whether there was a piece to copy that stays on this rank."""
        if piece := self.staying.begin():
            copy(piece, self.itemsize, self.source, self.target)
            self.staying.end(piece)
        return piece is not None

    def receive(self) -> None:
        """Post receives, in place where possible, while the window has room."""
        while piece := self.incoming.begin():
            message = in_place(piece, self.itemsize, self.target, self.order)
            buffer = self.buffer(piece) if message is None else None
            self.post(self.comm.Irecv, self.incoming, piece, message, buffer)

    def send(self) -> bool:
        """Whether there was a piece and room to send it; packed, unless the message lies ready."""
        if piece := self.outgoing.begin():
            message = in_place(piece, self.itemsize, self.source, self.order)
            buffer = self.buffer(piece) if message is None else None
            if buffer is not None:
                pack(piece, self.itemsize, self.source, buffer, self.order)
            self.post(self.comm.Isend, self.outgoing, piece, message, buffer)
        return piece is not None

    def buffer(self, piece: Transfer) -> Bytes:
        """Memory for the message of a piece."""
        return buffers.take(piece.elements * self.itemsize)

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
                buffers.give(buffer)
            stream.end(piece)
        self.receive()
        return True
