"""How nodes are shared in a simulation: capacities, readings of the model, wrong demands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from scheduler.model.sharing import Demand, PenaltyRule, SharedCapacity, SharedNodes, Windows


class Sharing(msgspec.Struct, frozen=True):
    """Sharing of nodes (GUIM 6.2.4, 6.2.5).

    Parameters
    ----------
    processors_per_node, amounts : of the nodes, see `SharedCapacity`.
    windows : reading of 6.2.5: "table" or "changes"; see `SharedNodes`.
    penalty : reading of (6.2): "excess" or "ratio"; see `SharedCapacity`.
    overtime : "kill" ends a job whose penalised run time exceeds its estimate (6.4); "allow" lets
        it run to its end.
    demand_error : jobs use their declared demand times a factor that is drawn uniformly from
        1 - demand_error to 1 + demand_error, one for each job.
    seed : of these draws.

    Raises
    ------
    ValueError : `demand_error` is not between 0 and 1; see also `SharedCapacity`.
    """

    processors_per_node: int
    amounts: Mapping[str, int]
    windows: Windows = "table"
    penalty: PenaltyRule = "excess"
    overtime: Literal["kill", "allow"] = "kill"
    demand_error: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not 0 <= self.demand_error <= 1:
            raise ValueError(f"demand_error must be >= 0 and <= 1, got {self.demand_error}")
        self.nodes()

    def nodes(self) -> SharedNodes:
        """Nodes without jobs."""
        capacity = SharedCapacity(self.processors_per_node, self.amounts, self.penalty)
        return SharedNodes(capacity, self.windows)

    def demands(self, declared: Sequence[Mapping[str, int]]) -> list[Demand]:
        """What a process of each job uses, from what the jobs declare."""
        capacity = self.nodes().capacity
        demands = [capacity.demand(named) for named in declared]
        if not self.demand_error:
            return demands
        rng = np.random.default_rng(self.seed)
        factors = 1 + self.demand_error * rng.uniform(-1, 1, len(demands))
        return [
            tuple(factor * amount for amount in demand)
            for demand, factor in zip(demands, factors.tolist(), strict=True)
        ]
