"""Moves through mailboxes. Importing this starts MPI.

Ranks pack what they send into their mailboxes, meet, and unpack what is for them from those of
others. See `redistribution.messages.mailboxes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from redistribution.copies.copying import LINE, Copy, bind
from redistribution.copies.regions import Region, array_region, message_region
from redistribution.messages.agreement import HAS_MORE, IS_UNREADY, Agreement
from redistribution.messages.arguments import Arguments
from redistribution.messages.mailboxes import Mailboxes
from redistribution.plans.routes import Rounds
from redistribution.plans.transfers import Transfer


class Mail:
    """A move through mailboxes, bound to its arrays.

    It takes one round if a box has room for all that any rank sends. Otherwise each transfer is
    split into pieces, of which each round moves one. Sender and receiver compute from the routes
    where a piece lies in the box of the sender.
    """

    def __init__(self, given: Arguments, mailboxes: Mailboxes, agreement: Agreement) -> None:
        self._given, self._mailboxes, self._agreement = given, mailboxes, agreement
        self._bound: dict[tuple[int, int], _Round] = {}
        self._part, self._outgoing, self._incoming = 1.0, Rounds(), Rounds()
        size = given.itemsize
        if not size:
            return
        elements = given.routes.sent_elements()
        receivers = int(np.count_nonzero(elements, axis=1).max())
        # A rank has two boxes.
        room = min(mailboxes.box_bytes, given.max_extra_bytes // 2) - receivers * (LINE + size)
        # The part of each transfer that has room in a box.
        self._part = min(1.0, max(1, room) / max(1, int(elements.sum(axis=1).max()) * size))
        sizes = -(-np.ceil(elements * self._part).astype(np.int64) * size // LINE) * LINE
        self._starts = np.cumsum(sizes, axis=1) - sizes
        self._source = array_region(given.a, "source")
        self._target = array_region(given.b, "target")
        rounds = given.routes.rounds(given.comm.rank, self._part, given.order)
        self._outgoing, self._incoming = rounds

    @property
    def is_small(self) -> bool:
        """Whether the move takes one round."""
        return self._part == 1.0

    def run(self) -> None:
        """Collective over comm. Pack, meet and unpack, in rounds."""
        mailboxes, number, flags = self._mailboxes, 0, HAS_MORE
        while flags & HAS_MORE:
            half = mailboxes.half
            this = self._bound.get((number, half)) or self._bind(number, half)
            for copy in this.packing:
                copy()
            flags = IS_UNREADY
            # A rank that has just prepared the move met the others before it has packed.
            while flags & IS_UNREADY:
                flags = self._agreement.check(this.flags)
            mailboxes.half = 1 - half
            for copy in this.unpacking:
                copy()
            number += 1

    def _bind(self, number: int, half: int) -> _Round:
        """Bind the copies of a round."""
        given, rank, size = self._given, self._given.comm.rank, self._given.itemsize

        def of_round(rounds: Rounds) -> tuple[Transfer, ...]:
            return rounds[number] if number < len(rounds) else ()

        def in_box(piece: Transfer, sender: int, receiver: int) -> Region:
            start = self._starts[
                given.routes.source_process[sender], given.routes.target_process[receiver]
            ]
            message = self._mailboxes.box(sender, half)[start : start + piece.elements * size]
            return message_region(piece, message, size, given.order)

        packed = [
            Copy(t, self._source, in_box(t, rank, t.peer))
            for t in of_round(self._outgoing)
            if t.peer != rank
        ]
        unpacked = [
            Copy(t, self._source if t.peer == rank else in_box(t, t.peer, rank), self._target)
            for t in of_round(self._incoming)
            if t.peer != rank or not given.is_kept
        ]
        flags = HAS_MORE if number + 1 < len(self._outgoing) else 0
        bound = _Round(list(bind(size, *packed)), list(bind(size, *unpacked)), flags)
        self._bound[number, half] = bound
        return bound


class _Round(NamedTuple):
    """What a rank does in one round, before and after it meets the others.

    Attributes
    ----------
    flags : whether it takes part in further rounds.
    """

    packing: list[Callable[[], None]]
    unpacking: list[Callable[[], None]]
    flags: int
