"""Registration of arrays, whose first data are zeros or come from a restart point.

In a process that joins a running job, arrays have no data until the move of its first resize.
"""

from __future__ import annotations

from pathlib import Path

from redistribution import Cuts
from reshape.data import segments
from reshape.data.arrays import AllCuts, Array, Declaration, RaggedCuts, difference
from reshape.data.job_context import JobContext
from reshape.data.ragged import Ragged
from reshape.data.sparse import Csr
from reshape.errors import ReshapeError
from reshape.resizing.restart_point import RestartPoint
from reshape.resizing.transaction import restarted
from reshape.wire.identity import Role

NOT_YET = (
    "{} {!r} has no data yet in this process, which joins a running job and receives its part in "
    "app.iterations(): put the code that fills it below 'if app.is_fresh_start:'"
)


class Registry:
    """The registrations of a program, in order.

    Parameters
    ----------
    role : role of this process's group.

    Attributes
    ----------
    restart : the restart point from which the program continues, if any.
    closed : whether the iterations have begun; nothing can be registered afterwards.
    """

    def __init__(self, job: JobContext, role: Role) -> None:
        self.job, self.role = job, role
        self.restart: RestartPoint | None = None
        self.closed = False
        if role == "restart" and job.folder is not None:
            self._restore(job.folder)

    def _restore(self, folder: Path) -> None:
        point = self.restart = RestartPoint.read(folder)
        if point.size != self.job.comm.size:
            raise ReshapeError(
                f"cannot restart on {self.job.comm.size} processes: the restart point in {folder} "
                f"has the data of {point.size}; start that many"
            )
        self.job.epoch, self.job.iteration = point.epoch, point.iteration
        self.job.state.update(point.load_state())

    def array(self, declaration: Declaration, like: Csr | None = None) -> Array:
        """Register a plain array.

        Raises
        ------
        ReshapeError : the name is taken, the registry is closed, or the restart point is that of
            another program.
        """
        self._enter(declaration, "array")
        array = Array(declaration, NOT_YET.format("array", declaration.name))
        if like is not None:
            like.followers.append(declaration.name)
        self._begin(array, {} if like is None or self.role == "join" else {like.name: like.cuts})
        return array

    def ragged(self, ragged: Ragged, rows: int) -> None:
        """Register a ragged array of empty rows in even parts; it raises the errors of `array`."""
        self._enter(ragged.declaration, ragged.declaration.kind)
        self.job.ragged[ragged.name] = ragged
        even = Cuts.even((rows,), self.job.comm.size).offsets
        cuts = RaggedCuts(even, (0,) * len(even))
        if self.restart is not None:
            cuts = self.restart.cuts[ragged.name]
        for part in ragged.parts:
            self._begin(part, {ragged.name: cuts})
        if self.restart is not None:
            ragged.restore()

    def close(self) -> None:
        """Collective over job.comm in a restart. End registrations, remove the restart point.

        Raises
        ------
        ReshapeError : the program registers less than before the restart.
        """
        self.closed = True
        if self.restart is not None:
            self._check_restart()
            self.job.state.clear()
            self.job.state.update(self.restart.load_state())  # over what the program has set
            restarted(self.job)

    def _check_restart(self) -> None:
        """Check that the program registers the arrays that it had registered before the restart.

        Arrays that are still missing are an error only once the registry is closed.
        """
        if self.restart is None:
            return
        expected = self.restart.signature[: None if self.closed else len(self.job.declarations)]
        if why := difference(expected, self.job.signature):
            raise ReshapeError(f"cannot restart: the program has changed; {why}")

    def _enter(self, declaration: Declaration, what: str) -> None:
        name, declarations = declaration.name, self.job.declarations
        if self.closed:
            raise ReshapeError(
                f"{what} {name!r} is registered after app.iterations() has begun, but processes "
                "that join register before it: register all arrays before"
            )
        if any(name == other.name for other in declarations):
            raise ReshapeError(f"{what} {name!r} is registered twice: give each its own name")
        declarations.append(declaration)
        self._check_restart()

    def _begin(self, array: Array, cuts: AllCuts) -> None:
        """Allocate or reopen the data of an array, unless a move will bring it."""
        job, declaration = self.job, array.declaration
        job.arrays[array.name] = array
        if self.role == "join":
            return
        layout, rank = declaration.layout(job.comm.size, cuts), job.comm.rank
        shape = layout.local_shape(rank)
        allocate = segments.create if self.restart is None else segments.reopen
        segment = allocate(job.memory, array.name, shape, declaration.dtype, declaration.order)
        array.place(layout, segment)
