"""Free processors of each node of a mesh, and the boxes that have enough of them.

The sums over boxes of a size are computed by one cumulative sum along each dimension, so their cost
is linear in the number of nodes and does not depend on the size of the box.
"""

from __future__ import annotations

from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.model.network import Mesh
from scheduler.model.procset import ProcSet

Ints: TypeAlias = NDArray[np.int64]


class FreeNodes:
    """Free processors of each node.

    Parameters
    ----------
    mesh : the network.
    free : processors that are free.

    Attributes
    ----------
    counts : free processors by position, shape `mesh.dims`, int64.
    """

    def __init__(self, mesh: Mesh, free: ProcSet) -> None:
        self.mesh = mesh
        self.counts: Ints = np.zeros(mesh.dims, dtype=np.int64)
        self._first: dict[tuple[int, ...], Ints] = {}  # sums over boxes since the last change
        self.change(free, 1)

    def copy(self) -> FreeNodes:
        """Independent copy."""
        other = FreeNodes.__new__(FreeNodes)
        other.mesh, other.counts, other._first = self.mesh, self.counts.copy(), dict(self._first)
        return other

    def change(self, processors: ProcSet, by: int) -> None:
        """Count these processors as free (`by` 1) or taken (-1); they were the opposite before."""
        per_node, flat = self.mesh.processors_per_node, self.counts.reshape(-1)
        most = self.mesh.processors
        for first, last in processors.intervals:
            if first >= most:  # processors beyond the network have no place in it
                break
            last = min(last, most - 1)
            i, j = first // per_node, last // per_node
            if i == j:
                flat[i] += by * (last - first + 1)
                continue
            flat[i] += by * ((i + 1) * per_node - first)
            flat[i + 1 : j] += by * per_node
            flat[j] += by * (last - j * per_node + 1)
        self._first.clear()

    def sums(self, sides: tuple[int, ...]) -> Ints:
        """Free processors in the box of these sides at each position of its first corner.

        Returns
        -------
        int64; along each dimension as many positions as boxes: all of a torus, those inside of a
        mesh.
        """
        sums = self._first.get(sides)
        if sums is None:
            sums = self.counts
            for axis, side in enumerate(sides):
                sums = self._windows(sums, axis, side)
            self._first[sides] = sums
        return sums

    def _windows(self, values: Ints, axis: int, side: int) -> Ints:
        """Sums over windows of a length along one axis."""
        if side == 1:
            return values
        if self.mesh.wraps:
            begin = values.take(range(side - 1), axis=axis)
            values = np.concatenate([values, begin], axis=axis)
        total = np.cumsum(values, axis=axis)
        ends = total.take(range(side - 1, total.shape[axis]), axis=axis)
        before = total.take(range(total.shape[axis] - side), axis=axis)
        index = [slice(None)] * values.ndim
        index[axis] = slice(1, None)
        ends[tuple(index)] -= before
        return ends

    def first_box(self, sides: tuple[int, ...], processors: int) -> tuple[int, ...] | None:
        """First position, in row-major order, of a box with this many free processors."""
        enough = self.sums(sides) >= processors
        index = int(enough.argmax())
        if not enough.flat[index]:
            return None
        return tuple(int(c) for c in np.unravel_index(index, enough.shape))

    def box_set(self, corner: tuple[int, ...], sides: tuple[int, ...]) -> ProcSet:
        """All processor numbers of a box, free or not."""
        dims, per_node = self.mesh.dims, self.mesh.processors_per_node
        last, side = corner[-1], sides[-1]
        parts = [(last, min(last + side, dims[-1]))]
        if last + side > dims[-1]:  # crosses the border of a torus
            parts.append((0, last + side - dims[-1]))
        lines = [
            [(c + step) % size for step in range(length)]
            for c, length, size in zip(corner[:-1], sides[:-1], dims[:-1], strict=True)
        ]
        spans = []
        for line in product(*lines):
            row = 0
            for coordinate, size in zip(line, dims, strict=False):
                row = row * size + coordinate
            begin = row * dims[-1]
            spans += [ProcSet.span((begin + a) * per_node, (b - a) * per_node) for a, b in parts]
        return ProcSet.union(spans)
