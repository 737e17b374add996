"""Moves that are bound to their arrays. Importing this starts MPI.

A small move spends most of its time on checking arguments, finding runs and allocating messages. A
prepared move does this once; running it only copies and sends. All ranks check, before anything
moves, that their arguments are valid and the same, and agree whether they use mailboxes. If they do
not, a rank with small messages has a buffer for each of them, and others make an `Exchange`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from mpi4py import MPI

from redistribution.copies.buffers import Bytes
from redistribution.copies.copying import LINE, Copy, bind
from redistribution.copies.regions import (
    ByteRanges,
    Region,
    array_region,
    contiguous_message,
    contiguous_region,
    message_region,
)
from redistribution.layout import MemoryOrder
from redistribution.messages import exchange
from redistribution.messages.arguments import TAG, Arguments
from redistribution.messages.mailboxes import CommunicatorUse, Mailboxes
from redistribution.messages.waiting import all_or, wait
from redistribution.routes import Rounds
from redistribution.runs import Transfer
from redistribution.tuning import tuning

# Each rank contributes one word. It holds a number of this length that stands for its arguments,
# the same bits inverted, and flags. After a bitwise or over all ranks, a bit is set in both numbers
# if ranks disagree, and a flag if any rank has set it.
_BITS = 30
_MASK = (1 << _BITS) - 1
_FAULT = 1 << 2 * _BITS
# The rank cannot move its part through mailboxes, or moves it faster by messages.
_NEEDS_MESSAGES = 2 * _FAULT


class PreparedMove:
    """Collective over comm. Routes bound to arrays; made by `redistribution.Plan.prepare`.

    The contents of the arrays may change between runs, their memory must not.

    Raises
    ------
    ValueError : as in `redistribution.Plan.run`.

    Notes
    -----
    Extra memory: that of `redistribution.Plan.run`; small moves by messages have at most
    `Tuning.small_move_bytes` (4 MB) of messages on a rank, as long as this object exists.
    """

    def __init__(self, arguments: Arguments) -> None:
        use = CommunicatorUse.of(arguments.comm)
        needs_messages = _agree(arguments, use)
        if not needs_messages:
            use.settle(arguments.comm)
        self._run: Callable[[], None]
        if not needs_messages and use.mailboxes is not None:
            self._run = _Mail(arguments, use.mailboxes).run
        elif _Messages.are_small(arguments):
            self._run = _Messages(arguments).run
        else:
            self._run = lambda: exchange.Exchange(arguments).run()

    def run(self) -> None:
        """Collective over comm. Move the present contents of ``a`` into ``b``."""
        self._run()


def _agree(arguments: Arguments, use: CommunicatorUse) -> bool:
    """Collective over comm. Check and compare the arguments of all; whether one needs messages."""
    routes, comm, a, b, order, max_extra_bytes, _ = arguments
    array = a if a is not None else b
    fault, word, kind = "", 0, "no array"  # a rank without arrays agrees with all others
    try:
        arguments.check()
        if array is not None:
            kind = f"dtype {array.dtype}"
            number = routes.fingerprint ^ _fingerprint(array.dtype, order, max_extra_bytes)
            word = number & _MASK | (~number & _MASK) << _BITS
        if _needs_messages(arguments, use):
            word |= _NEEDS_MESSAGES
    except ValueError as error:
        fault, word = f"rank {comm.rank}: {error}", _FAULT
    word = all_or(comm, word) if use.mailboxes is None else use.mailboxes.meet(word)
    if word & _FAULT:
        first = comm.allreduce(comm.rank if fault else comm.size, MPI.MIN)
        raise ValueError(comm.bcast(fault, root=first))
    if word & word >> _BITS & _MASK:
        raise ValueError(
            f"ranks disagree on the plan, the dtype, the order or max_extra_bytes; "
            f"rank {comm.rank} has {routes}, {kind}, order {order!r}, {max_extra_bytes} bytes"
        )
    return bool(word & _NEEDS_MESSAGES)


@lru_cache(maxsize=64)
def _fingerprint(dtype: np.dtype[Any], order: MemoryOrder, max_extra_bytes: int) -> int:
    """A number in [0, 2**32) that differs for different dtypes, orders and limits."""
    return zlib.crc32(f"{dtype} {order} {max_extra_bytes}".encode())


def _needs_messages(arguments: Arguments, use: CommunicatorUse) -> bool:
    """Whether this rank cannot move its part through mailboxes, or moves it faster by messages.

    Large messages are faster if MPI copies them out of the arrays.
    """
    routes, sends, size = arguments.routes, arguments.sends, arguments.itemsize
    if routes.hosts is not None or 2 * len(sends) * (LINE + size) > use.box_bytes:
        return True
    if use.mailboxes is None or not use.mailboxes.mpi_reads_memory:
        return False
    if sum(t.elements for t in sends) * size <= tuning.mailed_bytes:
        return False
    shape = routes.source.local_shape(routes.source_process[arguments.comm.rank])
    source = contiguous_region(shape, np.empty(0, np.uint8), size, arguments.order, "source")
    largest = max(sends, key=lambda t: t.elements)
    return exchange.is_sent_from_array(ByteRanges.of(largest, size, source, arguments.order))


_Copies: TypeAlias = list[Callable[[], None]]


class _Mail:
    """A move through mailboxes, bound to its arrays.

    Ranks pack what they send into their mailboxes, meet, and unpack what is for them from those of
    others; see `redistribution.messages.mailboxes`.

    It takes one round if a box has room for all that any rank sends. Otherwise each transfer is
    split into pieces, of which each round moves one. Sender and receiver compute from the routes
    where a piece lies in the box of the sender.
    """

    def __init__(self, arguments: Arguments, mailboxes: Mailboxes) -> None:
        self._given, self._mailboxes = arguments, mailboxes
        self._bound: dict[tuple[int, int], tuple[_Copies, _Copies]] = {}
        self._outgoing, self._incoming = Rounds(), Rounds()
        size = arguments.itemsize
        if not size:
            return
        elements = arguments.routes.sent_elements()
        receivers = int(np.count_nonzero(elements, axis=1).max())
        # A rank has two boxes.
        room = min(mailboxes.box_bytes, arguments.max_extra_bytes // 2) - receivers * (LINE + size)
        # The part of each transfer that has room in a box.
        part = min(1.0, max(1, room) / max(1, int(elements.sum(axis=1).max()) * size))
        sizes = -(-np.ceil(elements * part).astype(np.int64) * size // LINE) * LINE
        self._starts = np.cumsum(sizes, axis=1) - sizes
        self._source = array_region(arguments.a, "source")
        self._target = array_region(arguments.b, "target")
        rank, order = arguments.comm.rank, arguments.order
        self._outgoing, self._incoming = arguments.routes.rounds(rank, part, order)

    def run(self) -> None:
        """Collective over comm. Pack, meet and unpack, in rounds."""
        mailboxes, number, has_more = self._mailboxes, 0, True
        while has_more:
            half = mailboxes.half
            packing, unpacking = self._bound.get((number, half)) or self._bind(number, half)
            for copy in packing:
                copy()
            number += 1
            has_more = bool(mailboxes.meet(int(number < len(self._outgoing))))
            mailboxes.half = 1 - half
            for copy in unpacking:
                copy()

    def _bind(self, number: int, half: int) -> tuple[_Copies, _Copies]:
        """Bind the copies of a round, before and after this rank meets the others."""
        arguments, rank, size = self._given, self._given.comm.rank, self._given.itemsize

        def of_round(rounds: Rounds) -> tuple[Transfer, ...]:
            return rounds[number] if number < len(rounds) else ()

        def in_box(piece: Transfer, sender: int, receiver: int) -> Region:
            start = self._starts[
                arguments.routes.source_process[sender], arguments.routes.target_process[receiver]
            ]
            message = self._mailboxes.box(sender, half)[start : start + piece.elements * size]
            return message_region(piece, message, size, arguments.order)

        packed = [
            Copy(t, self._source, in_box(t, rank, t.peer))
            for t in of_round(self._outgoing)
            if t.peer != rank
        ]
        unpacked = [
            Copy(t, self._source if t.peer == rank else in_box(t, t.peer, rank), self._target)
            for t in of_round(self._incoming)
            if t.peer != rank or not arguments.is_kept
        ]
        bound = list(bind(size, *packed)), list(bind(size, *unpacked))
        self._bound[number, half] = bound
        return bound


class _Messages:
    """A small move by messages, bound to its arrays and to a buffer for each packed message."""

    def __init__(self, arguments: Arguments) -> None:
        self._comm = arguments.comm
        self._sends: list[tuple[list[Any], int, _Copies]] = []
        self._receives: list[tuple[list[Any], int]] = []
        self._staying: _Copies = []
        self._unpacking: _Copies = []
        if not arguments.itemsize:
            return
        order, size = arguments.order, arguments.itemsize
        source, target = array_region(arguments.a, "source"), array_region(arguments.b, "target")
        for t in arguments.sends:
            message, is_packed = _memory(t, size, contiguous_message(t, size, source, order))
            region = message_region(t, message, size, order)
            copies = list(bind(size, Copy(t, source, region))) if is_packed else []
            self._sends.append(([message, MPI.BYTE], t.peer, copies))
        for t in arguments.receives:
            message, is_packed = _memory(t, size, contiguous_message(t, size, target, order))
            self._receives.append(([message, MPI.BYTE], t.peer))
            if is_packed:
                region = message_region(t, message, size, order)
                self._unpacking += bind(size, Copy(t, region, target))
        self._staying = [
            copy
            for t, array in arguments.copies
            for copy in bind(size, Copy(t, array_region(array, "source"), target))
        ]

    @staticmethod
    def are_small(arguments: Arguments) -> bool:
        """Whether each message of a rank may have a buffer of its own."""
        sizes = [t.elements * arguments.itemsize for t in (*arguments.sends, *arguments.receives)]
        # Other ranks must not split a message that this rank sends or receives as a whole.
        longest = exchange.longest_message(arguments.max_extra_bytes)
        return sum(sizes) <= min(tuning.small_move_bytes, longest)

    def run(self) -> None:
        """Collective over comm. Send, receive and copy."""
        comm, tag = self._comm, TAG
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


def _memory(transfer: Transfer, itemsize: int, in_array: Bytes | None) -> tuple[Bytes, bool]:
    """Memory of a message, and whether the message is packed into it."""
    if in_array is not None:
        return in_array, False
    return np.empty(transfer.elements * itemsize, np.uint8), True
