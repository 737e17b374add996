"""Networks between the nodes: k-ary n-trees, and meshes and tori.

A k-ary n-tree has n levels of switches with k ports down, so k**n leaves, each for one node. With p
processors per node, the node at leaf i has the numbers from ``i * p`` on, so the processors below
one switch are one aligned range of numbers.

Meshes and tori are k-ary n-cubes, one-dimensional rings included. The node at coordinates
(c1, ..., cn) has the position of row-major order: the last coordinate varies fastest. The node at
position i has the numbers from ``i * p`` on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise, permutations
from math import prod
from typing import Any, TypeAlias

import msgspec

from reshape.errors import check_ranges
from scheduler.model.procset import ProcSet

LARGEST = 1 << 24  #: leaves of the largest tree, and nodes of the largest mesh


class Tree(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="topology", tag="tree"
):
    """A k-ary n-tree.

    Parameters
    ----------
    k : number of ports down of a switch, >= 2.
    levels : number of levels of switches (n), >= 1.
    processors_per_node : processors at each leaf, >= 1.

    Raises
    ------
    ValueError : a number out of range, or more than `LARGEST` leaves.
    """

    k: int
    levels: int
    processors_per_node: int = 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_ranges(self, k=">= 2", levels=">= 1", processors_per_node=">= 1")
        if self.levels > LARGEST.bit_length() or self.leaves > LARGEST:
            raise ValueError(f"a tree has at most {LARGEST} leaves, got {self.k}**{self.levels}")

    @property
    def leaves(self) -> int:
        """Number of leaves: positions for nodes."""
        return int(self.k**self.levels)

    @property
    def processors(self) -> int:
        """Processors if every leaf is installed."""
        return self.leaves * self.processors_per_node

    def below(self, level: int) -> int:
        """Processors below a switch of a level if all leaves are installed; level 0 is a node."""
        return int(self.processors_per_node * self.k**level)

    def level(self, processors: int) -> int | None:
        """Smallest level at which one switch has this many processors below it; None without one.

        LOC (Pascual, Miguel-Alonso) figure 1, which counts nodes of one processor. The printed
        algorithm never raises the level; it is read as the smallest l >= 1 with k**l >= x. A job
        that fits on one node has level 0.
        """
        level, below = 0, self.processors_per_node
        if below == 1:
            level, below = 1, self.k
        while below < processors:
            level, below = level + 1, below * self.k
        return level if level <= self.levels else None

    def contiguous(self, processors: ProcSet) -> bool:
        """Whether the processors are below one switch of the `level` of their number."""
        if not processors:
            return True
        level = self.level(processors.count())
        if level is None:
            return False
        first, last = processors.intervals[0][0], processors.intervals[-1][1]
        return last < self.processors and first // self.below(level) == last // self.below(level)


class Mesh(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="topology", tag="mesh"
):
    """A mesh, or a torus if its dimensions are closed to rings.

    Parameters
    ----------
    dims : nodes along each dimension, >= 1.
    wraps : whether the last node of each line is connected with the first one (a torus).
    processors_per_node : processors of each node, >= 1.

    Raises
    ------
    ValueError : no dimension, a number below 1, or more than `LARGEST` nodes.
    """

    dims: tuple[int, ...]
    wraps: bool = False
    processors_per_node: int = 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not self.dims:
            raise ValueError("dims must name at least one dimension, such as [8, 8]")
        if min(self.dims) < 1:
            raise ValueError(f"dims must be >= 1, got {list(self.dims)}")
        check_ranges(self, processors_per_node=">= 1")
        if self.leaves > LARGEST:
            raise ValueError(f"a mesh has at most {LARGEST} nodes, got {list(self.dims)}")

    @property
    def leaves(self) -> int:
        """Number of positions for nodes."""
        return prod(self.dims)

    @property
    def processors(self) -> int:
        """Processors if there is a node at every position."""
        return self.leaves * self.processors_per_node

    def nodes(self, processors: int) -> int:
        """Nodes that this many processors need."""
        return -(-processors // self.processors_per_node)

    def box(self, processors: int) -> tuple[int, ...] | None:
        """Sides of the most compact box for `processors`, longest first; None without one."""
        return box(self.dims, self.nodes(processors))

    def held(self, processors: int) -> int:
        """Processors of the most compact box; without one, the processors."""
        sides = self.box(processors)
        return processors if sides is None else prod(sides) * self.processors_per_node

    def sides(self, processors: ProcSet) -> tuple[int, ...]:
        """Sides of the smallest box around the nodes of the processors, in the order of `dims`.

        On a torus the box may cross the border.
        """
        per_node, sides, below = self.processors_per_node, [], self.leaves
        rows = {(a // per_node, b // per_node) for a, b in processors.intervals}
        for size in self.dims:
            above, below = below, below // size
            used: set[int] = set()
            for first, last in rows:
                if last - first + 1 >= above:
                    used.update(range(size))
                else:  # the coordinates of an interval are consecutive, modulo the size
                    steps = last // below - first // below
                    used.update(c % size for c in range(first // below, first // below + steps + 1))
            sides.append(self._side(sorted(used), size))
        return tuple(sides)

    def _side(self, used: list[int], size: int) -> int:
        """Length of the shortest range, around the ring on a torus, with these coordinates."""
        if not self.wraps:
            return used[-1] - used[0] + 1
        gaps = [b - a for a, b in pairwise([*used, used[0] + size])]
        return size - max(gaps) + 1

    def contiguous(self, processors: ProcSet) -> bool:
        """Whether the processors are inside the most compact box for their number, rotated."""
        if not processors:
            return True
        sides = self.box(processors.count())
        if sides is None or processors.intervals[-1][1] >= self.processors:
            return False
        around = self.sides(processors)
        return any(
            all(side <= most for side, most in zip(around, turned, strict=True))
            for turned in rotations(self.dims, sides)
        )


Network: TypeAlias = Tree | Mesh


def decoded(data: Mapping[str, Any] | None) -> Network | None:
    """Network from plain data; None gives None.

    Raises
    ------
    msgspec.ValidationError : the data does not describe a network.
    """
    if data is None:
        return None
    written: Network = msgspec.convert({"topology": "tree", **data}, Network)
    return written


def lacks(network: Network | None, needed: str) -> str | None:
    """What a selection needs of a network and this one does not offer; None: nothing.

    Parameters
    ----------
    needed : what the selection needs; see `scheduler.model.interfaces.Selection`.
    """
    kinds = {"tree": Tree, "mesh": Mesh}
    if not needed or isinstance(network, kinds[needed]):
        return None
    if network is None:
        return "it needs a machine with a network"
    kind = "tree" if isinstance(network, Tree) else "mesh or torus"
    names = {"tree": "a tree", "mesh": "a mesh or torus"}
    return f"it needs a network that is {names[needed]}, and this one is a {kind}"


@lru_cache(maxsize=4096)
def box(dims: tuple[int, ...], nodes: int) -> tuple[int, ...] | None:
    """Sides of the most compact box with at least this many nodes, longest first.

    The box has the smallest sum of sides, of equals the fewest nodes, then the shortest longest
    side. None if the whole machine has fewer nodes.

    Parameters
    ----------
    dims : nodes along each dimension of the machine.
    """
    limits = sorted(dims, reverse=True)
    best: tuple[int, int, tuple[int, ...]] | None = None
    for sides in _boxes(nodes, limits, limits[0]):
        rank = sum(sides), prod(sides), sides
        if best is None or rank < best:
            best = rank
    return None if best is None else best[2]


def _boxes(nodes: int, limits: list[int], longest: int) -> Iterator[tuple[int, ...]]:
    """Boxes of descending sides, none of which can be shorter with its other sides unchanged."""
    most = min(longest, limits[0])
    if len(limits) == 1:
        if nodes <= most:
            yield (nodes,)
        return
    for side in range(1, most + 1):
        rest = -(-nodes // side)
        if rest <= side ** (len(limits) - 1):
            for others in _boxes(rest, limits[1:], side):
                yield (side, *others)


def wider(dims: tuple[int, ...], sides: tuple[int, ...]) -> tuple[int, ...]:
    """Sides that are one longer each, but not longer than the machine; longest first."""
    limits = sorted(dims, reverse=True)
    return tuple(min(side + 1, most) for side, most in zip(sides, limits, strict=True))


@lru_cache(maxsize=4096)
def rotations(dims: tuple[int, ...], sides: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Rotations of a box that fit into the machine, each once, in ascending order."""
    return sorted(
        turned
        for turned in set(permutations(sides))
        if all(side <= most for side, most in zip(turned, dims, strict=True))
    )
