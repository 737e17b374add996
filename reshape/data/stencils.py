"""Registered arrays in blocks over a process grid, for stencils.

The local part of a block array is what resizes move, as of every other array. The halo is no
registered data: it exists at one size, in a copy of the local part with room around it that
`BlockArray.exchange` fills. A stencil reads the copy and writes the local part, so that it needs no
second array for the values of the step before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import index
from typing import Any, TypeAlias

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from redistribution import Blocks
from redistribution.layout import MemoryOrder
from reshape.data.arrays import Array
from reshape.data.declarations import EVEN, ArrayDivision, Declaration, declare
from reshape.errors import ReshapeError

_TAG = 27185


#: Two regions of equal shape: one that is written, and where its contents come from.
Pairs: TypeAlias = list[tuple[NDArray[Any], NDArray[Any]]]


#: The exchange along one axis: buffers of messages with the regions that are sent in them, copies
#: of this rank for itself, regions with the buffers that are received, and persistent messages.
AxisExchange: TypeAlias = tuple[Pairs, Pairs, Pairs, list[MPI.Prequest]]


def _copy(pairs: Pairs) -> None:
    for target, source in pairs:
        target[...] = source


class Halo:
    """The local part of a rank with its halo, at one size of the job.

    The axes are exchanged one after another, each with the halo of the axes before it, so that the
    corners arrive without messages between diagonal neighbours.

    Parameters
    ----------
    widths : points on each side, for each axis.
    periodic : whether the first point of an axis is the neighbour of the last one.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        layout: Blocks,
        widths: Sequence[int],
        periodic: Sequence[bool],
        like: NDArray[Any],
        order: MemoryOrder,
    ) -> None:
        shape = tuple(n + 2 * width for n, width in zip(like.shape, widths, strict=True))
        self.array = np.zeros(shape, like.dtype, order)
        self.widths = tuple(widths)
        self.own = self.array[
            tuple(slice(w, w + n) for n, w in zip(like.shape, widths, strict=True))
        ]
        self.outside = list[NDArray[Any]]()
        self.axes = list[AxisExchange]()
        for axis in range(len(shape)):
            if not periodic[axis]:
                self.outside += self._beyond_edges(layout, comm.rank, axis)
            self.axes.append(self._along(comm, layout, axis, periodic[axis]))

    def _along(
        self, comm: MPI.Intracomm, layout: Blocks, axis: int, periodic: bool
    ) -> AxisExchange:
        """Prepare the exchange along an axis. Both sides of a message list it in the same order."""
        packed, copied, unpacked, requests = Pairs(), Pairs(), Pairs(), list[MPI.Prequest]()

        def buffer(start: Callable[..., MPI.Prequest], region: NDArray[Any]) -> NDArray[Any]:
            contents = np.empty(region.shape, region.dtype)
            if region.size:
                requests.append(start(contents.reshape(-1).view(np.uint8), tag=_TAG))
            return contents

        own, width = layout.coordinates(comm.rank), self.widths[axis]
        for part in range(layout.parts[axis]):
            process = layout.process_at(comm.rank, axis, part)
            for ghosts in layout.ghosts(process, axis, width, periodic):
                if own[axis] not in (part, ghosts.part):
                    continue
                source = self._slab(axis, ghosts.start, ghosts.length)
                target = self._slab(axis, ghosts.position, ghosts.length)
                if own[axis] == part == ghosts.part:
                    copied.append((target, source))
                elif own[axis] == part:
                    peer = layout.process_at(comm.rank, axis, ghosts.part)
                    unpacked.append((target, buffer(partial(comm.Recv_init, source=peer), target)))
                else:
                    packed.append((buffer(partial(comm.Send_init, dest=process), source), source))
        return packed, copied, unpacked, requests

    def _slab(self, axis: int, first: int, length: int) -> NDArray[Any]:
        """Points of an axis, by local index, with the halo of all axes before it."""
        where = []
        for k, (width, extent) in enumerate(zip(self.widths, self.array.shape, strict=True)):
            if k == axis:
                where.append(slice(width + first, width + first + length))
            else:
                where.append(slice(0, extent) if k < axis else slice(width, extent - width))
        return self.array[tuple(where)]

    def _beyond_edges(self, layout: Blocks, rank: int, axis: int) -> list[NDArray[Any]]:
        """Regions of the halo that lie beyond the edges of an axis."""
        indices, width = layout.global_indices(rank)[axis], self.widths[axis]
        if not len(indices):
            return []
        before = max(0, width - int(indices[0]))
        after = max(0, int(indices[-1]) + width - (layout.shape[axis] - 1))
        turned = np.moveaxis(self.array, axis, 0)
        return [turned[:before], turned[len(turned) - after :]]

    def exchange(self, local: NDArray[Any], outside: Any) -> NDArray[Any]:
        """Collective over the communicator. Fill the array from all local parts, and return it."""
        self.own[...] = local
        if outside is None:
            outside = np.zeros((), local.dtype)
        for region in self.outside:
            region[...] = outside
        for packed, copied, unpacked, requests in self.axes:
            _copy(packed)
            MPI.Prequest.Startall(requests)
            _copy(copied)
            MPI.Request.Waitall(requests)
            _copy(unpacked)
        return self.array

    def free(self) -> None:
        """Free the persistent messages."""
        for *_, requests in self.axes:
            for request in requests:
                request.Free()
            requests.clear()


class BlockArray(Array):
    """A registered array in blocks over a process grid, which can exchange halos."""

    _halo: Halo | None = None

    @property
    def layout(self) -> Blocks:
        """Layout of the global array over the ranks of `app.comm` at the present size.

        Raises
        ------
        ReshapeError : this process has no part of it yet, or no longer.
        """
        layout = super().layout
        assert isinstance(layout, Blocks)
        return layout

    @property
    def halo(self) -> tuple[int, ...]:
        """Points of the halo on each side, for each axis."""
        return self.declaration.detail[: len(self.shape)]

    @property
    def periodic(self) -> tuple[bool, ...]:
        """Whether the first and the last point of an axis are neighbours, for each axis."""
        return tuple(map(bool, self.declaration.detail[len(self.shape) :]))

    def neighbours(self, rank: int, axis: int = 0) -> tuple[int | None, int | None]:
        """Return the ranks of `app.comm` with the points before and after those of `rank`.

        None at the ends of an axis that is not periodic, and on both sides if `rank` has no
        points; ranks without points are skipped. A resize changes the neighbours.

        Raises
        ------
        ReshapeError : there is no such axis, or the array has no layout; see `layout`.
        """
        layout = self.layout
        if not -len(self.shape) <= axis < len(self.shape):
            raise ReshapeError(f"{self.declaration} has no axis {axis}")
        return layout.neighbours(rank, axis, self.periodic[axis])

    def exchange(self, outside: Any = None) -> NDArray[Any]:
        """Collective over app.comm. Return the local part with its halo, filled by all ranks.

        Parameters
        ----------
        outside : value of the points of the halo beyond the edges of axes that are not periodic;
            None: zeros, in each field of a structured element.

        Returns
        -------
        array with `halo` more points than `local` on each side, the corners included. Its points
        have the values of the other ranks at this call. The next call overwrites it, and after a
        resize it is another array. Changes of it do not change `local`.

        Raises
        ------
        ReshapeError : this process has no part of the array yet, or no longer.
        """
        local = self.local
        if self._halo is None:
            layout, order = self.layout, self.declaration.order
            self._halo = Halo(self.job.comm, layout, self.halo, self.periodic, local, order)
        return self._halo.exchange(local, outside)

    def _forget(self) -> None:
        if self._halo is not None:
            self._halo.free()
            self._halo = None


def declare_blocks(
    name: str,
    shape: Sequence[int],
    halo: int | Sequence[int],
    periodic: bool | Sequence[bool],
    dtype: DTypeLike,
    order: MemoryOrder,
    division: ArrayDivision = EVEN,
) -> Declaration:
    """Check the declaration of a block array.

    Raises
    ------
    ReshapeError : an error of `declare`, a halo below 0, or another number of halos or of flags
        than of axes.
    """
    try:
        ndim = len(shape)
        divided = [axis in (division.cut or range(ndim)) for axis in range(ndim)]
        widths = halo if isinstance(halo, Sequence) else [index(halo) * own for own in divided]
        flags = periodic if isinstance(periodic, Sequence) else [periodic * own for own in divided]
        widths, wraps = tuple(map(index, widths)), tuple(int(bool(flag)) for flag in flags)
    except TypeError:
        raise ReshapeError(
            f"array {name!r}: shape={shape!r}, halo={halo!r} and periodic={periodic!r} must be "
            "whole numbers and flags, or tuples of them, such as shape=(600, 400), halo=1"
        ) from None
    if not len(widths) == len(wraps) == ndim or min(widths, default=0) < 0:
        raise ReshapeError(
            f"array {name!r}: halo={halo!r} and periodic={periodic!r} must be one value >= 0, or "
            f"one for each of the {ndim} axes"
        )
    return declare(name, "blocks", shape, (*widths, *wraps), dtype, order, division)
