"""Moves of any size through a bounded amount of memory. Importing this module starts MPI.

A transfer travels in pieces. If a piece is made of long contiguous ranges of an array, a derived
datatype describes them, MPI takes the piece from the array, or puts it into it, and a copy into a
message buffer is saved. For short ranges MPI is slower than packing. The thresholds were measured
with MPICH on one node, where the receiver reads the memory of the sender. It may put the message
anywhere, but the description of the sender must be short; if it is not, MPI packs by itself, a
hundred times as slowly. All other pieces are packed, one for each receiver at a time, together with
a piece of the elements that stay: these are often between the others in memory and have come into
the cache with them. Elements of other ranks of the same host are copied in the same way, out of the
arrays of these ranks. While the receiver does not run, the sender packs ahead, up to the limit of
memory for messages, because ranks that share cores also wait for one another's time slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice, zip_longest
from typing import Any, NamedTuple

from mpi4py import MPI

from redistribution.copies import buffers
from redistribution.copies.buffers import Bytes
from redistribution.copies.copying import Copy, copy
from redistribution.copies.regions import ByteRanges, Region, array_region, message_region
from redistribution.layout import MemoryOrder
from redistribution.messages.arguments import TAG, Arguments
from redistribution.messages.waiting import Backoff
from redistribution.runs import Transfer, pieces
from redistribution.tuning import tuning


def is_sent_from_array(ranges: ByteRanges) -> bool:
    """Whether MPI sends a message in these ranges of an array faster than it can be packed."""
    has_short_list = ranges.number <= tuning.sent_ranges or all(
        len(families) == 1 for families in ranges.axes
    )
    return ranges.number == 1 or (has_short_list and ranges.mean_bytes >= tuning.sent_range_bytes)


def is_received_into_array(ranges: ByteRanges) -> bool:
    """Whether MPI receives a message into these ranges of an array faster than it is unpacked."""
    return ranges.number == 1 or ranges.mean_bytes >= tuning.received_range_bytes


def array_arguments(
    transfer: Transfer,
    itemsize: int,
    region: Region,
    order: MemoryOrder,
    between_hosts: bool = False,
) -> list[Any] | None:
    """Arguments with which MPI sends a transfer from a region, or receives it into the region.

    Parameters
    ----------
    between_hosts : whether sender and receiver are on different hosts.

    Returns
    -------
    buffer, count and datatype, which the caller frees; None if the transfer is to be packed: that
    is faster, or ranges begin before the buffer.
    """
    ranges = ByteRanges.of(transfer, itemsize, region, order)
    if ranges.number > 1 and (between_hosts or min(region.strides) < 0):
        return None
    is_faster = is_sent_from_array if region.role == "source" else is_received_into_array
    if not is_faster(ranges):
        return None
    return [region.memory[ranges.offset :], 1, derived_datatype(ranges)]


def derived_datatype(ranges: ByteRanges) -> MPI.Datatype:
    """Committed datatype of the ranges, relative to their offset."""
    made = [MPI.BYTE]
    for families in ranges.axes:
        if len(families) == 1:
            _, repeats, step, length = families[0]
            made.append(made[-1].Create_hvector(repeats, length, step))
        else:
            lengths = [family.length for family in families for _ in range(family.repeats)]
            starts = [f.start + k * f.step for f in families for k in range(f.repeats)]
            made.append(made[-1].Create_hindexed(lengths, starts))
    _, *parts, whole = made
    whole.Commit()
    for part in parts:
        part.Free()
    return whole


# Number of messages of full length under way: the first one is received, the others are sent. More
# are slower, because their buffers do not stay in the last cache.
_UNDER_WAY = 3


def longest_message(max_extra_bytes: int) -> int:
    """Bytes of the longest message, the same on all ranks. Longer transfers travel in pieces."""
    return min(tuning.piece_bytes, max_extra_bytes // _UNDER_WAY)


class _PieceMessage(NamedTuple):
    """The message of one piece.

    Attributes
    ----------
    piece : the elements that are sent or received.
    direct : buffer, count and datatype if MPI accesses the array itself; None if it does not.
    memory : bytes of the buffer in that case.
    """

    piece: Transfer
    direct: list[Any] | None
    memory: int


class _MessageWindow:
    """The messages of one direction, in order; those under way share a limited memory.

    Parameters
    ----------
    limit : bytes of buffers under way at a time; a single one may be larger.
    """

    def __init__(self, messages: Iterator[_PieceMessage], limit: int) -> None:
        self.messages = messages
        self.limit = limit
        self.first = next(messages, None)
        self.under_way = 0

    def start_next(self) -> _PieceMessage | None:
        """The next message; None if there is none, or no memory for it."""
        message = self.first
        if message is not None:
            if self.under_way and self.under_way + message.memory > self.limit:
                return None
            self.under_way += message.memory
            self.first = next(self.messages, None)
        return message

    def complete(self, message: _PieceMessage) -> None:
        """Release the memory of a message that has completed."""
        self.under_way -= message.memory


class Exchange:
    """One move on one rank.

    It cannot deadlock: a rank sends and receives at the same time, first the first pieces of all
    transfers, then the second ones, and so on, each time in the order of the routes. So the
    earliest message that has not completed is under way on both ends, and all others come later.
    """

    def __init__(self, arguments: Arguments) -> None:
        routes, comm, a, b, order, max_extra_bytes, _ = arguments
        self.comm = comm
        self.between_hosts = routes.hosts is not None
        self.backoff = Backoff()
        self.source, self.target = array_region(a, "source"), array_region(b, "target")
        self.itemsize = itemsize = arguments.itemsize
        self.order = order
        self.longest = longest_message(max_extra_bytes)
        most = max(1, self.longest // itemsize)
        larger = max(0 if array is None else array.nbytes for array in (a, b))
        limit = min(max_extra_bytes, 5 * larger // 4)
        receive_limit = min(tuning.piece_bytes, limit // 2)

        def in_turn(transfers: Iterable[Transfer]) -> Iterator[Transfer]:
            """First pieces of all transfers, second pieces of all transfers, and so on."""
            rounds = zip_longest(*(pieces(t, most, order) for t in transfers))
            return (piece for round_ in rounds for piece in round_ if piece is not None)

        sent, copied = arguments.sends, arguments.copies
        self.receivers = len(sent)
        self.near = {t.peer: array_region(array, "source") for t, array in copied}
        self.copied = in_turn(t for t, _ in copied)
        send, receive = partial(self.message, self.source), partial(self.message, self.target)
        self.outgoing = _MessageWindow(map(send, in_turn(sent)), limit - receive_limit)
        self.incoming = _MessageWindow(map(receive, in_turn(arguments.receives)), receive_limit)
        # The requests under way and, at the same positions, their messages.
        self.requests: list[MPI.Request] = []
        self.messages: list[tuple[_MessageWindow, _PieceMessage, Bytes | None]] = []

    def run(self) -> None:
        """Send, receive and copy until all pieces have arrived. Call it once.

        The windows refer to this object. It removes them at the end, so that it keeps neither array
        until the garbage collector runs.
        """
        try:
            self.start_receives()
            while (busy := self.start_sends()) or self.requests:
                if self.complete_messages() or busy:
                    self.backoff.reset()
                else:
                    self.backoff.pause()
        finally:
            del self.outgoing, self.incoming

    def message(self, region: Region, piece: Transfer) -> _PieceMessage:
        """Message that sends a piece from a region, or receives it there."""
        direct = array_arguments(piece, self.itemsize, region, self.order, self.between_hosts)
        return _PieceMessage(piece, direct, 0 if direct else self.buffer_size(piece))

    def buffer_size(self, piece: Transfer) -> int:
        """Bytes of the buffer of a piece; equal for all but short pieces, to share buffers."""
        size = piece.elements * self.itemsize
        return buffers.rounded_size(max(size, self.longest) if 4 * size > self.longest else size)

    def start_receives(self) -> None:
        """Start receives while there is memory for them."""
        while message := self.incoming.start_next():
            buffer = None if message.direct else buffers.take(message.memory)
            self.start(self.comm.Irecv, self.incoming, message, buffer)

    def start_sends(self) -> bool:
        """Pack and send one piece to each receiver, as memory allows, and copy a near piece.

        Returns
        -------
        False if there was nothing to do.
        """
        started = list(islice(iter(self.outgoing.start_next, None), self.receivers))
        taken = [None if message.direct else buffers.take(message.memory) for message in started]
        packed = [
            Copy(piece, self.source, message_region(piece, buffer, self.itemsize, self.order))
            for (piece, *_), buffer in zip(started, taken, strict=True)
            if buffer is not None
        ]
        near = islice(self.copied, 1)
        copies = [Copy(piece, self.near[piece.peer], self.target) for piece in near]
        # If nothing is packed, near elements are copied while MPI works on the messages.
        if packed:
            copy(self.itemsize, *packed, *copies)
        for message, buffer in zip(started, taken, strict=True):
            self.start(self.comm.Isend, self.outgoing, message, buffer)
        if not packed:
            copy(self.itemsize, *copies)
        return bool(started or copies)

    def start(
        self,
        start_request: Callable[..., MPI.Request],
        window: _MessageWindow,
        message: _PieceMessage,
        buffer: Bytes | None,
    ) -> None:
        """Start the request of a message."""
        piece, direct, _ = message
        arguments = direct or [buffer, piece.elements * self.itemsize, MPI.BYTE]
        self.requests.append(start_request(arguments, piece.peer, TAG))
        self.messages.append((window, message, buffer))
        if direct:
            direct[-1].Free()  # MPI keeps the datatype as long as the request needs it

    def complete_messages(self) -> bool:
        """Unpack the messages that have completed and start further receives; False if none has."""
        done = self.backoff.test(MPI.Request.Testsome, self.requests)
        if not done:
            return False
        copies, free = [], []
        for position in sorted(done, reverse=True):
            del self.requests[position]
            window, message, buffer = self.messages.pop(position)
            if buffer is not None:
                free.append(buffer)
                if window is self.incoming:
                    piece = message.piece
                    region = message_region(piece, buffer, self.itemsize, self.order)
                    copies.append(Copy(piece, region, self.target))
            window.complete(message)
        copy(self.itemsize, *copies)
        for buffer in free:
            buffers.give_back(buffer)
        self.start_receives()
        return True
