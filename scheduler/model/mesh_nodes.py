"""Free processors of each node of a mesh, and what selections look for among them.

`FreeNodes` is kept up to date. The sums over boxes of a size are computed by one cumulative sum
along each dimension, so their cost is linear in the number of nodes and does not depend on the size
of the box.

Selections that scatter a job ask for nodes by pages, buddies or the Hilbert curve, which goes
through a mesh of any number of dimensions and any sides: J. Skilling, "Programming the Hilbert
curve" (AIP Conference Proceedings 707, 2004). The curve runs through the cube whose side is the
smallest power of two that holds the mesh; positions outside of the mesh are left out.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.model.network import Mesh
from scheduler.model.procset import ProcSet

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Corner: TypeAlias = tuple[int, ...]


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

    def along(self, order: Ints, free: ProcSet, processors: int) -> ProcSet:
        """The first free processors of nodes in an order.

        Parameters
        ----------
        order : positions of nodes, (n,) int64, that together have enough free processors.
        free : the free processors.
        """
        per_node = self.mesh.processors_per_node
        total = np.cumsum(self.counts.reshape(-1)[order])
        last = int(np.searchsorted(total, processors))
        whole = free & positions_set(order[:last], per_node)
        node = int(order[last]) * per_node
        rest = processors - (int(total[last - 1]) if last else 0)
        return whole | free.between(node, node + per_node - 1).first(rest)


def positions_set(positions: Ints, per_node: int) -> ProcSet:
    """All processor numbers of the nodes at these positions."""
    if not len(positions):
        return ProcSet()
    ordered = np.sort(positions)
    breaks = np.flatnonzero(np.diff(ordered) > 1)
    firsts = ordered[np.concatenate([[0], breaks + 1])]
    lasts = ordered[np.concatenate([breaks, [len(ordered) - 1]])]
    pairs = zip((firsts * per_node).tolist(), ((lasts + 1) * per_node - 1).tolist(), strict=True)
    return ProcSet(tuple(pairs))


def by_pages(nodes: FreeNodes, side: int) -> Ints:
    """Positions of nodes by pages: entirely free pages first, each group in row-major order.

    Parameters
    ----------
    side : nodes along each side of a page.
    """
    dims = nodes.mesh.dims
    pages = tuple(-(-size // side) for size in dims)
    coordinates = np.unravel_index(np.arange(nodes.mesh.leaves), dims)
    page = np.ravel_multi_index([c // side for c in coordinates], pages)
    free = np.bincount(page, weights=nodes.counts.reshape(-1), minlength=int(np.prod(pages)))
    size = np.bincount(page) * nodes.mesh.processors_per_node
    return np.lexsort((page, (free < size)[page])).astype(np.int64)


def section(nodes: FreeNodes, processors: int) -> Ints:
    """Positions of the nodes of the shortest section of the Hilbert curve with this many free.

    Parameters
    ----------
    processors : at most as many as are free.
    """
    order = curve(nodes.mesh.dims)
    counts = nodes.counts.reshape(-1)[order]
    places = np.flatnonzero(counts)
    total = np.concatenate([[0], np.cumsum(counts[places])])
    ends = np.searchsorted(total, total[:-1] + processors)  # first place after each section
    begins = np.flatnonzero(ends < len(total))
    lengths = places[ends[begins] - 1] - places[begins]
    best = int(np.argmin(lengths))
    positions: Ints = order[places[begins[best] : ends[begins[best]]]]
    return positions


def by_buddies(nodes: FreeNodes, free: ProcSet, processors: int) -> ProcSet:
    """Choose processors of free blocks; see `MultipleBuddies`.

    Parameters
    ----------
    free : the free processors; there are enough.
    """
    per_node = nodes.mesh.processors_per_node
    whole_nodes, rest = divmod(processors, per_node)
    positions, missing = _take_blocks(_free_blocks(nodes), nodes.mesh.dims, whole_nodes)
    taken = positions_set(positions, per_node)
    rest += missing * per_node
    if not rest:
        return taken
    whole = (nodes.counts.reshape(-1) == per_node).astype(np.int64)
    whole[positions] = 2
    order = np.argsort(whole, kind="stable")  # nodes in part, then free ones
    left = FreeNodes(nodes.mesh, free - taken)
    return taken | left.along(order.astype(np.int64), free - taken, rest)


def _free_blocks(nodes: FreeNodes) -> list[list[Corner]]:
    """First corners of the blocks of entirely free nodes, by level.

    A block of level i has sides of 2**i nodes and is aligned to them; its first corner is in units
    of its sides.
    """
    whole: Bools = nodes.counts == nodes.mesh.processors_per_node
    levels = [whole]
    while min(levels[-1].shape) > 1:
        levels.append(_joined(levels[-1]))
    pairs = zip(levels, [*levels[1:], None], strict=True)
    return [_without_buddies(level, above) for level, above in pairs]


def _take_blocks(blocks: list[list[Corner]], dims: tuple[int, ...], count: int) -> tuple[Ints, int]:
    """Take blocks with this many nodes.

    Returns
    -------
    positions of the nodes, (n,) int64; number of nodes that were not found.
    """
    ways, taken = 2 ** len(dims), []
    top = len(blocks) - 1
    missing, count = divmod(count, ways**top) if top else (count, 0)
    for level in range(top, -1, -1):
        while missing:
            block = _take_block(blocks, level)
            if block is None:
                break
            taken.append(_positions(dims, level, block))
            missing -= 1
        if level:
            digit, count = divmod(count, ways ** (level - 1))
            missing = missing * ways + digit
    return np.concatenate(taken) if taken else np.zeros(0, dtype=np.int64), missing


def _take_block(blocks: list[list[Corner]], level: int) -> Corner | None:
    """Take the first block of a level, or cut one from the smallest larger block."""
    larger = level
    while larger < len(blocks) and not blocks[larger]:
        larger += 1
    if larger == len(blocks):
        return None
    block = blocks[larger].pop(0)
    for below in range(larger - 1, level - 1, -1):
        block, *others = (
            tuple(2 * c + step for c, step in zip(block, steps, strict=True))
            for steps in product((0, 1), repeat=len(block))
        )
        blocks[below] = [*others, *blocks[below]]
    return block


def _positions(dims: tuple[int, ...], level: int, block: Corner) -> Ints:
    """Positions of the nodes of a block."""
    side = 1 << level
    axes = [np.arange(c * side, (c + 1) * side) for c in block]
    grid = np.meshgrid(*axes, indexing="ij")
    return np.ravel_multi_index([axis.reshape(-1) for axis in grid], dims).astype(np.int64)


def _joined(level: Bools) -> Bools:
    """Blocks of the next level whose 2**d parts are all free."""
    for axis, size in enumerate(level.shape):
        even = level.take(range(0, size // 2 * 2, 2), axis=axis)
        odd = level.take(range(1, size // 2 * 2, 2), axis=axis)
        level = even & odd
    return level


def _without_buddies(level: Bools, above: Bools | None) -> list[Corner]:
    """Free blocks that are not a part of a free larger block, in row-major order."""
    alone = level.copy()
    if above is not None:
        for axis in range(level.ndim):
            above = above.repeat(2, axis=axis)
        inside = tuple(slice(0, size) for size in above.shape)
        alone[inside] &= ~above
    return [tuple(corner) for corner in np.argwhere(alone).tolist()]


@lru_cache(maxsize=8)
def curve(dims: tuple[int, ...]) -> Ints:
    """Positions of the nodes in the order of the curve, (nodes,) int64; do not change it."""
    nodes = int(np.prod(dims))
    coordinates = np.array(np.unravel_index(np.arange(nodes), dims), dtype=np.int64)
    bits = max(1, (max(dims) - 1).bit_length())
    order: Ints = np.argsort(_along_curve(coordinates, bits), kind="stable").astype(np.int64)
    return order


def _along_curve(x: Ints, bits: int) -> Ints:
    """Index on the curve of each point.

    Parameters
    ----------
    x : coordinates, (d, n) int64, of `bits` bits; they are overwritten.
    """
    d = len(x)
    bit = 1 << (bits - 1)
    while bit > 1:  # undo the exchanges and inversions
        low = bit - 1
        for i in range(d):
            inverted = (x[i] & bit) != 0
            swapped = np.where(inverted, 0, (x[0] ^ x[i]) & low)
            x[0] = np.where(inverted, x[0] ^ low, x[0] ^ swapped)
            x[i] ^= swapped
        bit >>= 1
    for i in range(1, d):  # Gray code
        x[i] ^= x[i - 1]
    flips = np.zeros_like(x[0])
    bit = 1 << (bits - 1)
    while bit > 1:
        flips = np.where((x[d - 1] & bit) != 0, flips ^ (bit - 1), flips)
        bit >>= 1
    x ^= flips
    index = np.zeros_like(x[0])
    for bit in range(bits - 1, -1, -1):
        for i in range(d):
            index = 2 * index + ((x[i] >> bit) & 1)
    indices: Ints = index
    return indices
