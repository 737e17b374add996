"""Particles: records of which each process has any number, those of the cells that it owns.

In an iteration the records of a process are one plain array, which the program may replace by a
longer or shorter one. `Particles.migrate` sends each record to the process that has its cell. A
resize does the same with the layout of the new size, so that records that have left their cells
since need no second move. In either case a process orders its records by their next owner: the
records of one process for another one are an interval of all records, and a `Dealt` layout says who
owns which intervals.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from redistribution import Cuts, Dealt, Plan
from reshape.data.arrays import Processes
from reshape.data.declarations import Declaration, RaggedCuts, declare, divide
from reshape.data.ragged import Counts, Fill, PackedRagged, Received
from reshape.data.segments import Segment
from reshape.data.whole import Savable, Saved, load, stored_length
from reshape.errors import ReshapeError

#: Cells of records: (n,) or (n, divided axes) integers.
Cells: TypeAlias = Callable[[NDArray[Any]], ArrayLike]
#: Places of records in a new order; None: they are in order.
Order: TypeAlias = NDArray[np.int64] | None


class Particles(PackedRagged, Savable):
    """Records of this process, which belong to the cells of an array or are divided evenly.

    Parameters
    ----------
    declaration : its layout is that of the cells.
    cell : returns the cells of records; None: the records are divided evenly, in their order.
    """

    def __init__(self, declaration: Declaration, job: Processes, cell: Cells | None) -> None:
        super().__init__(declaration, job, {"records": declaration.element_type})
        self._cell = cell
        self._local: NDArray[Any] | None = None
        self._received: NDArray[Any] | None = None
        self._segment: Segment | None = (
            None  # the memory of the records, if a resize has brought it
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type of a record."""
        return self.declaration.element_type

    @property
    def local(self) -> NDArray[Any]:
        """Records of this process, (n,) `dtype`; another array after `migrate` and each resize.

        Raises
        ------
        ReshapeError : this process has no records yet, or no longer.
        """
        if self._local is None:
            raise ReshapeError(self._absent)
        return self._local

    @local.setter
    def local(self, value: ArrayLike) -> None:
        """Replace the records of this process by any number of others, which are copied.

        Raises
        ------
        ReshapeError : it is no row of such records.
        """
        own = self.local
        if value is own:  # after an operation in place
            return
        given = np.asarray(value)
        if given.ndim != 1 or given.dtype != self.dtype:
            raise ReshapeError(
                f"particles {self.name!r}: its local part can be set to an array of shape (n,) and "
                f"dtype {self.dtype}, got shape {given.shape} and dtype {given.dtype}"
            )
        self._replace(_raw(given).copy().view(self.dtype))

    def begin(self) -> None:
        """Let this process have no records."""
        self._local = np.empty(0, self.dtype)

    def migrate(self) -> None:
        """Collective over app.comm. Send each record to the process that has its cell.

        Without cells, divide the records evenly. The records of a process come in the order of the
        ranks that had them.

        Raises
        ------
        ReshapeError : on every rank: a record has no cell of the array; its process is named.
        """
        comm, order, counts, why = self.job.comm, None, None, ""
        try:
            order, counts = self._by_owner(comm.size)
        except Exception as error:  # a function of the program
            why = f"particles {self.name!r} of rank {comm.rank}: {_text(error)}"
        gathered: list[tuple[str, Counts | None]] = comm.allgather((why, counts))
        if why := next((reason for reason, _ in gathered if reason), ""):
            raise ReshapeError(why)
        table = np.array([row for _, row in gathered], np.int64)
        if np.count_nonzero(table) > np.count_nonzero(table.diagonal()):
            plan = Plan(*_layouts(table))
            moved = np.empty(plan.target.local_shape(comm.rank), self.dtype)
            ordered = self.local
            if order is not None:
                _put_in_order(self.local, order, ordered := np.empty_like(self.local))
            plan.run(comm, ordered, moved)
            self._replace(moved)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Collective over app.comm. Take all records from a file; see `Array.load`.

        Each record comes to the process that has its cell; without cells they are divided evenly.

        Raises
        ------
        ReshapeError : as in `Array.load` and `migrate`. The records are as they were.
        """
        comm, before = self.job.comm, self.local
        layout = Cuts.even((stored_length(comm, self.name, path),), comm.size)
        read = np.empty(layout.local_shape(comm.rank), self.dtype)
        load(Saved(comm, self.name, layout, read, "C"), path)
        self._local = read
        try:
            self.migrate()
        except ReshapeError:
            self._local = before
            raise
        self._replace(self._local)

    def as_saved(self) -> Saved:
        """Collective over app.comm. Return what `save` writes: the records in order of ranks."""
        own = self.local
        ends = tuple(accumulate(self.job.comm.allgather(len(own)), initial=0))
        return Saved(self.job.comm, self.name, Cuts(ends[-1:], ends), own, "C")

    def _replace(self, records: NDArray[Any]) -> None:
        """Make an array of private memory the records of this process."""
        self._local = records
        if self._segment is not None:
            self.job.spares.keep(self._segment)
            self._segment = None

    def _by_owner(self, size: int) -> tuple[Order, Counts]:
        """Collective over app.comm without cells. Order the records by their owners of `size`.

        Returns
        -------
        (records,) places of the records in this order, None if they are in order; and (size,) int64
        number of records of each owner.

        Raises
        ------
        Exception : of the function of the program; ReshapeError : a cell is none.
        """
        records = self.local
        if self._cell is None:
            before = self.job.comm.allgather(len(records))
            first = sum(before[: self.job.comm.rank])
            edges = np.array(Cuts.even((sum(before),), size).offsets)
            return None, np.diff(np.clip(edges, first, first + len(records))).astype(np.int64)
        if not len(records):
            return None, np.zeros(size, np.int64)
        shape = self.declaration.shape
        axes = [axis for axis in self.declaration.division.cut if axis is not None]
        cells = np.asarray(self._cell(records)).reshape(len(records), -1)
        if cells.shape[1] != len(axes):
            raise ReshapeError(f"its cells have {cells.shape[1]} indices, expected {len(axes)}")
        if cells.dtype.kind not in "iu":
            raise ReshapeError(f"its cells have dtype {cells.dtype}, expected integers")
        extents = [shape[axis] for axis in axes]
        if any(
            along.min() < 0 or along.max() >= n for along, n in zip(cells.T, extents, strict=True)
        ):
            outside = np.flatnonzero(((cells < 0) | (cells >= extents)).any(axis=1))
            raise ReshapeError(
                f"record {outside[0]} is in cell {tuple(cells[outside[0]].tolist())}, outside of "
                f"{tuple(extents)}: wrap its position or remove it"
            )
        where = [np.broadcast_to(np.int64(0), len(records))] * len(shape)
        for k, axis in enumerate(axes):
            where[axis] = cells[:, k].astype(np.int64)
        owners = self.declaration.layout(size).owners(where)
        counts = np.bincount(owners, minlength=size).astype(np.int64)
        short = owners.astype(np.min_scalar_type(size - 1))  # is sorted by radix
        is_in_order = bool((short[1:] >= short[:-1]).all())
        return None if is_in_order else np.argsort(short, kind="stable"), counts

    # A row of the ragged data is what one process has for one owner.

    def pack(self, size: int) -> tuple[Counts, Fill]:
        """Order the records by their owners on `size` processes."""
        order, counts = self._by_owner(size)
        return counts, lambda entries: _put_in_order(self.local, order, entries)

    def expected_bytes(self, size: int) -> list[int]:
        """Bytes of the records that are packed, and of an even share; an eighth more of either."""
        if self._local is None:
            return []
        packed = self._local.nbytes * 9 // 8
        return [packed, packed * self.job.comm.size // size]

    def next_cuts(self, counts: Counts, size: int) -> RaggedCuts:
        """Cuts on `size` processes: each process has what all others have for it."""
        rows = tuple(range(len(counts) + 1))
        entries = (0, *np.cumsum(counts).tolist())
        return RaggedCuts(rows, entries, tuple(range(size)) * (len(counts) // size))

    def next_rows(self, counts: Counts, size: int) -> Cuts:
        """Rows of a checkpoint for each of `size` processes; `restore` moves the records on."""
        return Cuts.by_weight(counts, size)

    def receive(self, parts: Received) -> None:
        """Take the received records."""
        self._received = parts[self.values[0].name]

    def commit(self) -> list[Segment]:
        """Make the received records those of this process, where they are; see `Ragged.commit`."""
        previous, self._segment = self._segment, self.values[0].withdraw(self._absent)
        if self._segment is not None:
            self.job.spares.hide(self._segment)  # a restart takes the records that are packed
        return [*super().commit(), *([] if previous is None else [previous])]

    def vacate(self, why: str) -> None:
        """Drop the records; any later access raises an error with this reason."""
        super().vacate(why)
        if self._segment is not None:
            self._segment.discard()
            self._segment = None

    def restore(self) -> None:
        """Collective over app.comm. Take the records of the parts and migrate them."""
        self._local = _raw(self.values[0].local).copy().view(self.dtype)
        self.migrate()


def _raw(records: NDArray[Any]) -> NDArray[Any]:
    """Records as bytes each: NumPy copies structured ones field by field, many times slower."""
    return records.view(f"V{records.itemsize}") if records.dtype.names else records


def _put_in_order(records: NDArray[Any], order: Order, out: NDArray[Any]) -> None:
    """Copy the records into `out` in this order."""
    if order is None:
        np.copyto(_raw(out), _raw(records))
    else:
        np.take(_raw(records), order, out=_raw(out), mode="clip")  # "raise" would copy once more


def declare_particles(
    name: str, dtype: DTypeLike, like: Declaration | None, cell: Cells | None
) -> Declaration:
    """Check the declaration of particles; parameters as of `Registrations.particles`.

    Raises
    ------
    ReshapeError : an error of `declare` or `divide`, `like` has no cells that are known before a
        move, or only one of `like` and `cell` is given.
    """
    if (like is None) != (cell is None):
        raise ReshapeError(
            f"particles {name!r}: give like, an array with the cells, together with cell, a "
            "function that returns the cells of records; or neither"
        )
    if like is None:
        return declare(name, "particles", (0,), (), dtype, "C")
    if like.kind not in ("blocks", "rows") or like.by:
        raise ReshapeError(
            f"particles {name!r}, like={like.name}: {like} has no cells: expected an array of "
            "app.blocks or app.rows"
        )
    division = divide(name, "blocks", like.shape, None, None, like)
    return declare(name, "particles", like.shape, (), dtype, "C", division)


def _layouts(counts: Counts) -> tuple[Cuts, Dealt]:
    """Layouts of records before and after a move.

    Parameters
    ----------
    counts : (processes before, processes after) int64, number of records from each to each.
    """
    senders, owners = np.nonzero(counts)  # most processes have records for a few others only
    offsets = (0, *np.cumsum(counts[senders, owners]).tolist())
    ends = (0, *np.cumsum(counts.sum(axis=1)).tolist())
    shape = offsets[-1:]
    return Cuts(shape, ends), Dealt(shape, offsets, tuple(owners.tolist()), counts.shape[1])


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, ReshapeError) else f"{type(error).__name__}: {error}"
