"""Routes: the transfers of all ranks between two layouts, and the steps in which they are made.

Relabelling assigns the target processes to ranks so that the fewest bytes move.

The messages between two ranks have a step: in step d every rank r sends to rank r + d. So a rank
sends to at most one rank and receives from at most one rank in each step, and ranks that are in the
same step never wait for one another. Ranks do not synchronise between steps: a rank only starts its
messages in the order of their steps.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, reduce
from itertools import product, zip_longest
from operator import index
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from redistribution.layout import Layout, MemoryOrder
from redistribution.runs import JointAxis, Run, Transfer, extent_of, joint_axis, pieces

_Runs: TypeAlias = tuple[Run, ...]

#: Pieces of transfers, those of the first round first.
Rounds: TypeAlias = list[tuple[Transfer, ...]]


class Routes:
    """The transfers that move one global array from ``source`` to ``target``.

    The transfers of a rank are computed when they are first asked for. They cost what one period of
    both layouts costs on each axis; axes are cached. Routes depend on no dtype and memory order.

    Parameters and errors are those of `redistribution.Plan`.
    """

    def __init__(
        self,
        source: Layout,
        target: Layout,
        source_ranks: Sequence[int] | None = None,
        target_ranks: Sequence[int] | None = None,
        *,
        hosts: Sequence[int] | None = None,
    ) -> None:
        self.source, self.target = source, target
        self.source_ranks = rank_tuple(source_ranks, source.nprocs)
        self.target_ranks = rank_tuple(target_ranks, target.nprocs)
        self.hosts = None if hosts is None else tuple(hosts)
        if source.shape != target.shape:
            raise ValueError(
                f"source and target must have the same global shape, got "
                f"{source.shape} and {target.shape}"
            )
        _check_ranks("source_ranks", self.source_ranks, source.nprocs)
        _check_ranks("target_ranks", self.target_ranks, target.nprocs)
        if self.hosts is not None and len(self.hosts) < self.size:
            raise ValueError(f"hosts must name the host of {self.size} ranks, got {self.hosts}")
        self._outgoing: dict[int, tuple[Transfer, ...]] = {}
        self._incoming: dict[int, tuple[Transfer, ...]] = {}
        self._rounds: dict[tuple[int, float, MemoryOrder], tuple[Rounds, Rounds]] = {}

    def __repr__(self) -> str:
        """Show the arguments."""
        return (
            f"{type(self).__name__}(source={self.source!r}, target={self.target!r}, "
            f"source_ranks={self.source_ranks}, target_ranks={self.target_ranks}, "
            f"hosts={self.hosts})"
        )

    @cached_property
    def source_process(self) -> dict[int, int]:
        """Source process on each rank that has one."""
        return {rank: p for p, rank in enumerate(self.source_ranks)}

    @cached_property
    def target_process(self) -> dict[int, int]:
        """Target process on each rank that has one."""
        return {rank: q for q, rank in enumerate(self.target_ranks)}

    @cached_property
    def size(self) -> int:
        """Size of the smallest communicator that has all ranks."""
        return max(*self.source_ranks, *self.target_ranks) + 1

    @cached_property
    def joint_axes(self) -> tuple[JointAxis, ...]:
        """The joint runs of both layouts on each axis."""
        return tuple(map(joint_axis, self.source.axes, self.target.axes))

    @cached_property
    def fingerprint(self) -> int:
        """A number in [0, 2**32) that is equal for equal routes."""
        return zlib.crc32(repr(self).encode())

    def step(self, sender: int, receiver: int) -> int:
        """Step of the message from one rank to another; 0 for elements that stay."""
        return (receiver - sender) % self.size

    def outgoing(self, rank: int) -> tuple[Transfer, ...]:
        """Transfers that ``rank`` sends: elements that stay first, then in the order of steps."""
        if rank not in self._outgoing:
            transfers = sorted(self._sent_by(rank), key=lambda t: self.step(rank, t.peer))
            self._outgoing[rank] = tuple(transfers)
        return self._outgoing[rank]

    def incoming(self, rank: int) -> tuple[Transfer, ...]:
        """Transfers that ``rank`` receives: elements that stay first, then in order of steps."""
        if rank not in self._incoming:
            transfers = sorted(self._received_by(rank), key=lambda t: self.step(t.peer, rank))
            self._incoming[rank] = tuple(transfers)
        return self._incoming[rank]

    def rounds(self, rank: int, part: float, order: MemoryOrder) -> tuple[Rounds, Rounds]:
        """Outgoing and incoming transfers of a rank in pieces, for each round one of each transfer.

        Those of the last call are kept: splitting many short runs takes as long as copying them.

        Parameters
        ----------
        part : the part of a transfer that a piece has at most, rounded up to elements.
        order : as in `pieces`.
        """
        key = rank, part, order
        if key not in self._rounds:
            self._rounds.clear()
            outgoing, incoming = (
                [pieces(t, math.ceil(t.elements * part), order) for t in transfers]
                for transfers in (self.outgoing(rank), self.incoming(rank))
            )
            self._rounds[key] = (
                [tuple(filter(None, together)) for together in zip_longest(*outgoing)],
                [tuple(filter(None, together)) for together in zip_longest(*incoming)],
            )
        return self._rounds[key]

    def is_near(self, rank: int, other: int) -> bool:
        """Whether two ranks exchange elements without messages: they are one, or on one host."""
        return rank == other or (self.hosts is not None and self.hosts[rank] == self.hosts[other])

    def keeps(self, rank: int) -> bool:
        """Whether the target part of ``rank`` is its source part, so that one array can be both.

        This holds for the copies of a replicated array on ranks that had one before, and for a
        part that a change of layout leaves as it is. The rank receives nothing, but it may send.

        Examples
        --------
        >>> from redistribution import Cuts, Replicated
        >>> routes = Routes(Replicated((9,), 2), Replicated((9,), 3), (0, 1), (0, 1, 2))
        >>> [routes.keeps(rank) for rank in range(3)]
        [True, True, False]
        """
        if rank not in self.source_process or rank not in self.target_process:
            return False
        shape = self.target.local_shape(self.target_process[rank])
        if self.source.local_shape(self.source_process[rank]) != shape:
            return False
        return math.prod(shape) == 0 or any(
            transfer.peer == rank
            and transfer.shape == shape
            and all(run.is_in_place for along in transfer.runs for run in along)
            for transfer in self.incoming(rank)
        )

    def common_elements(self) -> NDArray[np.int64]:
        """Number of elements that each source process has in common with each target process.

        Returns
        -------
        (source.nprocs, target.nprocs) int64; every copy of a replicated array counts.
        """
        # The Kronecker product is row-major over the coordinates.
        shared = reduce(np.kron, (axis.elements for axis in self.joint_axes))
        parts = ([part for _, part in layout.places] for layout in (self.source, self.target))
        return np.asarray(shared[np.ix_(*parts)])

    def sent_elements(self) -> NDArray[np.int64]:
        """Number of elements that each source process sends to each target process in messages.

        Returns
        -------
        (source.nprocs, target.nprocs) int64.
        """
        hosts = np.array(range(self.size) if self.hosts is None else self.hosts)
        sending = hosts[list(self.source_ranks)][:, np.newaxis]
        copy = np.array([copy for copy, _ in self.source.places])[:, np.newaxis]
        far = (sending != hosts[list(self.target_ranks)]) & (copy == np.array(self.source_copy))
        return np.where(far, self.common_elements(), 0)

    def shared_elements(self, ranks: Sequence[int]) -> NDArray[np.int64]:
        """Number of elements that each rank needs no message for, by the target process it may get.

        These are the elements that the target process shares with the source process on the rank,
        or, if the routes have hosts, with any source process on the host of the rank.

        Returns
        -------
        (len(ranks), target.nprocs) int64; 0 for ranks without a source process near.
        """
        shared = self.common_elements()
        whole = shared.sum(axis=0) // max(1, self.source.copies)  # elements of each target process
        counts = np.zeros((len(ranks), self.target.nprocs), dtype=np.int64)
        for position, rank in enumerate(ranks):
            near = [p for p, other in enumerate(self.source_ranks) if self.is_near(rank, other)]
            counts[position] = np.minimum(shared[near].sum(axis=0), whole)
        return counts

    def bytes_sent(self, itemsize: int) -> int:
        """Bytes of all messages if elements have ``itemsize`` bytes."""
        if self.hosts is None:
            return self.bytes_moved(itemsize)
        return int(self.sent_elements().sum()) * itemsize

    def bytes_moved(self, itemsize: int) -> int:
        """Bytes that go from one rank to another if elements have ``itemsize`` bytes."""
        stays = 0
        for rank in self.source_process.keys() & self.target_process.keys():
            # A rank with a source process never receives from another copy of it.
            sent = self.source.coordinates(self.source_process[rank])
            received = self.target.coordinates(self.target_process[rank])
            overlaps = zip(self.joint_axes, sent, received, strict=True)
            stays += math.prod(int(axis.elements[i, j]) for axis, i, j in overlaps)
        return (math.prod(self.target.shape) * self.target.copies - stays) * itemsize

    @cached_property
    def source_copy(self) -> tuple[int, ...]:
        """Which copy of a replicated source each target process receives from.

        This is the copy on its own rank, if there is one. The other target processes are dealt
        evenly over the copies of their own host, or, if it has none, over all copies.
        """
        copies = list[int]()
        dealt = Counter[tuple[int, ...]]()  # by the copies among which processes are dealt
        for rank in self.target_ranks:
            if rank in self.source_process:
                copies.append(self.source.places[self.source_process[rank]][0])
            else:
                choice = self._copies_near(rank) or tuple(range(self.source.copies))
                copies.append(choice[dealt[choice] % len(choice)])
                dealt[choice] += 1
        return tuple(copies)

    def _copies_near(self, rank: int) -> tuple[int, ...]:
        """Copies of the source of which all parts are on the host of ``rank``."""
        if self.hosts is None or self.source.copies == 1:
            return ()
        return tuple(
            copy
            for copy, holders in enumerate(self.source.holders)
            if all(self.is_near(rank, self.source_ranks[process]) for process in holders)
        )

    def _sent_by(self, rank: int) -> Iterator[Transfer]:
        """Transfers from the source process on ``rank``, if it has one, in no special order."""
        if rank not in self.source_process:
            return
        process = self.source_process[rank]
        copy, _ = self.source.places[process]
        axes = zip(self.joint_axes, self.source.coordinates(process), strict=True)
        by_axis = [axis.from_source(part) for axis, part in axes]
        for part, runs, shape in _products(by_axis, self.target.parts):
            for holders in self.target.holders:
                if self.source_copy[holders[part]] == copy:
                    yield Transfer(self.target_ranks[holders[part]], runs, shape)

    def _received_by(self, rank: int) -> Iterator[Transfer]:
        """Transfers to the target process on ``rank``, if it has one, in no special order."""
        if rank not in self.target_process:
            return
        process = self.target_process[rank]
        axes = zip(self.joint_axes, self.target.coordinates(process), strict=True)
        by_axis = [axis.to_target(part) for axis, part in axes]
        holders = self.source.holders[self.source_copy[process]]
        for part, runs, shape in _products(by_axis, self.source.parts):
            yield Transfer(self.source_ranks[holders[part]], runs, shape)


def rank_tuple(ranks: Sequence[int] | None, nprocs: int) -> tuple[int, ...]:
    """``ranks`` as a tuple of Python integers; without them, process p is on rank p."""
    return tuple(range(nprocs)) if ranks is None else tuple(index(rank) for rank in ranks)


def _check_ranks(name: str, ranks: tuple[int, ...], nprocs: int) -> None:
    """Raise ValueError unless ``ranks`` are distinct ranks, one for each process."""
    if len(ranks) != nprocs:
        raise ValueError(f"{name} must have one rank for each of {nprocs} processes, got {ranks}")
    seen: set[int] = set()
    for rank in ranks:
        if rank < 0:
            raise ValueError(f"{name} must be >= 0, got {rank}")
        if rank in seen:
            raise ValueError(f"{name} must be distinct, got {rank} twice in {ranks}")
        seen.add(rank)


def _products(
    by_axis: Sequence[dict[int, _Runs]], parts: Sequence[int]
) -> Iterator[tuple[int, tuple[_Runs, ...], tuple[int, ...]]]:
    """Every peer, its runs on all axes and their extents, from the runs by coordinate of each axis.

    Peers are numbered row-major over ``parts``, within their copy.
    """
    # There may be thousands of peers: this loop only combines what was computed for each axis.
    along, stride = [], math.prod(parts)
    for by_coordinate, count in zip(by_axis, parts, strict=True):
        stride //= count
        along.append(
            [(part * stride, runs, extent_of(runs)) for part, runs in by_coordinate.items()]
        )
    for combination in product(*along):
        offsets, runs, shape = zip(*combination, strict=True)
        yield sum(offsets), runs, shape


def relabel(routes: Iterable[tuple[Routes, int]], ranks: Sequence[int]) -> tuple[int, ...]:
    """Assign target processes to ranks so that the fewest bytes of some arrays are sent.

    The assignment for which the most bytes need no message is found exactly (Hungarian method).

    Parameters
    ----------
    routes : of each array, such as its `Plan`, and the bytes of an element.
    ranks : at least as many as target processes; the best of them are chosen.

    Returns
    -------
    (target.nprocs,) int : ``target_ranks`` for `Plan`; the first of ``ranks`` if no other
    assignment sends fewer bytes.

    Examples
    --------
    >>> from redistribution import Cuts
    >>> relabel([(Routes(Cuts((9,), (0, 1, 9)), Cuts((9,), (0, 8, 9))), 8)], ranks=(0, 1))
    (1, 0)
    """
    # SciPy loads slowly, and most programs never relabel.
    from scipy.optimize import linear_sum_assignment

    near = np.sum([each.shared_elements(ranks) * itemsize for each, itemsize in routes], axis=0)
    positions, processes = linear_sum_assignment(near, maximize=True)
    if near[positions, processes].sum() > near.trace():
        return tuple(ranks[position] for position in positions[np.argsort(processes)])
    return tuple(ranks[: near.shape[1]])
