"""Move distributed arrays between layouts: plan without MPI, then run over a communicator."""

from redistribution.blocks import Blocks, balanced_grid
from redistribution.checksum import checksum
from redistribution.layout import BlockCyclic, Cuts, Dealt, Layout, Replicated
from redistribution.plan import Plan
from redistribution.routes import relabel

__all__ = [
    "BlockCyclic",
    "Blocks",
    "Cuts",
    "Dealt",
    "Layout",
    "Plan",
    "Replicated",
    "balanced_grid",
    "checksum",
    "relabel",
]
