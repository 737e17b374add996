"""Schedules on one machine by the interface, from objects such as those of engines."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import msgspec

from scheduler.clock.loop import Watch
from scheduler.config.machine_file import Platform
from scheduler.model.procset import ProcSet
from scheduler.policies.scenario import Scenario
from simulator import Experiment, Jobs
from simulator.engine.physics import ContiguityGain, Sharing, SharingRules
from simulator.results.schedule import Schedule
from simulator.traces.normalise import Rules
from simulator.traces.swf import Trace
from simulator.workload_models.advance_reservations import PlannedReservation
from simulator.workload_models.workload import Workload


def run(
    workload: Trace | Workload,
    machine: int | Platform,
    scenario: Scenario,
    rules: Rules | None = None,
    *,
    first: int | None = None,
    counted: bool | None = None,
    contiguity_speedup: float | None = None,
    dispersal_exponent: float = inf,
    sharing: Sharing | None = None,
    advance: Sequence[PlannedReservation] = (),
    watch: Watch | None = None,
    **fields: Any,
) -> Schedule:
    """Simulate jobs on a machine, or on a number of processors.

    Parameters
    ----------
    counted : False names the processors of each job.
    fields : further ones of the experiment.
    """
    jobs = Jobs(workload)
    if rules is not None:
        jobs = jobs.with_rules(**msgspec.structs.asdict(rules))
    if first is not None:
        jobs = jobs.first(first)
    if sharing is not None:
        machine = _shared(machine, sharing)
        rule = SharingRules(
            sharing.windows, sharing.penalty, sharing.overtime, sharing.demand_error
        )
        fields |= {"sharing": rule, "seed": sharing.seed if sharing.demand_error else None}
    if contiguity_speedup:
        fields["contiguity"] = ContiguityGain(contiguity_speedup, dispersal_exponent)
    size = "processors" if isinstance(machine, int) else "machine"
    experiment = Experiment(
        jobs,
        scenario=scenario,
        select=scenario.selection if counted is False else None,
        advance_reservations=list(advance) or None,
        **{size: machine},
        **fields,
    )
    return experiment.run(watch=watch).schedule


def _shared(machine: int | Platform, sharing: Sharing) -> Platform:
    """Machine with nodes of the size and the capacities that jobs share."""
    size = machine if isinstance(machine, int) else machine.processors
    per_node, amounts = sharing.processors_per_node, sharing.amounts
    nodes = ProcSet.span(0, size // per_node)
    return Platform(nodes, processors_per_node=per_node, shared_per_node=amounts)
