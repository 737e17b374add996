"""Who sends what to whom when an array goes from one layout to another. Needs no MPI."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import product
from operator import index
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from numpy.typing import NDArray

from redistribution.layout import Layout
from redistribution.plans.runs import Run, extent_of, halved, joint

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

    from redistribution.copies.gather import Gathering, Sources
    from redistribution.messages.prepared import Prepared

Order: TypeAlias = Literal["C", "F"]
Ordering: TypeAlias = Literal["rotation", "circulant"]

# Memory for messages on a rank in a move, unless told otherwise; see
# `redistribution.messages.prepared.run`.
EXTRA_BYTES = 24 << 20

# Plans that `Plan.cached` keeps, the ones asked for last.
KEPT_PLANS = 64


class Transfer(NamedTuple):
    """What goes from one source process to one target process: a product of runs.

    Attributes
    ----------
    peer : the other rank of the communicator; one's own for data that stays.
    runs : the families of runs on each axis.
    shape : extents of the message that they fill.
    """

    peer: int
    runs: tuple[tuple[Run, ...], ...]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, peer: int, runs: tuple[tuple[Run, ...], ...]) -> Transfer:
        """The transfer of ``runs`` with its shape."""
        return cls(peer, runs, tuple(extent_of(along) for along in runs))

    @property
    def elements(self) -> int:
        """Number of elements moved."""
        return math.prod(self.shape)


def pieces(transfer: Transfer, limit: int, order: Order) -> Iterator[Transfer]:
    """Cut a transfer into transfers of at most ``limit`` elements each, for short messages.

    The cuts go across the axis that is outermost in memory order, so that runs stay long. Both
    ends of a transfer get the same pieces in the same turn.
    """
    if transfer.elements <= limit:
        yield transfer
        return
    axes = range(len(transfer.shape)) if order == "C" else reversed(range(len(transfer.shape)))
    axis = next(axis for axis in axes if transfer.shape[axis] > 1)
    for half in halved(transfer.runs[axis]):
        runs = (*transfer.runs[:axis], half, *transfer.runs[axis + 1 :])
        yield from pieces(Transfer.of(transfer.peer, runs), limit, order)


class Plan:
    """Move one global array from ``source`` to ``target``; make once, run often.

    Planning costs what one period of both layouts costs on each axis, and only for the rank that
    asks; what neighbouring plans share is cached. A plan is tied to no dtype and no memory order.

    Parameters
    ----------
    source, target : layouts of the same global shape.
    source_ranks, target_ranks : source process p lives on rank ``source_ranks[p]`` of the
        communicator that will run the plan, target process q on ``target_ranks[q]``. Defaults:
        process p on rank p. The two may overlap partly, fully or not at all.
    ordering : in which turn messages go; see `redistribution.plans.ordering`.

    Raises
    ------
    ValueError : shapes differ, a rank is negative or given twice, there is not one for each
        process, or there is no such ordering.

    Examples
    --------
    >>> plan = Plan(Cuts.even((10, 4), 2), Cuts.even((10, 4), 3))
    >>> plan.bytes_moved(itemsize=8)
    128
    """

    def __init__(
        self,
        source: Layout,
        target: Layout,
        source_ranks: Sequence[int] | None = None,
        target_ranks: Sequence[int] | None = None,
        *,
        ordering: Ordering = "rotation",
    ) -> None:
        if source.shape != target.shape:
            raise ValueError(
                f"source and target must have the same global shape, got "
                f"{source.shape} and {target.shape}"
            )
        if ordering not in get_args(Ordering):
            raise ValueError(f"ordering must be one of {get_args(Ordering)}, got {ordering!r}")
        self.source = source
        self.target = target
        self.ordering: Ordering = ordering
        self.source_ranks = _checked_ranks("source_ranks", source_ranks, source.nprocs)
        self.target_ranks = _checked_ranks("target_ranks", target_ranks, target.nprocs)
        # The process that lives on each rank that has one.
        self.source_process = {rank: p for p, rank in enumerate(self.source_ranks)}
        self.target_process = {rank: q for q, rank in enumerate(self.target_ranks)}
        # The smallest communicator that can run the plan.
        self.size = max(*self.source_ranks, *self.target_ranks) + 1
        self.joint = tuple(map(joint, source.axes, target.axes))
        self._outgoing: dict[int, tuple[Transfer, ...]] = {}
        self._incoming: dict[int, tuple[Transfer, ...]] = {}
        # What the last run of small arrays, and the last gather for each process, have found out.
        self.last_run: Prepared | None = None
        self.last_gathers: dict[int, Gathering] = {}

    @classmethod
    def cached(
        cls,
        source: Layout,
        target: Layout,
        source_ranks: Sequence[int] | None = None,
        target_ranks: Sequence[int] | None = None,
        *,
        ordering: Ordering = "rotation",
    ) -> Plan:
        """Return the same plan as last time; `KEPT_PLANS` are kept. Parameters of `Plan`."""
        ranks = [None if given is None else tuple(given) for given in (source_ranks, target_ranks)]
        return _kept(source, target, *ranks, ordering)

    def __repr__(self) -> str:
        """Everything that defines the plan."""
        return (
            f"Plan({self.source}, {self.target}, {self.source_ranks}, {self.target_ranks}, "
            f"ordering={self.ordering!r})"
        )

    @cached_property
    def fingerprint(self) -> int:
        """A number that is the same wherever the plan is the same, in [0, 2**32)."""
        return zlib.crc32(repr(self).encode())

    @cached_property
    def turn(self) -> Callable[[int, int], int]:
        """Number of the step in which a sending rank gives to a receiving rank; -1 for oneself."""
        # Ordering reads plans, so it comes second.
        from redistribution.plans.ordering import circulant, rotation

        return rotation(self) if self.ordering == "rotation" else circulant(self)

    def outgoing(self, rank: int) -> tuple[Transfer, ...]:
        """What ``rank`` gives away, its own part first, then step by step of the ordering.

        All ranks that follow this order send to different ranks at any one time.
        """
        if rank not in self._outgoing:
            found = sorted(self._sent_by(rank), key=lambda t: self.turn(rank, t.peer))
            self._outgoing[rank] = tuple(found)
        return self._outgoing[rank]

    def incoming(self, rank: int) -> tuple[Transfer, ...]:
        """What ``rank`` gets, its own part first, then step by step of the ordering."""
        if rank not in self._incoming:
            found = sorted(self._received_by(rank), key=lambda t: self.turn(t.peer, rank))
            self._incoming[rank] = tuple(found)
        return self._incoming[rank]

    def bytes_moved(self, itemsize: int) -> int:
        """Bytes that cross from one rank to another when elements have ``itemsize`` bytes."""
        stays = 0
        for rank in self.source_process.keys() & self.target_process.keys():
            # A rank that holds a source process never takes from another copy of it.
            ours = self.source.coordinates(self.source_process[rank])
            theirs = self.target.coordinates(self.target_process[rank])
            overlaps = zip(self.joint, ours, theirs, strict=True)
            stays += math.prod(int(axis.elements[i, j]) for axis, i, j in overlaps)
        return (math.prod(self.target.shape) * self.target.copies - stays) * itemsize

    @cached_property
    def feeding_copy(self) -> tuple[int, ...]:
        """Which copy of the source feeds each target process.

        Its own if its rank holds one; the others are dealt evenly over the copies.
        """
        feeding, dealt, grid = [], 0, math.prod(self.source.parts)
        for rank in self.target_ranks:
            if rank in self.source_process:
                feeding.append(self.source_process[rank] // grid)
            else:
                feeding.append(dealt % self.source.copies)
                dealt += 1
        return tuple(feeding)

    def run(
        self,
        comm: Intracomm,
        a: NDArray[Any] | None,
        b: NDArray[Any] | None,
        *,
        order: Order = "C",
        max_extra_bytes: int = EXTRA_BYTES,
    ) -> None:
        """Collective over comm. Fill ``b`` with this rank's part of the target layout.

        See `redistribution.messages.prepared.run`.
        """
        last = self.last_run
        if last is None or not last.again(comm, a, b, order, max_extra_bytes):
            # Importing mpi4py.MPI starts MPI, which planning must not.
            from redistribution.messages.prepared import run

            run(self, comm, a, b, order=order, max_extra_bytes=max_extra_bytes)

    def prepare(
        self,
        comm: Intracomm,
        a: NDArray[Any] | None,
        b: NDArray[Any] | None,
        *,
        order: Order = "C",
        max_extra_bytes: int = EXTRA_BYTES,
    ) -> Prepared:
        """Collective over comm. Bind the plan to arrays that it will move again and again.

        See `redistribution.messages.prepared.Prepared`.
        """
        from redistribution.messages.agreement import Arguments
        from redistribution.messages.prepared import Prepared

        return Prepared(Arguments(self, comm, a, b, order, max_extra_bytes))

    def gather(self, process: int, sources: Sources, b: NDArray[Any]) -> None:
        """Fill ``b`` with the part of target ``process``, straight from the source arrays.

        See `redistribution.copies.gather.gather`.
        """
        from redistribution.copies.gather import gather

        gather(self, process, sources, b)

    def forget(self) -> None:
        """Let go of the small arrays that were moved last: they shall not live as long as this."""
        self.last_run = None
        self.last_gathers.clear()

    def _sent_by(self, rank: int) -> Iterator[Transfer]:
        """Transfers from the source process on ``rank``, if it has one, in no special order."""
        if rank not in self.source_process:
            return
        process = self.source_process[rank]
        copy = process // math.prod(self.source.parts)
        axes = zip(self.joint, self.source.coordinates(process), strict=True)
        found = [axis.from_source(part) for axis, part in axes]
        grid = math.prod(self.target.parts)
        for first, runs, shape in _products(found, self.target.parts):
            for target in range(first, self.target.nprocs, grid):
                if self.feeding_copy[target] == copy:
                    yield Transfer(self.target_ranks[target], runs, shape)

    def _received_by(self, rank: int) -> Iterator[Transfer]:
        """Transfers to the target process on ``rank``, if it has one, in no special order."""
        if rank not in self.target_process:
            return
        process = self.target_process[rank]
        axes = zip(self.joint, self.target.coordinates(process), strict=True)
        found = [axis.to_target(part) for axis, part in axes]
        skipped = self.feeding_copy[process] * math.prod(self.source.parts)
        for first, runs, shape in _products(found, self.source.parts):
            yield Transfer(self.source_ranks[skipped + first], runs, shape)


@lru_cache(maxsize=KEPT_PLANS)
def _kept(
    source: Layout,
    target: Layout,
    source_ranks: tuple[int, ...] | None,
    target_ranks: tuple[int, ...] | None,
    ordering: Ordering,
) -> Plan:
    return Plan(source, target, source_ranks, target_ranks, ordering=ordering)


_Runs: TypeAlias = tuple[Run, ...]


def _products(
    found: Sequence[dict[int, _Runs]], parts: Sequence[int]
) -> Iterator[tuple[int, tuple[_Runs, ...], tuple[int, ...]]]:
    """Every peer, its runs on all axes and their extents, from the runs by coordinate of each axis.

    Peers are numbered row-major over ``parts``, within the first copy.
    """
    # One Python loop for each peer, of which there may be thousands: the rest is done per axis.
    along, stride = [], math.prod(parts)
    for by_coordinate, count in zip(found, parts, strict=True):
        stride //= count
        along.append(
            [(part * stride, runs, extent_of(runs)) for part, runs in by_coordinate.items()]
        )
    for combination in product(*along):
        offsets, runs, shape = zip(*combination, strict=True)
        yield sum(offsets), runs, shape


def _checked_ranks(name: str, given: Sequence[int] | None, nprocs: int) -> tuple[int, ...]:
    """``given``, or the default, as a tuple of distinct ranks, one for each process."""
    ranks = tuple(range(nprocs)) if given is None else tuple(index(rank) for rank in given)
    if len(ranks) != nprocs:
        raise ValueError(f"{name} must have one rank for each of {nprocs} processes, got {ranks}")
    seen: set[int] = set()
    for rank in ranks:
        if rank < 0:
            raise ValueError(f"{name} must be >= 0, got {rank}")
        if rank in seen:
            raise ValueError(f"{name} must be distinct, got {rank} twice in {ranks}")
        seen.add(rank)
    return ranks
