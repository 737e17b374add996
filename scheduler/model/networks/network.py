"""Networks between the nodes: k-ary n-trees, and meshes and tori.

A k-ary n-tree has n levels of switches with k ports down, so k**n leaves, each for one node. With p
processors per node, the node at leaf i has the numbers from ``i * p`` on, so the processors below
one switch are one aligned range of numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from scheduler.model.networks.mesh import Mesh
from scheduler.model.procset import ProcSet

LARGEST = 1 << 24  #: leaves of the largest tree


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
        for name, least in (("k", 2), ("levels", 1), ("processors_per_node", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be >= {least}, got {getattr(self, name)}")
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


def lacks(network: Network | None, wanted: str) -> str | None:
    """What a selection needs of a network and this one does not offer; None: nothing.

    Parameters
    ----------
    wanted : the topology that the selection needs; see `scheduler.model.selection.Selection`.
    """
    kinds = {"tree": Tree, "mesh": Mesh}
    if not wanted or isinstance(network, kinds[wanted]):
        return None
    if network is None:
        return "it needs a machine with a network"
    given = "tree" if isinstance(network, Tree) else "mesh or torus"
    names = {"tree": "a tree", "mesh": "a mesh or torus"}
    return f"it needs a network that is {names[wanted]}, and this one is a {given}"
