"""Transfers: the elements that go from one rank to one other rank."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from redistribution.plans.runs import Run, extent_of, halve

MemoryOrder: TypeAlias = Literal["C", "F"]
Ordering: TypeAlias = Literal["rotation", "circulant"]


class Transfer(NamedTuple):
    """The elements that go from one source process to one target process: a product of runs.

    Attributes
    ----------
    peer : the other rank of the communicator; the rank itself for elements that stay.
    runs : the families of runs on each axis.
    shape : extents of the message that they fill.
    """

    peer: int
    runs: tuple[tuple[Run, ...], ...]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, peer: int, runs: tuple[tuple[Run, ...], ...]) -> Transfer:
        """Transfer of ``runs``, with its shape."""
        return cls(peer, runs, tuple(extent_of(along) for along in runs))

    @property
    def elements(self) -> int:
        """Number of elements that move."""
        return math.prod(self.shape)


def pieces(transfer: Transfer, limit: int, order: MemoryOrder) -> Iterator[Transfer]:
    """Split a transfer into transfers of at most ``limit`` elements each.

    The splits are made across the axis that is outermost in memory order, which keeps runs long.
    The sender and the receiver of a transfer get the same pieces in the same order.
    """
    if transfer.elements <= limit:
        yield transfer
        return
    axes = range(len(transfer.shape)) if order == "C" else reversed(range(len(transfer.shape)))
    axis = next(axis for axis in axes if transfer.shape[axis] > 1)
    for half in halve(transfer.runs[axis]):
        runs = (*transfer.runs[:axis], half, *transfer.runs[axis + 1 :])
        yield from pieces(Transfer.of(transfer.peer, runs), limit, order)
