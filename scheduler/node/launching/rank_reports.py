"""What the ranks of a group on this host report of themselves, through a pipe to the agent."""

from __future__ import annotations

import os
import time
from typing import NamedTuple


class RankFailure(NamedTuple):
    """How a rank failed.

    Attributes
    ----------
    status : wait status of its program, if that has begun.
    refused : error number if its program could not be executed.
    program : its name, then.
    """

    rank: int
    status: int = 0
    refused: int = 0
    program: str = ""


class RankReports:
    """The reports of the ranks of a group, which `rank.py` writes.

    Parameters
    ----------
    size : number of ranks on this host.

    Attributes
    ----------
    begun : process number of the parent of each program that has begun, by rank.
    failure : the rank that failed first.
    ended_at : monotonic time at which the end of the last rank of this host was read; None: some
        have not ended.
    writer : file descriptor that the ranks have to inherit; its number is in their variable
        RESHAPE_REPORT.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self.begun: dict[int, int] = {}
        self.failure: RankFailure | None = None
        self.ended_at: float | None = None
        self._ended: set[int] = set()
        self._text = b""
        self._is_open = True

    def running(self) -> list[int]:
        """Return the process numbers of the parents of the programs that have not ended."""
        return [pid for rank, pid in self.begun.items() if rank not in self._ended]

    def was_inherited(self) -> None:
        """Close the end that the ranks write to; they have inherited it."""
        os.close(self.writer)

    def read(self) -> None:
        """Take note of the reports that have come."""
        while self._is_open:
            try:
                part = os.read(self._reader, 1 << 16)
            except BlockingIOError:
                return
            *lines, self._text = (self._text + part).split(b"\n")
            for line in lines:
                self._note(*line.decode(errors="replace").split(" ", 3))
            if not part:
                self.close()

    def close(self) -> None:
        """Read no more reports."""
        if self._is_open:
            self._is_open = False
            os.close(self._reader)

    def note_end(self, status: int) -> None:
        """Note the wait status of a program whose parent is this process, as rank 0."""
        self.read()
        self._note("0", "ended", str(status))

    def _note(self, rank: str, what: str, number: str, program: str = "") -> None:
        if what == "begun":
            self.begun[int(rank)] = int(number)
            return
        self._ended.add(int(rank))
        if len(self._ended) == self._size:
            self.ended_at = time.monotonic()
        if self.failure is not None:
            return
        if what == "refused":
            program = program if program.isprintable() else repr(program)
            self.failure = RankFailure(int(rank), refused=int(number), program=program)
        elif int(number):
            self.failure = RankFailure(int(rank), int(number))
