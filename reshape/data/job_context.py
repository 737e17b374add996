"""The state of a job in each of its processes."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import numpy as np
from mpi4py import MPI

from reshape.data.arrays import Array, Processes
from reshape.data.declarations import Declaration
from reshape.data.each_size import EachSize
from reshape.data.ragged import Ragged
from reshape.data.segments import FolderPlace, Segment, bytes_of, place_of
from reshape.errors import ReshapeError
from reshape.files.job_folder import Slot
from reshape.topology import SizeBounds, Topology
from reshape.wire.identity import Pace
from reshape.wire.messages import ResizeOutcome

if TYPE_CHECKING:
    from reshape.data.trial import Trial

Fact = bool | int | float | str


class ProgramOutline(NamedTuple):
    """What all processes of a job make in the same way.

    Attributes
    ----------
    signature : what the program has registered, in order.
    each_size : names of its functions of `Application.each_size`, in order.
    loop : number of its present loop, from 0.
    total : number of iterations of this loop; None: not known.
    """

    signature: tuple[Declaration, ...]
    each_size: tuple[str, ...]
    loop: int
    total: int | None

    def difference(self, other: ProgramOutline, names: tuple[str, str]) -> str:
        """Describe the first difference; empty if there is none.

        Parameters
        ----------
        names : of the processes with this program, and of those with the other one.
        """
        for ours, theirs in zip(self._steps(), other._steps(), strict=False):  # a loop ends both
            if ours != theirs:
                return (
                    f"{names[0]} has {ours} where {names[1]} has {theirs}: all processes make the "
                    "same registrations, functions of app.each_size and loops, in the same order"
                )
        return ""

    def _steps(self) -> list[Declaration | str]:
        place = f" as loop {self.loop + 1}" if self.loop else ""
        functions = (f"{name} of app.each_size" for name in self.each_size)
        return [*self.signature, *functions, f"app.iterations({self.total}){place}"]


class SizeRequest(msgspec.Struct):
    """A request of a program; `reshape.app.Application.request` returns it.

    Attributes
    ----------
    minimum, maximum : bounds on the number of processes; None: no bound.
    state : "pending" until the service has answered; "accepted": the job is resized within the
        bounds from then on, to a size between them when there are processors; or "declined".
    why : why it is declined.
    """

    minimum: int | None
    maximum: int | None
    state: Literal["pending", "accepted", "declined"] = "pending"
    why: str = ""

    @property
    def pending(self) -> SizeBounds | None:
        """The bounds until the service has answered; None: it has."""
        is_pending = self.state == "pending"
        return SizeBounds(self.minimum or 0, self.maximum or 0) if is_pending else None

    def answer(self, declined: str) -> None:
        """Note the answer: why the request is declined, empty if it is accepted."""
        self.state, self.why = "declined" if declined else "accepted", declined


class JobContext(Processes, eq=False):
    """The state of a job in each of its processes.

    Attributes
    ----------
    verify : whether each move compares checksums.
    signature : what the program has registered, in order.
    arrays : registered arrays by name, including the parts of ragged data.
    ragged : sparse matrices and lists of items by name.
    state : values of `Application.state`.
    loop : number of the loop of the program that the job is in, from 0.
    iteration : number of the next iteration of the loop.
    total : number of iterations of the loop; None: not known.
    request : what the program has requested of its size last.
    expected : number of iterations that the job is expected to have, by its own account of its
        progress; 0: those of its loops.
    each_size : functions of `Application.each_size`, in order.
    held : intercommunicators by which groups have joined, to be disconnected by all processes.
    topology : valid sizes, if the program or the submission names them.
    last : outcome of the last resize.
    warned_no_restart : whether the log says that there is no restart point.
    pace : decides at which resize points the job asks the service.
    checkpointed_at : monotonic time of the last checkpoint; at first that of the first iteration.
    slot : where this rank notes its loop and iteration.
    trial : the checks of `reshape try`; None in all other runs.
    """

    verify: bool = False
    signature: tuple[Declaration, ...] = ()
    arrays: dict[str, Array] = msgspec.field(default_factory=dict)
    ragged: dict[str, Ragged] = msgspec.field(default_factory=dict)
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    loop: int = 0
    iteration: int = 0
    total: int | None = 0
    request: SizeRequest | None = None
    expected: int = 0
    each_size: list[EachSize[Any]] = msgspec.field(default_factory=list)
    held: list[MPI.Intercomm] = msgspec.field(default_factory=list)
    topology: Topology | None = None
    last: ResizeOutcome = msgspec.field(default_factory=lambda: ResizeOutcome(serial=0))
    warned_no_restart: bool = False
    pace: Pace = msgspec.field(default_factory=Pace)
    checkpointed_at: float = 0.0
    slot: Slot = msgspec.field(default_factory=Slot)
    trial: Trial | None = None

    @property
    def before(self) -> int:
        """Number of iterations finished in earlier loops."""
        return self.done - self.iteration

    @property
    def goes_on(self) -> bool:
        """Whether the loop has another iteration, unless the program leaves it."""
        return self.total is None or self.iteration < self.total

    @property
    def program(self) -> ProgramOutline:
        """What this process has made so far."""
        names = tuple(function.name for function in self.each_size)
        return ProgramOutline(self.signature, names, self.loop, self.total)

    def open_each_size(self) -> None:
        """Collective over comm. Open what depends on the size and is closed, in order."""
        for function in self.each_size:
            if not function.is_open:
                function.open(self.comm)

    def close_each_size(self) -> None:
        """Collective over comm. Close what depends on the size, in reverse order.

        Raises
        ------
        reshape.data.each_size.ClosingError : a function failed; the job cannot continue.
        """
        for function in reversed(self.each_size):
            if function.is_open:
                function.close()

    @property
    def live_segments(self) -> list[Segment]:
        """Segments of this process that hold data."""
        segments = (array.segment for array in self.arrays.values())
        return [segment for segment in segments if segment is not None]

    @property
    def place(self) -> FolderPlace | None:
        """Where the segments of this process lie; None if some of its data does not outlive it."""
        segments = [array.segment for array in self.arrays.values()]
        outlive = all(segment is not None and segment.outlives for segment in segments)
        return place_of(self.folder) if outlive else None

    def expect_size(self, size: int, rank: int) -> None:
        """Prepare memory for the local parts that a rank of `size` processes will have.

        Those of ragged data are known before the resize only as far as they say.
        """
        if self.objection_to(size):
            return
        declarations = [array.declaration for array in self.arrays.values()]
        sizes = [
            bytes_of(declaration.layout(size).local_shape(rank), declaration.element_type)
            for declaration in declarations
            if not declaration.by
        ]
        for ragged in self.ragged.values():
            sizes += ragged.expected_bytes(size)
        self.spares.expect(sizes, self.live_segments)

    def objection_to(self, size: int) -> str:
        """Why the registered arrays cannot be divided among `size` processes; empty if they can."""
        try:
            for array in self.arrays.values():
                if not array.declaration.by:
                    array.declaration.layout(size)
        except ReshapeError as error:
            return str(error)
        return ""

    @property
    def registered_bytes(self) -> int:
        """Bytes of all registered arrays over all processes, every copy counted.

        Items and particles do not count: only their own process knows how many there are.
        """
        return sum(array.total_bytes for array in self.arrays.values())


def pickled_state(state: dict[str, Any]) -> bytes:
    """Pickle `app.state`.

    Raises
    ------
    ReshapeError : a value cannot be pickled; the message names its key.
    """
    try:
        return pickle.dumps(dict(state))
    except Exception as error:  # pickling runs code of the user's classes
        for key, value in state.items():
            try:
                pickle.dumps(value)
            except Exception as reason:
                raise ReshapeError(f"app.state[{key!r}] cannot be pickled: {reason}") from None
        raise ReshapeError(f"app.state cannot be pickled: {error}") from None


def plain_facts(facts: Mapping[str, Any]) -> dict[str, Fact]:
    """Convert the facts of a result to plain Python values.

    Raises
    ------
    ReshapeError : a value is not a bool, number or string, a number is not finite or does not fit
        into 64 bits, or a string is not UTF-8.
    """
    plain: dict[str, Fact] = {}
    for name, value in facts.items():
        value = value.item() if isinstance(value, np.generic) else value
        if not isinstance(value, bool | int | float | str):
            expected = "a bool, a number or a string"
        elif isinstance(value, float) and not isfinite(value):
            expected = "a finite number (report a string if there is none)"
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            expected = "an integer of at most 64 bits, its sign included"
        elif isinstance(value, str) and any("\ud800" <= each <= "\udfff" for each in value):
            expected = "UTF-8 text"
        else:
            plain[name] = value
            continue
        raise ReshapeError(f"app.report({name}=...): expected {expected}, got {value!r}")
    return plain
