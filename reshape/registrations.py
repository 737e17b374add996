"""The part of the application object that registers data, which then follows resizes.

The first data of an array are zeros, or the saved data of a restart. In a process that joins a
running job, arrays have no data until the move of its first resize.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike, DTypeLike

from redistribution import Cuts
from redistribution.layout import MemoryOrder
from reshape.data import segments
from reshape.data.arrays import Array
from reshape.data.declarations import (
    AllCuts,
    Declaration,
    RaggedCuts,
    declare,
    declare_cyclic,
    divide,
)
from reshape.data.job_context import JobContext
from reshape.data.particles import Cells, Particles, declare_particles
from reshape.data.ragged import Items, Ragged
from reshape.data.sparse import Csr, declare_csr
from reshape.data.stencils import BlockArray, declare_blocks
from reshape.data.streams import ItemStreams, RankStream, Streams, StreamStates, declare_streams
from reshape.errors import ReshapeError
from reshape.resizing.rank_order import restore_ranks
from reshape.resizing.restart_point import RestartPoint, SavedState
from reshape.resizing.transaction import LEFT, restarted
from reshape.wire.identity import Role

if TYPE_CHECKING:
    from reshape.checkpoints.manifest import SavedCheckpoint

_Array = TypeVar("_Array", bound=Array)
_NOT_YET = (
    "{} {!r} has no data yet in this process, which joins a running job and receives its part in "
    "app.iterations(): put the code that fills it below 'if app.is_fresh_start:', and code that "
    "uses it into the loop"
)


class Registrations:
    """Base of `reshape.app.Application`: the communicator of the job, and its registered data."""

    def __init__(self) -> None:
        self._is_fresh_start = True
        self._job: JobContext | None = None
        self._role: Role = "first"  # that of the group of this process
        self._saved: RestartPoint | SavedCheckpoint | None = None  # what the program restarts from
        self._loops = 0  # calls of `iterations`; the first one ends the registrations

    def _here(self) -> JobContext:
        if self._job is None:
            raise ReshapeError("use the application as 'with reshape.application() as app:'")
        return self._job

    @property
    def comm(self) -> MPI.Intracomm:
        """Current communicator of the job; read it again in each iteration.

        A resize frees the previous one, whose use then raises an MPI error. In a joining process it
        contains only the joining processes until `iterations`.

        Raises
        ------
        ReshapeError : this process has left the job, or the block is over.
        """
        job = self._here()
        if job.comm == MPI.COMM_NULL:
            over = "the block 'with reshape.application()' is over"
            raise ReshapeError(f"app.comm: {over if job.group in job.groups else LEFT}")
        return job.comm

    def block_cyclic(
        self,
        name: str,
        shape: Sequence[int],
        block: Sequence[int] | None = None,
        dtype: DTypeLike = np.float64,
        order: MemoryOrder = "C",
        *,
        cut: Sequence[int | None] | None = None,
        grid: Sequence[int] | None = None,
        like: Array | None = None,
    ) -> Array:
        """Register an n-dimensional array in block-cyclic layout over a process grid.

        Parameters
        ----------
        name : 1 to 64 letters, digits, '_' and '-'; unique in the program.
        shape : global extents.
        block : extents of a block, one for each axis that is divided, in the order of `cut`;
            those of `like` if None.
        dtype : any type of NumPy with elements of fixed size, structured ones included. An element
            cannot be an array (a sub-array type), only its fields can.
        order : memory order of the local part, "C" or "F".
        cut, grid, like : as in `blocks`; `like` is another block-cyclic array.

        Returns
        -------
        Array whose `local` contains the blocks of this rank, zeros at first. The process grid is
        that of `redistribution.balanced_grid` with ascending dimensions: (size,) for one axis, the
        most square one for two.

        Raises
        ------
        ReshapeError : the name is taken, `iterations` has begun, or a value is out of range.
        """
        declaration = declare_cyclic(
            name, shape, block, dtype, order, cut, grid, _declaration(name, like)
        )
        return self._register(Array(declaration, self._here()))

    def blocks(
        self,
        name: str,
        shape: Sequence[int],
        halo: int | Sequence[int] = 1,
        periodic: bool | Sequence[bool] = False,
        dtype: DTypeLike = np.float64,
        order: MemoryOrder = "C",
        *,
        cut: Sequence[int | None] | None = None,
        grid: Sequence[int] | None = None,
        like: Array | Csr | None = None,
    ) -> BlockArray:
        """Register an n-dimensional array in one block for each process of a grid, for stencils.

        The process grid is that of MPI_Dims_create (`redistribution.balanced_grid`), and processes
        are numbered as by MPI_Cart_create. `BlockArray.exchange` exchanges halos, and
        `BlockArray.neighbours` names the ranks around a block.

        Parameters
        ----------
        shape : global extents.
        halo : points around a block that the stencil reads, for all axes that are divided, or one
            value for each axis.
        periodic : whether the first and the last point of an axis are neighbours; likewise.
        cut : the axes that are divided, one for each dimension of the process grid; other axes are
            whole on every process. None in the place of an axis: the processes along that dimension
            hold copies, which the program keeps equal. By default all axes are divided.
        grid : number of processes along each dimension of the process grid, 0 for those that are
            chosen at each size. The program names the sizes that form such a grid by its topology.
        like : array whose points are divided in the same way: over the same grid, at the same
            places. An axis may have one point more or less at its end; a further point belongs to
            the last process that has any. The axes `cut` are divided as those of `like` that are
            divided, in their order; by default they are the same axes.

        Raises
        ------
        ReshapeError : as in `block_cyclic`.
        """
        division = divide(name, "blocks", shape, cut, grid, _declaration(name, like))
        declaration = declare_blocks(name, shape, halo, periodic, dtype, order, division)
        return self._register(BlockArray(declaration, self._here()))

    def rows(
        self,
        name: str,
        shape: Sequence[int],
        axis: int = 0,
        dtype: DTypeLike = np.float64,
        order: MemoryOrder = "C",
        like: Array | Csr | None = None,
    ) -> Array:
        """Register an array cut along one axis, by default its rows, into even contiguous parts.

        The program exchanges halos itself; `Array.neighbours` returns the ranks to exchange them
        with. The other parameters and the errors are those of `block_cyclic`.

        Parameters
        ----------
        axis : the axis that is cut.
        like : matrix or array that is divided along one axis; `axis` is cut as that axis is, at
            every size. It may have one index more or less at its end; a further one belongs to the
            last process that has any.
        """
        declared = _declaration(name, like)
        cut = None if declared is None else (axis,)
        division = divide(name, "rows", shape, cut, None, declared)._replace(cut=(), grid=())
        declaration = declare(name, "rows", shape, (axis,), dtype, order, division)
        return self._register(Array(declaration, self._here()))

    def replicated(self, name: str, value: ArrayLike) -> Array:
        """Register an array that every process has a full copy of.

        Parameters
        ----------
        value : shape, dtype, and the contents at a fresh start.

        Raises
        ------
        ReshapeError : as in `block_cyclic`.
        """
        if isinstance(value, np.ma.MaskedArray):
            raise ReshapeError(
                f"array {name!r} has a mask, which registered arrays do not keep: register its "
                "data and its mask as two arrays"
            )
        try:
            initial = np.asarray(value)
        except ValueError as error:
            raise ReshapeError(f"array {name!r}: the value is no array: {error}") from None
        declaration = declare(name, "replicated", initial.shape, (), initial.dtype, "C")
        array = self._register(Array(declaration, self._here()))
        if self._is_fresh_start:
            array.local[...] = initial
        return array

    def csr(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DTypeLike = np.float64,
        balance: Literal["rows", "entries"] = "rows",
    ) -> Csr:
        """Register a sparse matrix in row blocks. It has no entries until `Csr.assemble`.

        Parameters
        ----------
        shape : (rows, columns).
        balance : what is equal for all processes: "rows" (up to 1), or stored "entries".

        Returns
        -------
        Csr whose `local` is a scipy.sparse.csr_array of this rank's rows, with global column
        indices. Register vectors with the layout of its rows by ``app.rows(..., like=matrix)``.

        Raises
        ------
        ReshapeError : as in `block_cyclic`.
        """
        declaration = declare_csr(name, shape, dtype, balance)
        matrix = Csr(declaration, self._here())
        self._register_ragged(matrix, declaration.shape[0])
        return matrix

    def items(self, name: str, items: Iterable[Any] = ()) -> Items:
        """Register a list of work items, which each resize distributes evenly over the processes.

        Parameters
        ----------
        items : all items, picklable values, equal in every process and in the same order. At a
            fresh start each process takes its even share.

        Returns
        -------
        Items whose `local` is the list of this process, which the program may change. Resizes keep
        the order of all items, with those of lower ranks first.

        Raises
        ------
        ReshapeError : as in `block_cyclic`.
        """
        try:
            listed = list(items) if self._is_fresh_start else []
        except TypeError:
            raise ReshapeError(
                f"items {name!r}: expected a list of work items, got {items!r:.200}"
            ) from None
        declaration = declare(name, "items", (0,), (), np.uint8, "C")
        share = Items(declaration, self._here())
        self._register_ragged(share, 0)
        if self._is_fresh_start:
            share.begin(listed)
        return share

    def particles(
        self,
        name: str,
        dtype: DTypeLike,
        like: Array | None = None,
        cell: Cells | None = None,
    ) -> Particles:
        """Register particles: records of which each process has any number, none at first.

        Parameters
        ----------
        name : as in `block_cyclic`.
        dtype : element type of a record, usually a structured one.
        like : array of `blocks` or `rows` with the cells of the particles. After a resize, and
            after `Particles.migrate`, a process has the particles of the cells that it owns.
            Without it the particles are divided evenly, in their order.
        cell : function that returns the cells of n records of `dtype`: integers of shape (n,), or
            (n, d) if d axes of `like` are divided, in the order of these axes.

        Returns
        -------
        Particles whose `local` is the array of the records of this process. The program may
        replace it by another one of any length.

        Raises
        ------
        ReshapeError : as in `block_cyclic`, or only one of `like` and `cell` is given.
        """
        declaration = declare_particles(name, dtype, _declaration(name, like), cell)
        particles = Particles(declaration, self._here(), cell)
        self._register_ragged(particles, 0)
        if self._is_fresh_start:
            particles.begin()
        return particles

    @overload
    def rng(self, name: str, *, seed: int = 0) -> RankStream: ...

    @overload
    def rng(self, name: str, like: Items, seed: int = 0) -> ItemStreams: ...

    @overload
    def rng(self, name: str, like: Array | Csr, seed: int = 0) -> Streams: ...

    def rng(
        self, name: str, like: Array | Csr | Items | None = None, seed: int = 0
    ) -> Streams | ItemStreams | RankStream:
        """Register independent streams of random numbers: for each row, each item, or each rank.

        Parameters
        ----------
        name : as in `block_cyclic`; each name has other streams.
        like : array that is cut along one axis, with a stream for each index of this axis. The
            streams move with the array. Or work items: each number of an item has a stream. In
            both cases the numbers do not depend on the number of processes. Without it each rank
            has a stream: processes that join get new ones, and after a resize or a restart all do,
            so that the numbers depend on the sizes.
        seed : integer in [0, 2**63); each has other streams.

        Returns
        -------
        Streams whose `local` is a list of a numpy.random.Generator for each row of this process;
        ItemStreams, whose `of` returns the one of an item; or RankStream whose `local` is one.

        Raises
        ------
        ReshapeError : as in `block_cyclic`.
        """
        declaration = declare_streams(name, seed, _declaration(name, like))
        if like is None or isinstance(like, Items):
            self._enter(declaration, "streams")
            if like is not None:
                return ItemStreams(declaration)
            return RankStream(declaration, self._here())
        return Streams(self._register(StreamStates(declaration, self._here())))

    # ------------------------------------------------------------ the steps of a registration

    def _register(self, array: _Array) -> _Array:
        """Register a plain array, and return it. Collective over app.comm in a restart."""
        job = self._here()
        self._enter(array.declaration, "array")
        cuts = dict[str, RaggedCuts]()
        if by := array.declaration.by:
            job.ragged[by].followers.append(array.name)
            if self._role != "join":
                cuts[by] = job.ragged[by].cuts
        self._begin(array, cuts)
        if self._role == "join":
            what = "streams" if array.declaration.kind == "streams" else "array"
            array.vacate(_NOT_YET.format(what, array.name))
        return array

    def _register_ragged(self, ragged: Ragged, rows: int) -> None:
        """Register a ragged array of empty rows in even parts."""
        job = self._here()
        self._enter(ragged.declaration, ragged.declaration.kind)
        job.ragged[ragged.name] = ragged
        even = Cuts.even((rows,), job.comm.size).offsets
        cuts = RaggedCuts(even, (0,) * len(even))
        if self._saved is not None:
            cuts = self._saved.cuts_of(ragged, job.comm.size)
        for part in ragged.parts:
            self._begin(part, {ragged.name: cuts})
        if self._saved is not None:
            ragged.restore()
        if self._role == "join":
            ragged.vacate(_NOT_YET.format(ragged.declaration.kind, ragged.name))

    def _enter(self, declaration: Declaration, what: str) -> None:
        """Register a name, unless it is taken, or another program has saved the data."""
        name, job = declaration.name, self._here()
        if self._loops:
            raise ReshapeError(
                f"{what} {name!r} is registered after app.iterations() has begun, but processes "
                "that join register before it: register all arrays before"
            )
        if any(name == other.name for other in job.signature):
            raise ReshapeError(f"{what} {name!r} is registered twice: give each its own name")
        job.signature = (*job.signature, declaration)
        if self._saved is not None:
            self._saved.check(job.signature, complete=False)

    def _begin(self, array: Array, cuts: AllCuts) -> None:
        """Allocate or reopen the data of an array, unless a move will bring it."""
        job, declaration = self._here(), array.declaration
        job.arrays[array.name] = array
        if self._role == "join":
            return
        layout = declaration.layout(job.comm.size, cuts)
        if self._saved is not None:
            segment = self._saved.segment_of(job.memory, declaration, layout)
        else:
            try:
                segment = segments.create(job.memory, declaration, layout)
            except (MemoryError, ValueError) as error:
                raise ReshapeError(
                    f"array {array.name!r}: rank {job.comm.rank} has no memory for its part of the"
                    f" shape {array.shape}: {error}"
                ) from None
        array.place(layout, segment)

    def _restart(self, folder: Path) -> None:
        """Collective over app.comm. Continue from the restart point in this folder."""
        job = self._here()
        point = restore_ranks(job, folder)
        job.epoch = point.epoch
        self._continue_from(point)

    def _continue_from(self, saved: RestartPoint | SavedCheckpoint) -> None:
        """Let the program continue from saved data. Precondition: nothing is registered."""
        job, state = self._here(), _state_in(saved)
        self._saved = saved
        self._is_fresh_start = False
        job.loop, job.iteration = state.loop, state.iteration
        job.done = state.before + state.iteration
        job.state.update(state.load_state())

    def _close_registrations(self) -> None:
        """Collective over app.comm in a restart. Remove the restart point, drop the saved data."""
        job = self._here()
        saved, self._saved = self._saved, None
        if saved is not None:
            saved.check(job.signature, complete=True)
            job.state.clear()
            job.state.update(_state_in(saved).load_state())  # over what the program has set
        if self._role == "restart":
            restarted(job)
        elif saved is not None:
            for ragged in job.ragged.values():
                ragged.roll_back()  # the packed items are not needed any more


def _state_in(saved: RestartPoint | SavedCheckpoint) -> SavedState:
    return saved if isinstance(saved, RestartPoint) else saved.manifest


def _declaration(name: str, like: Array | Ragged | None) -> Declaration | None:
    """Declaration of the data that an array is to be laid out like."""
    if like is None or isinstance(like, Array | Ragged):
        return None if like is None else like.declaration
    raise ReshapeError(
        f"array {name!r}, like={like!r:.200}: expected an array of app.blocks, app.rows or "
        "app.block_cyclic, or a matrix of app.csr"
    )
