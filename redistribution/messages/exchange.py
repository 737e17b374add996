"""Messages of any size through a bounded memory. Importing this module starts MPI.

What one rank sends another goes in pieces. Where they lie in long stretches, MPI takes them from
the array, or puts them into it, itself (`redistribution.messages.datatypes`). The others are packed
for all ranks at once, together with a piece of what stays: it often lies between them in memory,
and has come into the cache with them. If the receiver does not run, the sender packs ahead, up to
the memory for messages: wherever ranks wait for one another, they also wait for whoever has the
core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, zip_longest
from typing import Any, NamedTuple

from mpi4py import MPI

from redistribution.copies import buffers
from redistribution.copies.buffers import Bytes
from redistribution.copies.copying import Copy, Region, copy, of_array, of_message
from redistribution.messages import datatypes as derived
from redistribution.messages.agreement import Arguments
from redistribution.messages.waiting import Patience
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


def longest_message(max_extra_bytes: int) -> int:
    """Bytes of a message beyond which it goes in several; the same on all ranks."""
    return min(PIECE_BYTES, max_extra_bytes // _UNDER_WAY)


class _Message(NamedTuple):
    """A piece under way, or about to be.

    Attributes
    ----------
    piece : what is sent or received.
    direct : what MPI is given if it takes the piece from, or puts it into, the array itself.
    memory : bytes of the buffer if not.
    """

    piece: Transfer
    direct: list[Any] | None
    memory: int


class _Stream:
    """Messages in one direction, handed out in turn while the window has room.

    Parameters
    ----------
    window : bytes of buffers under way at a time; a single one may be longer.
    """

    def __init__(self, messages: Iterator[_Message], window: int) -> None:
        self.messages = messages
        self.window = window
        self.waiting = next(messages, None)
        self.under_way = 0

    def begin(self) -> _Message | None:
        """The next message, if there is one and room for it."""
        message = self.waiting
        if message is not None:
            if self.under_way and self.under_way + message.memory > self.window:
                return None
            self.under_way += message.memory
            self.waiting = next(self.messages, None)
        return message

    def end(self, message: _Message) -> None:
        """Give back the room of a message that came through."""
        self.under_way -= message.memory


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
        self.patience = Patience()
        self.source, self.target = of_array(a, "source"), of_array(b, "target")
        self.itemsize = itemsize = given.itemsize
        self.order = order
        rank = comm.rank
        self.longest = longest_message(max_extra_bytes)
        most = max(1, self.longest // itemsize)
        larger = max(0 if array is None else array.nbytes for array in (a, b))
        room = min(max_extra_bytes, 5 * larger // 4)
        posted = min(PIECE_BYTES, room // 2)

        def dealt(transfers: Iterable[Transfer]) -> Iterator[Transfer]:
            turns = zip_longest(*(pieces(t, most, order) for t in transfers))
            return (piece for turn in turns for piece in turn if piece is not None)

        outgoing, incoming = plan.outgoing(rank), plan.incoming(rank)
        leaving = [t for t in outgoing if t.peer != rank]
        self.peers = len(leaving)
        self.staying = dealt(t for t in outgoing if t.peer == rank)
        sent = dealt(leaving)
        received = dealt(t for t in incoming if t.peer != rank)
        self.outgoing = _Stream(map(self.sent, sent), room - posted)
        self.incoming = _Stream(map(self.received, received), posted)
        # What is under way, and what it is, at the same positions.
        self.requests: list[MPI.Request] = []
        self.messages: list[tuple[_Stream, _Message, Bytes | None]] = []

    def run(self) -> None:
        """Send, receive and copy until nothing is left."""
        self.receive()
        while (busy := self.give()) or self.requests:
            if self.finish() or busy:
                self.patience.renew()
            else:
                self.patience.rest()

    def sent(self, piece: Transfer) -> _Message:
        """How a piece is sent."""
        direct = derived.sent(piece, self.itemsize, self.source, self.order)
        return _Message(piece, direct, 0 if direct else self.memory(piece))

    def received(self, piece: Transfer) -> _Message:
        """How a piece is received."""
        direct = derived.received(piece, self.itemsize, self.target, self.order)
        return _Message(piece, direct, 0 if direct else self.memory(piece))

    def memory(self, piece: Transfer) -> int:
        """Bytes of the buffer of a piece; but for short ones all the same, so that any will do."""
        size = piece.elements * self.itemsize
        return buffers.rounded(max(size, self.longest) if 4 * size > self.longest else size)

    def receive(self) -> None:
        """Post receives while the window has room."""
        while message := self.incoming.begin():
            buffer = None if message.direct else buffers.take(message.memory)
            self.post(self.comm.Irecv, self.incoming, message, buffer)

    def give(self) -> bool:
        """Send to all ranks for which there is room, and copy a piece that stays; False if none."""
        begun = list(islice(iter(self.outgoing.begin, None), self.peers))
        taken = [None if message.direct else buffers.take(message.memory) for message in begun]
        packed = [
            Copy(message.piece, self.source, self.region(message, buffer))
            for message, buffer in zip(begun, taken, strict=True)
            if buffer is not None
        ]
        kept = [Copy(piece, self.source, self.target) for piece in islice(self.staying, 1)]
        # Along with what is packed, else when MPI is at work.
        if packed:
            copy(self.itemsize, *packed, *kept)
        for message, buffer in zip(begun, taken, strict=True):
            self.post(self.comm.Isend, self.outgoing, message, buffer)
        if not packed:
            copy(self.itemsize, *kept)
        return bool(begun or kept)

    def post(
        self,
        how: Callable[..., MPI.Request],
        stream: _Stream,
        message: _Message,
        buffer: Bytes | None,
    ) -> None:
        """Put a message under way."""
        piece, direct, _ = message
        given = direct or [buffer, piece.elements * self.itemsize, MPI.BYTE]
        self.requests.append(how(given, piece.peer, TAG))
        self.messages.append((stream, message, buffer))
        if direct:
            direct[-1].Free()  # MPI keeps it as long as it needs it

    def finish(self) -> bool:
        """Whether messages came through; unpack them and let others follow."""
        done = self.patience.poll(MPI.Request.Testsome, self.requests)
        if not done:
            return False
        copies, given = [], []
        for position in sorted(done, reverse=True):
            del self.requests[position]
            stream, message, buffer = self.messages.pop(position)
            if buffer is not None:
                given.append(buffer)
                if stream is self.incoming:
                    copies.append(Copy(message.piece, self.region(message, buffer), self.target))
            stream.end(message)
        copy(self.itemsize, *copies)
        for buffer in given:
            buffers.give(buffer)
        self.receive()
        return True

    def region(self, message: _Message, buffer: Bytes) -> Region:
        """The buffer of a message."""
        return of_message(message.piece, buffer, self.itemsize, self.order)
