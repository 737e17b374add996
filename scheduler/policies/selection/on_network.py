"""Selections on a network that keep the processors of a job together.

Trees: LOC, Pascual and Miguel-Alonso, Effects of job placement on scheduling performance, figure 1.
Of a k-ary n-tree, the switches of the job's level (`Tree.level`) are searched in order. The first
one with enough free processors below it is taken, and of these processors those with the lowest
numbers.

Boxes of a mesh or torus: the place of a job is the most compact box for its number of nodes, see
`scheduler.model.network`. All its rotations are tried in ascending order, each at all
positions in row-major order; on a torus a box may cross the border. First fit over sub-meshes:
V. Lo, K. Windisch, W. Liu and B. Nitzberg, "Noncontiguous processor allocation algorithms for
mesh-connected multicomputers" (TPDS 8, 1997), section 2, after Zhu.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import msgspec

from reshape.errors import check_ranges
from scheduler.model.interfaces import Selection
from scheduler.model.network import Mesh, Network, Tree, rotations, wider
from scheduler.model.procset import ProcSet
from scheduler.model.space import Space

if TYPE_CHECKING:
    from scheduler.model.mesh_nodes import FreeNodes


class TreeContiguous(Selection, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Select processors below one switch of the job's level; refuse if no switch has enough.

    Parameters
    ----------
    relax : number of levels above the job's level that are searched in turn if there is no place at
        its own (LOC section 5 plans "one level above - just one").

    Raises
    ------
    ValueError : `relax` is below 0.
    """

    network = "tree"
    relax: int = 0

    def __post_init__(self) -> None:
        """Check the range."""
        check_ranges(self, relax=">= 0")

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose this many free processors below the first switch that has them."""
        interval = self._find(space, processors)
        if interval is None:
            return None
        return space.free.between(*interval).first(processors)

    def fits(self, space: Space, processors: int) -> bool:
        """Whether a switch has this many free processors."""
        return self._find(space, processors) is not None

    def keep(self, then: Space, now: Space, processors: int) -> ProcSet:
        """Processors that must stay free for a job that starts later.

        They lie below the switch that the job will be given, and are as many as the processors that
        will be released below it do not provide. Other jobs may use the rest below that switch.
        """
        interval = self._find(then, processors)
        if interval is None:
            return ProcSet()
        here = now.free.between(*interval)
        back = then.free.between(*interval).count() - here.count()
        return here.last(processors - back)

    def _find(self, space: Space, processors: int) -> tuple[int, int] | None:
        """First and last processor number below the switch; None if no switch has enough."""
        tree = space.network
        assert isinstance(tree, Tree), "the core checked the network"
        level = tree.level(processors)
        if level is None:
            return None
        for higher in range(level, min(level + self.relax, tree.levels) + 1):
            size = tree.below(higher)
            group = space.groups(size).first(processors)
            if group is not None and group * size < tree.processors:
                return group * size, (group + 1) * size - 1
        return None


class TreeRelaxed(TreeContiguous, frozen=True, forbid_unknown_fields=True):
    """Tree-contiguous selection that also accepts a switch one level above the job's own."""

    relax: int = 1


def free_nodes(space: Space) -> FreeNodes:
    """Free processors of each node of the mesh of a space."""
    from scheduler.model.mesh_nodes import FreeNodes  # late: NumPy is slow to import

    mesh = space.network
    assert isinstance(mesh, Mesh), "the core checked the network"
    return cast("FreeNodes", space.view("nodes", lambda free: FreeNodes(mesh, free)))


class Submesh(Selection, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Select processors in the most compact box of nodes; refuse if no place has enough.

    The job gets its number of processors, those with the lowest numbers of the box. If the machine
    is exclusive (a simulation), it gets the whole box.

    Parameters
    ----------
    relax : nodes by which each side may be longer if there is no place for the box itself.

    Raises
    ------
    ValueError : `relax` is below 0.
    """

    network = "mesh"
    relax: int = 0

    def __post_init__(self) -> None:
        """Check the range."""
        check_ranges(self, relax=">= 0")

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose this many free processors in the first box that has them."""
        box = self._find(space, processors)
        if box is None:
            return None
        return (space.free & free_nodes(space).box_set(*box)).first(processors)

    def fits(self, space: Space, processors: int) -> bool:
        """Whether a box has this many free processors."""
        return self._find(space, processors) is not None

    def held(self, processors: int, per_node: int, network: Network | None) -> int:
        """Processors of the whole box, which a job gets on an exclusive machine."""
        assert isinstance(network, Mesh), "the core checked the network"
        return network.held(processors)

    def _find(
        self, space: Space, processors: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """First corner and sides of a box with this many free processors."""
        nodes = free_nodes(space)
        for sides in self._boxes(nodes.mesh, processors):
            corner = nodes.first_box(sides, processors)
            if corner is not None:
                return corner, sides
        return None

    def _boxes(self, mesh: Mesh, processors: int) -> Iterator[tuple[int, ...]]:
        """Sides of the boxes to try, in order."""
        sides = mesh.box(processors)
        if sides is None:
            return
        for step in range(self.relax + 1):
            if step:
                sides = wider(mesh.dims, sides)
            yield from rotations(mesh.dims, sides)


class SubmeshRelaxed(Submesh, frozen=True, forbid_unknown_fields=True):
    """Sub-mesh selection that also accepts a box whose sides are one node longer."""

    relax: int = 1
