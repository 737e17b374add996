"""Messages of any size through a bounded memory. Importing this module starts MPI.

What one rank sends another goes in pieces. They are packed in turn for all ranks, and in the same
turn a piece of what stays is copied: it often lies between them in memory, and is still in the last
cache. If the receiver does not run, the sender packs ahead, up to the memory for messages: wherever
ranks wait for one another, they also wait for whoever has the core.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from itertools import zip_longest

from mpi4py import MPI

from redistribution import buffers
from redistribution.agreement import Arguments
from redistribution.buffers import Bytes
from redistribution.packing import copy, in_place, of_array, pack, unpack
from redistribution.plan import Transfer, pieces

# All messages of a plan carry this tag. Plans that follow one another on a communicator cannot
# be confused: MPI keeps the order of messages between two ranks.
TAG = 27183

# What one rank sends another goes in one message up to this size, in several beyond it. Measured on
# a busy node: 4 MB are slower by the waits between ranks, 32 MB are no faster.
PIECE_BYTES = 1 << 23

# Messages of that size under way: the first to receive, the others to send. More are slower, as
# their buffers do not stay in the last cache.
_UNDER_WAY = 3

# A rank that has waited for this long gives up its core, in seconds; after some more it sleeps. If
# it only yielded, its core would be counted as busy, and the ranks that are waited for would be
# left to share another one. A blocking wait of MPI would keep the core for milliseconds.
_YIELD_AFTER = 2e-5
_SLEEP_AFTER = 2e-4
_SLEEP = 2e-5


def longest_message(max_extra_bytes: int) -> int:
    """Bytes of a message beyond which it goes in several; the same on all ranks."""
    return min(PIECE_BYTES, max_extra_bytes // _UNDER_WAY)


def wait(requests: list[MPI.Request]) -> None:
    """Return when all requests are done; give up the core meanwhile if it takes long."""
    began = time.perf_counter()
    while not MPI.Request.Testall(requests):
        rest(began)


def rest(began: float) -> None:
    """Let others have the core for a moment if it has been waited in vain since ``began``."""
    waited = time.perf_counter() - began
    if waited > _SLEEP_AFTER:
        time.sleep(_SLEEP)
    elif waited > _YIELD_AFTER:
        os.sched_yield()


class _Stream:
    """Pieces that go in one direction, handed out in turn while the window has room.

    Parameters
    ----------
    memory : bytes of the buffer of a piece.
    window : bytes of messages under way at a time; a single one may be longer.
    """

    def __init__(
        self, pieces: Iterable[Transfer], memory: Callable[[Transfer], int], window: int
    ) -> None:
        self.memory = memory
        self.window = window
        self.pieces = iter(pieces)
        self.waiting = next(self.pieces, None)
        self.under_way = 0

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

    def __init__(self, given: Arguments) -> None:
        plan, comm, a, b, order, max_extra_bytes = given
        self.comm = comm
        self.source, self.target = of_array(a, "source"), of_array(b, "target")
        self.itemsize = itemsize = given.itemsize
        self.order = order
        rank = comm.rank
        self.longest = longest_message(max_extra_bytes)
        most = max(1, self.longest // itemsize)
        larger = max(0 if array is None else array.nbytes for array in (a, b))
        room = min(max_extra_bytes, 5 * larger // 4)
        posted = min(PIECE_BYTES, room // 2)

        def stream(transfers: Iterable[Transfer], window: int) -> _Stream:
            turns = zip_longest(*(pieces(t, most, order) for t in transfers))
            dealt = (piece for turn in turns for piece in turn if piece is not None)
            return _Stream(dealt, self.memory, window)

        outgoing, incoming = plan.outgoing(rank), plan.incoming(rank)
        self.staying = stream((t for t in outgoing if t.peer == rank), room)
        self.outgoing = stream((t for t in outgoing if t.peer != rank), room - posted)
        self.incoming = stream((t for t in incoming if t.peer != rank), posted)
        # What is under way, and what it is, at the same positions.
        self.requests: list[MPI.Request] = []
        self.messages: list[tuple[_Stream, Transfer, Bytes | None]] = []

    def run(self) -> None:
        """Send, receive and copy until nothing is left."""
        self.receive()
        began = time.perf_counter()
        while (busy := self.send() | self.stay()) or self.requests:
            if self.finish() or busy:
                began = time.perf_counter()
            else:
                rest(began)

    def memory(self, piece: Transfer) -> int:
        """Bytes of the buffer of a piece; but for short ones all the same, so that any will do."""
        size = piece.elements * self.itemsize
        return buffers.rounded(max(size, self.longest) if 4 * size > self.longest else size)

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
        return buffers.take(self.memory(piece))

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
