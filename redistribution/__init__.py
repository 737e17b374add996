"""Move distributed arrays between layouts: plan without MPI, then run over a communicator."""

from redistribution.checksum import checksum
from redistribution.layout import BlockCyclic, Cuts, Layout, Replicated
from redistribution.plan import Plan

__all__ = ["BlockCyclic", "Cuts", "Layout", "Plan", "Replicated", "checksum"]
