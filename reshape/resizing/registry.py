"""Registration of arrays, whose first data are zeros or the saved data of a restart.

In a process that joins a running job, arrays have no data until the move of its first resize.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from redistribution import Cuts, Layout
from reshape.data import segments
from reshape.data.arrays import Array
from reshape.data.declarations import AllCuts, Declaration, RaggedCuts
from reshape.data.job_context import JobContext
from reshape.data.ragged import Ragged
from reshape.data.segments import RankMemory, Segment
from reshape.errors import ReshapeError
from reshape.resizing.rank_order import restore_ranks
from reshape.resizing.restart_point import SavedState
from reshape.resizing.transaction import restarted
from reshape.wire.identity import Role

_Array = TypeVar("_Array", bound=Array)
NOT_YET = (
    "{} {!r} has no data yet in this process, which joins a running job and receives its part in "
    "app.iterations(): put the code that fills it below 'if app.is_fresh_start:', and code that "
    "uses it into the loop"
)


class SavedData(Protocol):
    """What a program restarts from: a restart point, or a checkpoint."""

    @property
    def saved_state(self) -> SavedState:
        """The state of the job between two iterations."""

    def check(self, given: Sequence[Declaration], complete: bool) -> None:
        """Raise ReshapeError if the program registers something else, so far or in the end."""

    def load_state(self) -> dict[str, Any]:
        """Return the values of `app.state`."""

    def cuts_of(self, ragged: Ragged, size: int) -> RaggedCuts:
        """Return the cuts of a ragged array on `size` processes."""

    def segment_of(self, memory: RankMemory, declaration: Declaration, layout: Layout) -> Segment:
        """Return the local part of an array in a layout, with its data."""

    def close(self) -> None:
        """Release what was needed for reading."""


class Registry:
    """The registrations of a program, in order. Collective over job.comm in a restart.

    Parameters
    ----------
    role : role of this process's group.

    Attributes
    ----------
    saved : what the program restarts from; None if it does not.
    closed : whether the iterations have begun; nothing can be registered afterwards.
    """

    def __init__(self, job: JobContext, role: Role) -> None:
        self.job, self.role = job, role
        self.saved: SavedData | None = None
        self.closed = False
        if role == "restart" and job.folder is not None:
            self._restore(job.folder)

    def _restore(self, folder: Path) -> None:
        point = restore_ranks(self.job, folder)
        self.job.epoch = point.epoch
        self.continue_from(point)

    def continue_from(self, saved: SavedData) -> None:
        """Let the program continue from saved data. Precondition: nothing is registered.

        Raises
        ------
        ReshapeError : `app.state` cannot be restored.
        """
        self.saved = saved
        state = saved.saved_state
        self.job.loop, self.job.iteration = state.loop, state.iteration
        self.job.before = state.before
        self.job.state.update(saved.load_state())

    def array(self, array: _Array) -> _Array:
        """Register a plain array, and return it.

        Raises
        ------
        ReshapeError : the name is taken, the registry is closed, or the restart point is that of
            another program.
        """
        self.enter(array.declaration, "array")
        cuts = dict[str, RaggedCuts]()
        if by := array.declaration.by:
            self.job.ragged[by].followers.append(array.name)
            if self.role != "join":
                cuts[by] = self.job.ragged[by].cuts
        self._begin(array, cuts)
        return array

    def ragged(self, ragged: Ragged, rows: int) -> None:
        """Register a ragged array of empty rows in even parts; it raises the errors of `array`."""
        self.enter(ragged.declaration, ragged.declaration.kind)
        self.job.ragged[ragged.name] = ragged
        even = Cuts.even((rows,), self.job.comm.size).offsets
        cuts = RaggedCuts(even, (0,) * len(even))
        if self.saved is not None:
            cuts = self.saved.cuts_of(ragged, self.job.comm.size)
        for part in ragged.parts:
            self._begin(part, {ragged.name: cuts})
        if self.saved is not None:
            ragged.restore()

    def close(self) -> None:
        """Collective over job.comm in a restart. End registrations, remove the restart point.

        Raises
        ------
        ReshapeError : the program registers less than before the restart.
        """
        self.closed = True
        if self.saved is not None:
            self.saved.check(self.job.declarations, complete=True)
            self.job.state.clear()
            self.job.state.update(self.saved.load_state())  # over what the program has set
            self.saved.close()
        if self.role == "restart":
            restarted(self.job)
        elif self.saved is not None:
            for ragged in self.job.ragged.values():
                ragged.roll_back()  # the packed items are not needed any more

    def enter(self, declaration: Declaration, what: str) -> None:
        """Register a name; it raises the errors of `array`."""
        name, declarations = declaration.name, self.job.declarations
        if self.closed:
            raise ReshapeError(
                f"{what} {name!r} is registered after app.iterations() has begun, but processes "
                "that join register before it: register all arrays before"
            )
        if any(name == other.name for other in declarations):
            raise ReshapeError(f"{what} {name!r} is registered twice: give each its own name")
        declarations.append(declaration)
        if self.saved is not None:
            self.saved.check(declarations, complete=False)

    def _begin(self, array: Array, cuts: AllCuts) -> None:
        """Allocate or reopen the data of an array, unless a move will bring it."""
        job, declaration = self.job, array.declaration
        job.arrays[array.name] = array
        if self.role == "join":
            return
        layout = declaration.layout(job.comm.size, cuts)
        if self.saved is not None:
            segment = self.saved.segment_of(job.memory, declaration, layout)
        else:
            shape = layout.local_shape(job.comm.rank)
            segment = segments.create(
                job.memory, array.name, shape, declaration.element_type, declaration.order
            )
        array.place(layout, segment)
