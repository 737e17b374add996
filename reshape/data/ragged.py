"""Registered data whose rows have different lengths: sparse matrices, lists of work items.

A ragged array consists of plain arrays: the number of entries of each row, and one or more arrays
of all entries, row after row. These parts are allocated, moved, verified and restarted like any
other registered array (`reshape.resizing.move`). The only difference is that their cuts depend on
the data, so that the processes have to exchange them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from redistribution import Cuts
from reshape.data.arrays import Array, Processes, Registered
from reshape.data.declarations import Declaration, RaggedCuts, element_text
from reshape.data.segments import Segment
from reshape.errors import ReshapeError

Counts: TypeAlias = NDArray[np.int64]
Received: TypeAlias = Mapping[str, NDArray[Any]]
#: Writes the entries of a process into an array.
Fill: TypeAlias = Callable[[NDArray[Any]], None]


class Ragged(Registered):
    """Base of sparse matrices and lists of items.

    Parameters
    ----------
    declaration : declaration in the program.
    job : the processes that hold it.
    entries : name and dtype of the arrays that hold the entries.

    Attributes
    ----------
    counts : (rows,) int64, entries in each row.
    values : (entries,) arrays of the entries, row after row.
    followers : names of arrays that are laid out like this one.
    """

    def __init__(
        self,
        declaration: Declaration,
        job: Processes,
        entries: Mapping[str, DTypeLike],
    ) -> None:
        super().__init__(declaration, job)
        name = declaration.name
        rows = Declaration(f"{name}.counts", "rows", (0,), (0,), "<i8", "C", name)
        self.counts = Array(rows, job)
        texts = {f"{name}.{k}": element_text(name, dtype) for k, dtype in entries.items()}
        self.values = tuple(
            Array(Declaration(part, "entries", (0,), (), text, "C", name), job)
            for part, text in texts.items()
        )
        self.followers: list[str] = []

    @property
    def parts(self) -> tuple[Array, ...]:
        """The plain arrays that hold it."""
        return (self.counts, *self.values)

    @property
    def cuts(self) -> RaggedCuts:
        """Where the parts of each process begin at the present size."""
        rows, entries = self.counts.layout, self.values[0].layout
        assert isinstance(rows, Cuts)
        assert isinstance(entries, Cuts)
        return RaggedCuts(rows.offsets, entries.offsets)

    def allocate(self, cuts: RaggedCuts) -> None:
        """Give the parts new memory, with any contents.

        Raises
        ------
        MemoryError : there is no room for them.
        """
        memory, size = self.job.memory, len(cuts.rows) - 1
        for part in self.parts:
            part.vacate(self._absent)  # first, for the new file has the old one's name
            layout = part.declaration.layout(size, {self.name: cuts})
            part.place(layout, self.job.spares.segment(memory, part.declaration, layout))

    def next_rows(self, counts: Counts, size: int) -> Cuts:
        """Rows of each of `size` processes, given the entries of all rows."""
        return Cuts.even(counts.shape, size)

    def next_cuts(self, counts: Counts, size: int) -> RaggedCuts:
        """Cuts on `size` processes, given the entries of all rows."""
        return cuts_at(self.next_rows(counts, size).offsets, counts)

    # Steps of a resize besides moving the parts; see `reshape.resizing.transaction`.

    def pack(self, size: int) -> tuple[Counts, Fill] | None:
        """Return counts and entries of data outside of the parts, for a move to `size` processes.

        None if there is none. Collective over the processes if it is the same for all of them.
        """
        return None

    def expected_bytes(self, size: int) -> list[int]:
        """Bytes of each large part of memory that a resize to `size` processes is likely to need.

        Empty if that is not known.
        """
        return []

    def receive(self, parts: Received) -> None:
        """Decode the received parts, by name, before the commit. It may raise any exception."""

    def restore(self) -> None:
        """Decode the parts that a restart has opened, and keep them."""

    def commit(self) -> list[Segment]:
        """Make the received data the data of this process; return the segments it needs no more."""
        return []

    def roll_back(self) -> None:
        """Return to the data before `pack`."""

    def vacate(self, why: str) -> None:
        """Release the memory; any later access raises an error with this reason."""
        self._absent = why
        for part in self.parts:
            part.vacate(why)


class PackedRagged(Ragged):
    """Data of a process outside of its parts, which hold it only from `pack` to the commit."""

    _local: Any = None
    _received: Any = None

    def commit(self) -> list[Segment]:
        """Make the received data the data of this process; return the memory of the parts."""
        self._local, self._received = self._received, None
        return self._withdraw_parts()

    def roll_back(self) -> None:
        """Drop the packed data and keep the data of this process."""
        self._received = None
        for segment in self._withdraw_parts():
            self.job.spares.keep(segment)

    def _withdraw_parts(self) -> list[Segment]:
        segments = [part.withdraw(self._absent) for part in self.parts]
        return [segment for segment in segments if segment is not None]

    def vacate(self, why: str) -> None:
        """Drop the data; any later access raises an error with this reason."""
        super().vacate(why)
        self._local = None


class Items(PackedRagged):
    """A list of work items in each process, which each resize distributes evenly.

    Attributes
    ----------
    given : all items that the program has given, pickled one by one, until the first loop begins;
        empty if they cannot be pickled.
    """

    def __init__(self, declaration: Declaration, job: Processes) -> None:
        super().__init__(declaration, job, {"bytes": np.uint8})
        self._local: list[Any] | None = None
        self._received: list[Any] | None = None
        self.given: list[bytes] = []

    @property
    def local(self) -> list[Any]:
        """Items of this process, which the program may change; another list after each resize.

        Raises
        ------
        ReshapeError : this process has no items yet, or no longer.
        """
        if self._local is None:
            raise ReshapeError(self._absent)
        return self._local

    @local.setter
    def local(self, items: Iterable[Any]) -> None:
        """Replace the items of this process; so ``t.local += more`` works."""
        self.local[:] = items

    def gather(self) -> list[Any] | None:
        """Collective over app.comm. Return the items of all ranks on rank 0, and None elsewhere.

        Raises
        ------
        ReshapeError : this process has no items yet, or no longer.
        """
        lists = self.job.comm.gather(self.local, root=0)
        return None if lists is None else [item for items in lists for item in items]

    def begin(self, items: Sequence[Any]) -> None:
        """Take the even share of this process of all items."""
        rank, cuts = self.job.comm.rank, Cuts.even((len(items),), self.job.comm.size).offsets
        self._local = list(items[cuts[rank] : cuts[rank + 1]])
        with suppress(Exception):  # runs code of the user's classes; a resize names such an item
            self.given = _pickled(items)

    def pack(self, size: int) -> tuple[Counts, Fill]:
        """Return the bytes of each item, and all pickled items one after another."""
        pickled = _pickled(self.local)
        counts = np.array([len(data) for data in pickled], np.int64)
        data = np.frombuffer(b"".join(pickled), np.uint8)
        return counts, lambda entries: np.copyto(entries, data)

    def receive(self, parts: Received) -> None:
        """Unpickle the received items."""
        counts, stream = (parts[part.name] for part in self.parts)
        data, ends = stream.tobytes(), accumulate(counts.tolist())
        self._received = [
            pickle.loads(data[end - length : end])
            for end, length in zip(ends, counts.tolist(), strict=True)
        ]

    def restore(self) -> None:
        """Unpickle the items of the parts."""
        self.receive({part.name: part.local for part in self.parts})
        self._local = self._received


def _pickled(items: Iterable[Any]) -> list[bytes]:
    return [pickle.dumps(item, pickle.HIGHEST_PROTOCOL) for item in items]


def cuts_of_sizes(rows: Sequence[int], entries: Sequence[int]) -> RaggedCuts:
    """Return the cuts, given the numbers of rows and entries of each process."""
    return RaggedCuts(tuple(accumulate(rows, initial=0)), tuple(accumulate(entries, initial=0)))


def cuts_at(rows: Sequence[int], counts: Counts) -> RaggedCuts:
    """Return the cuts at these rows, given the entries of all rows."""
    offsets = np.concatenate(([0], np.cumsum(counts)))
    return RaggedCuts(tuple(rows), tuple(offsets[list(rows)].tolist()))
