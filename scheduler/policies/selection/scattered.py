"""Selections on a mesh or torus that accept any free processors and keep the jobs compact.

V. Lo, K. Windisch, W. Liu and B. Nitzberg, "Noncontiguous processor allocation algorithms for
mesh-connected multicomputers" (TPDS 8, 1997): paging and multiple buddies. V. Leung et al.,
"Processor allocation on Cplant" (CLUSTER 2002): along a space-filling curve.
"""

from __future__ import annotations

from math import prod

import msgspec

from scheduler.model.network import Mesh, Network
from scheduler.model.procset import ProcSet
from scheduler.model.selection import Selection
from scheduler.model.space import Space
from scheduler.policies.selection.submesh import free_nodes


class Paging(Selection, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Select the first free pages: boxes of nodes in row-major order.

    Pages that are entirely free are taken first, then the free processors of others.

    Parameters
    ----------
    side : nodes along each side of a page; pages at the border may be smaller.

    Raises
    ------
    ValueError : `side` is below 1.
    """

    anywhere = True
    topology = "mesh"
    side: int = 2

    def __post_init__(self) -> None:
        """Check the range."""
        if self.side < 1:
            raise ValueError(f"side must be >= 1, got {self.side}")

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose this many free processors by pages."""
        from scheduler.model import mesh_nodes  # late: NumPy is slow to import

        nodes = free_nodes(space)
        return nodes.along(mesh_nodes.by_pages(nodes, self.side), space.free, processors)

    def held(self, processors: int, per_node: int, network: Network | None) -> int:
        """Processors of whole pages, which a job gets on an exclusive machine."""
        assert isinstance(network, Mesh), "the core checked the network"
        page = network.processors_per_node * prod(min(self.side, size) for size in network.dims)
        return min(-(-processors // page) * page, network.processors)


class MultipleBuddies(Selection, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Select as few free blocks as possible: aligned cubes whose sides are powers of two.

    The number of nodes is written in base 2**d for d dimensions; each digit is the number of blocks
    of a size. A block that is missing is cut from the smallest larger one, or else replaced by 2**d
    smaller ones. Blocks join with their buddies as soon as all are free. Processors that need less
    than a node, or find no free node, are taken from nodes in part.
    """

    anywhere = True
    topology = "mesh"

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose this many free processors by blocks."""
        from scheduler.model import mesh_nodes  # late: NumPy is slow to import

        return mesh_nodes.by_buddies(free_nodes(space), space.free, processors)


class HilbertCurve(Selection, msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Select the shortest section of the Hilbert curve with enough free processors.

    Of sections of equal length the first one is taken.
    """

    anywhere = True
    topology = "mesh"

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose this many free processors along the curve."""
        from scheduler.model import mesh_nodes  # late: NumPy is slow to import

        nodes = free_nodes(space)
        return nodes.along(mesh_nodes.section(nodes, processors), space.free, processors)
