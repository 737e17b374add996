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
from reshape.data.ragged import Counts, PackedRagged, Received
from reshape.data.whole import Savable, Saved, gather, load, save, stored_length
from reshape.errors import ReshapeError

#: Cells of records: (n,) or (n, divided axes) integers.
Cells: TypeAlias = Callable[[NDArray[Any]], ArrayLike]


class Particles(PackedRagged):
    """Records of this process, which belong to the cells of an array or are divided evenly.

    Parameters
    ----------
    declaration : its layout is that of the cells.
    cell : returns the cells of records; None: the records are divided evenly, in their order.
    """

    def __init__(
        self, declaration: Declaration, job: Processes, cell: Cells | None, absent: str = ""
    ) -> None:
        super().__init__(declaration, job, {"records": declaration.element_type}, absent)
        self._cell = cell
        self._local: NDArray[Any] | None = None
        self._received: NDArray[Any] | None = None

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
        self._local = given.copy()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the records of this process, so that functions of NumPy take them."""
        return np.array(self.local, dtype, copy=copy)

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
        comm, ordered, counts, why = self.job.comm, self.local, None, ""
        try:
            ordered, counts = self._by_owner(comm.size)
        except Exception as error:  # a function of the program
            why = f"particles {self.name!r} of rank {comm.rank}: {_text(error)}"
        gathered: list[tuple[str, Counts | None]] = comm.allgather((why, counts))
        if why := next((reason for reason, _ in gathered if reason), ""):
            raise ReshapeError(why)
        table = np.array([row for _, row in gathered], np.int64)
        if np.count_nonzero(table) > np.count_nonzero(table.diagonal()):
            plan = Plan(*_layouts(table))
            moved = np.empty(plan.target.local_shape(comm.rank), self.dtype)
            plan.run(comm, ordered, moved)
            self._local = moved

    def gather(self) -> NDArray[Any] | None:
        """Collective over app.comm. Return the records of all ranks on rank 0, and None elsewhere.

        Raises
        ------
        ReshapeError : this process has no records yet, or no longer.
        """
        _, layout, local, order = self.as_saved()
        return gather(self.job.comm, layout, local, order)

    def save(self, path: str | os.PathLike[str], *more: Savable) -> None:
        """Collective over app.comm. Write all records to a file; see `Array.save`.

        Raises
        ------
        ReshapeError : as in `Array.save`.
        """
        save(self.job.comm, [each.as_saved() for each in (self, *more)], path)

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
        load(comm, Saved(self.name, layout, read, "C"), path)
        self._local = read
        try:
            self.migrate()
        except ReshapeError:
            self._local = before
            raise

    def as_saved(self) -> Saved:
        """Collective over app.comm. Return what `save` writes: the records in order of ranks."""
        own = self.local
        ends = tuple(accumulate(self.job.comm.allgather(len(own)), initial=0))
        return Saved(self.name, Cuts(ends[-1:], ends), own, "C")

    def _by_owner(self, size: int) -> tuple[NDArray[Any], Counts]:
        """Collective over app.comm without cells. Records in the order of their owners of `size`.

        Returns
        -------
        records, and (size,) int64 number of those of each owner.

        Raises
        ------
        Exception : of the function of the program; ReshapeError : a cell is none.
        """
        records = self.local
        if self._cell is None:
            before = self.job.comm.allgather(len(records))
            first = sum(before[: self.job.comm.rank])
            edges = np.array(Cuts.even((sum(before),), size).offsets)
            return records, np.diff(np.clip(edges, first, first + len(records))).astype(np.int64)
        if not len(records):
            return records, np.zeros(size, np.int64)
        shape = self.declaration.shape
        axes = [axis for axis in self.declaration.division.cut if axis is not None]
        cells = np.asarray(self._cell(records)).reshape(len(records), -1)
        if cells.shape[1] != len(axes):
            raise ReshapeError(f"its cells have {cells.shape[1]} indices, expected {len(axes)}")
        if cells.dtype.kind not in "iu":
            raise ReshapeError(f"its cells have dtype {cells.dtype}, expected integers")
        extents = np.array([shape[axis] for axis in axes])
        outside = np.flatnonzero(((cells < 0) | (cells >= extents)).any(axis=1))
        if len(outside):
            raise ReshapeError(
                f"record {outside[0]} is in cell {tuple(cells[outside[0]].tolist())}, outside of "
                f"{tuple(extents.tolist())}: wrap its position or remove it"
            )
        where = [np.zeros(len(records), np.int64) for _ in shape]
        for k, axis in enumerate(axes):
            where[axis] = cells[:, k].astype(np.int64)
        owners = self.declaration.layout(size).owners(where)
        counts = np.bincount(owners, minlength=size).astype(np.int64)
        return records[np.argsort(owners, kind="stable")], counts

    # A row of the ragged data is what one process has for one owner.

    def pack(self, size: int) -> tuple[Counts, list[NDArray[Any]]]:
        """Order the records by their owners on `size` processes."""
        records, counts = self._by_owner(size)
        return counts, [records]

    def next_cuts(self, counts: Counts, size: int) -> RaggedCuts:
        """Cuts on `size` processes: each process has what all others have for it."""
        rows = tuple(range(len(counts) + 1))
        entries = (0, *np.cumsum(counts).tolist())
        return RaggedCuts(rows, entries, tuple(range(size)) * (len(counts) // size))

    def next_rows(self, counts: Counts, size: int) -> Cuts:
        """Rows of a checkpoint for each of `size` processes; `restore` moves the records on."""
        return Cuts.by_weight(counts, size)

    def receive(self, parts: Received) -> None:
        """Keep a copy of the received records."""
        self._received = parts[self.values[0].name].copy()

    def restore(self) -> None:
        """Collective over app.comm. Take the records of the parts and migrate them."""
        self._local = self.values[0].local.copy()
        self.migrate()


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
