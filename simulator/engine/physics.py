"""How the places of jobs change their run times: gain of contiguity, and shared nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Annotated, Literal, TypeAlias

import msgspec
import numpy as np

from reshape.errors import check_ranges
from scheduler.model.network import Network
from scheduler.model.procset import ProcSet
from scheduler.model.sharing import Demand, PenaltyRule, SharedCapacity, SharedNodes, Windows
from simulator.results.placement import compact_distance, mean_distance, network_distance

#: Run time of a job on processors, seconds, from that on processors that are as far apart as those
#: of the network.
RunTimeOn: TypeAlias = Callable[[float, ProcSet], float]


class ContiguityGain(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Gain of jobs on contiguous processors: a run time t becomes t (1 - s (1 - d)**g).

    s and g are speedup and exponent. d is the relative dispersal of the job: 0 if its processors
    are contiguous, 1 if their mean distance is that of the whole network or more, and linear
    between the mean distance of the most compact place and that of the network. With an infinite
    exponent, the default, only contiguous jobs gain, by the constant factor of LOC section 4.

    Processors are contiguous if they lie below one switch of the job's level, in a mesh inside the
    most compact box for their number or, on a flat machine, if their numbers are consecutive.

    Parameters
    ----------
    speedup : share by which they shorten a run time, from 0 to below 1.
    exponent : how fast the gain falls with the distance of the processors in the network; inf: only
        contiguous processors gain.
    """

    speedup: float
    exponent: float = inf

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_ranges(self, speedup=">= 0 and < 1", exponent=">= 0")

    def run_times_in(self, network: Network | None) -> RunTimeOn:
        """Run times on the machine of this network; None: a flat one.

        Raises
        ------
        ValueError : the exponent is finite on a flat machine.
        """
        if network is None and self.exponent < inf:
            raise ValueError(f"exponent {self.exponent} needs a machine with a network")

        def run_s(run_s: float, processors: ProcSet) -> float:
            if network is None:
                contiguous = len(processors.intervals) == 1
            else:
                contiguous = network.contiguous(processors)
            if contiguous:
                return run_s * (1 - self.speedup)
            if network is None or self.exponent == inf:
                return run_s
            near = 1 - relative_dispersal(network, processors)
            return float(run_s * (1 - self.speedup * near**self.exponent))

        return run_s


class SharingRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How jobs prolong each other on shared nodes; see `Sharing` and docs/sharing.md.

    Parameters
    ----------
    windows : when the demand on a node is examined: at the windows of the table of reservations
        ("table"), or at each change ("changes"); the readings of 6.2.5, see `SharedNodes`.
    penalty : rule for the prolongation, a reading of (6.2), see `SharedCapacity`; None: that of the
        machine file, or "excess".
    overtime : what happens to a job that exceeds its walltime because of others: "kill" or "allow".
    demand_error : largest relative error of the declared demands, drawn for each job.
    """

    windows: Windows = "table"
    penalty: PenaltyRule | None = None
    overtime: Literal["kill", "allow"] = "kill"
    demand_error: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


class Sharing(SharingRules, frozen=True, kw_only=True):
    """Sharing of the nodes of a machine (GUIM 6.2.4, 6.2.5).

    Jobs use their declared demand times a factor that is drawn uniformly from 1 - demand_error to
    1 + demand_error, one for each job.

    Parameters
    ----------
    processors_per_node, amounts : of the nodes, see `SharedCapacity`.
    seed : of the draws.

    Raises
    ------
    ValueError : `demand_error` is not between 0 and 1; see also `SharedCapacity`.
    """

    processors_per_node: int
    amounts: Mapping[str, int]
    seed: int = 1

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_ranges(self, demand_error=">= 0 and <= 1")
        self.nodes()

    def nodes(self) -> SharedNodes:
        """Nodes without jobs."""
        capacity = SharedCapacity(self.processors_per_node, self.amounts, self.penalty or "excess")
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


def relative_dispersal(network: Network, processors: ProcSet) -> float:
    """Mean distance of processors between that of the most compact place (0) and the network's."""
    compact = compact_distance(network, processors.count())
    whole = network_distance(network)
    if whole <= compact:
        return 0.0
    apart = (mean_distance(network, processors) - compact) / (whole - compact)
    return min(1.0, max(0.0, apart))
