"""Sparse matrices in row blocks, as registered data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from redistribution import Cuts, Plan
from reshape.data.arrays import Processes
from reshape.data.declarations import Declaration, declare
from reshape.data.ragged import Counts, Ragged, cuts_at, cuts_of_sizes
from reshape.data.segments import Segment
from reshape.errors import ReshapeError

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class Csr(Ragged):
    """A sparse matrix in row blocks: the rows of this process, and their layout.

    Parameters
    ----------
    declaration, job : as in `Array`.
    """

    def __init__(self, declaration: Declaration, job: Processes) -> None:
        columns = declaration.shape[1]
        index_type = np.int32 if columns <= np.iinfo(np.int32).max else np.int64
        entries = {"indices": index_type, "data": declaration.element_type}
        super().__init__(declaration, job, entries)
        self._built: csr_array | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Global (rows, columns)."""
        return self.declaration.shape

    @property
    def layout(self) -> Cuts:
        """Layout of the rows over the ranks of `app.comm` at the present size.

        Raises
        ------
        ReshapeError : this process has no part of it yet, or no longer.
        """
        layout = self.counts.layout
        assert isinstance(layout, Cuts)
        return layout

    @property
    def local(self) -> csr_array:
        """Rows of this rank with global column indices, scipy.sparse.csr_array (own rows, columns).

        The values in its `data` may be changed; resizes keep them. The structure is fixed.
        After a resize this is another matrix, and the previous one is out of date.

        Raises
        ------
        ReshapeError : this process has no part of it yet, or no longer; or the program has changed
            the structure.
        """
        counts, (indices, data) = self.counts.local, (part.local for part in self.values)
        self._take_values()
        if self._built is None:
            self._built = _matrix(self.shape[1], counts, indices, data)
        return self._built

    @local.setter
    def local(self, value: Any) -> None:
        """Copy the entries of a matrix of the same structure; so ``A.local *= 2`` works.

        Raises
        ------
        ReshapeError : it is no such matrix.
        """
        own = self.local
        if value is own:  # after an operation in place
            return
        if not (
            isinstance(value, type(own))
            and value.shape == own.shape
            and np.array_equal(value.indptr, own.indptr)
            and np.array_equal(value.indices, own.indices)
        ):
            raise ReshapeError(
                f"csr {self.name!r}: its local part can be set only to a csr_array with entries at "
                "the same places: change the values in local.data"
            )
        self.values[1].local = value.data

    def _take_values(self) -> None:
        """Take the values of an array that the program has put in the place of ``local.data``.

        SciPy does the same where an entry is added or removed.

        Raises
        ------
        ReshapeError : the program has changed the structure.
        """
        built, (indices, data) = self._built, (part.local for part in self.values)
        if built is None or (built.indices is indices and built.data is data):
            return
        if not (
            np.array_equal(np.diff(built.indptr), self.counts.local)
            and np.array_equal(built.indices, indices)
            and built.data.shape == data.shape
        ):
            raise ReshapeError(
                f"csr {self.name!r}: the program has added or removed entries of its local part, "
                "whose structure is fixed by assemble(): store zeros where values come later, and "
                "change the values in local.data"
            )
        self.values[1].local = built.data
        built.indices, built.data = indices, data

    def gather(self) -> csr_array | None:
        """Collective over app.comm. Return the whole matrix on rank 0, and None elsewhere.

        Raises
        ------
        ReshapeError : on every rank: rank 0 has no memory for it. Also if this process has no part
            of it yet, or no longer; or the program has changed the structure.
        """
        self._take_values()
        counts, indices, data = (part.gather() for part in self.parts)
        if counts is None or indices is None or data is None:
            return None
        return _matrix(self.shape[1], counts, indices, data)

    def assemble(self, block: Any) -> None:
        """Collective over app.comm. Fill the matrix, in a fresh start.

        Parameters
        ----------
        block : a SciPy or NumPy matrix of consecutive rows, with all columns; None for no rows.
            Rank 0 passes the first rows, rank 1 those that follow, and so on, any number each. The
            rows are distributed as declared in `Application.csr`; the structure is then fixed.

        Raises
        ------
        ReshapeError : on every rank: the blocks do not form the matrix, an array is already laid
            out like it, or this process joins a running job.
        """
        comm = self.job.comm
        _ = self.layout  # raises the error of a process that joins
        if self.followers:
            raise ReshapeError(
                f"csr {self.name!r}: fill it before arrays are laid out like it, as "
                f"{', '.join(self.followers)}"
            )
        own, cuts, counts = _checked(comm, self, block)
        before, after = cuts_at(cuts, counts), self.next_cuts(counts, comm.size)
        total = before.entries[-1:]
        plan = Plan(Cuts(total, before.entries), Cuts(total, after.entries))
        self._built = None
        self.allocate(after)
        self.counts.local[:] = 0  # the matrix is empty until its entries have arrived
        for part, values in zip(self.values, (own.indices, own.data), strict=True):
            entries = values[: own.indptr[-1]]  # of a matrix in longer arrays
            plan.run(comm, entries.astype(part.dtype, copy=False), part.local)
        self.counts.local = counts[slice(*after.rows[comm.rank : comm.rank + 2])]

    def pack(self, size: int) -> None:
        """Take the values of the program; see `Ragged.pack`."""
        self._take_values()

    def next_rows(self, counts: Counts, size: int) -> Cuts:
        """Rows of each process: equal numbers of rows, or of entries."""
        by_entries = bool(self.declaration.detail[0]) and counts.any()
        return Cuts.by_weight(counts, size) if by_entries else super().next_rows(counts, size)

    def commit(self) -> list[Segment]:
        """Make the received data current; see `Ragged.commit`."""
        self._built = None
        return []

    def vacate(self, why: str) -> None:
        """Release the memory; any later access raises an error with this reason."""
        super().vacate(why)
        self._built = None


def _matrix(columns: int, counts: Counts, indices: NDArray[Any], data: NDArray[Any]) -> csr_array:
    """Matrix of these entries, without copies, given the entries in each row."""
    from scipy.sparse import csr_array

    indptr = np.concatenate(([0], np.cumsum(counts)))
    if indptr[-1] <= np.iinfo(indices.dtype).max:
        indptr = indptr.astype(indices.dtype)  # otherwise SciPy would copy the indices
    return csr_array((data, indices, indptr), (len(counts), columns), copy=False)


def _checked(
    comm: MPI.Intracomm, matrix: Csr, block: Any
) -> tuple[csr_array, tuple[int, ...], Counts]:
    """Collective over comm. Return the block as CSR, cuts of all blocks, and entries per row."""
    from scipy.sparse import csr_array

    rows, columns = matrix.shape
    own, why = csr_array((0, columns), dtype=matrix.declaration.element_type), ""
    try:
        if block is not None:
            own = csr_array(block, dtype=matrix.declaration.element_type)
        if own.shape[1] != columns:
            why = f"the block of rank {comm.rank} has {own.shape[1]} columns, expected {columns}"
    except (TypeError, ValueError) as error:
        why = (
            f"the block of rank {comm.rank} is not a matrix of {matrix.declaration.dtype}: {error}"
        )
    blocks = comm.allgather((why, own.shape[0], np.diff(own.indptr).astype(np.int64)))
    cuts = cuts_of_sizes([height for _, height, _ in blocks], []).rows
    why = next((reason for reason, _, _ in blocks if reason), "")
    if not why and cuts[-1] != rows:
        why = f"the blocks have {cuts[-1]} rows together, expected {rows}"
    if why:
        raise ReshapeError(f"csr {matrix.name!r}: {why}")
    return own, cuts, np.concatenate([each for _, _, each in blocks])


def declare_csr(name: str, shape: Sequence[int], dtype: DTypeLike, balance: str) -> Declaration:
    """Check the declaration of a sparse matrix.

    Raises
    ------
    ReshapeError : an error of `declare`, not two extents, an unknown balance, or an element type
        that SciPy does not support.
    """
    if len(shape) != 2:
        raise ReshapeError(f"csr {name!r}: shape must be (rows, columns), got {tuple(shape)}")
    if balance not in ("rows", "entries"):
        raise ReshapeError(f"csr {name!r}: balance must be 'rows' or 'entries', got {balance!r}")
    declaration = declare(name, "csr", shape, (int(balance == "entries"),), dtype, "C")
    element = declaration.element_type
    if element.kind not in "biufc" or element == np.float16 or not element.isnative:
        raise ReshapeError(
            f"csr {name!r} has dtype {element}, which SciPy's matrices cannot have: use numbers of "
            "the byte order of this machine, no float16"
        )
    return declaration
