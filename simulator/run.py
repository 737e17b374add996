"""Simulate a workload on a machine under a scenario: the one function behind every simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import msgspec
import numpy as np

from reshape.collection import no_collection
from reshape.errors import ConfigError
from scheduler.config import machine_file as platform
from scheduler.config.machine_file import Platform
from scheduler.core.core import Core
from scheduler.core.partition import EventOrder
from scheduler.model.events import Event
from scheduler.model.machine import Machine
from scheduler.model.mesh.mesh import Mesh
from scheduler.model.orders import Order
from scheduler.model.selection import Selection
from scheduler.policies.scenario import Scenario
from scheduler.policies.selection.first_fit import FirstFit
from scheduler.virtual_clock.loop import Watch
from simulator.engine.costs import Contiguity
from simulator.engine.engine import Engine
from simulator.engine.sharing import Sharing
from simulator.results.dispersal import Dispersal
from simulator.results.fragmentation import ExternalLoss, fragmentation
from simulator.results.penalties import penalties
from simulator.results.schedule import Schedule
from simulator.traces.normalise import Rules, TraceJobs, normalise
from simulator.traces.swf import Trace
from simulator.workloads.advance_reservations import (
    PlannedReservation,
    granted,
    in_list,
    in_trace,
)
from simulator.workloads.workload import Workload


def run(
    workload: Trace | Workload,
    machine: int | Platform,
    scenario: Scenario,
    rules: Rules | None = None,
    *,
    event_order: str = "batch",
    counted: bool | None = None,
    first: int | None = None,
    contiguity_speedup: float | None = None,
    dispersal_exponent: float = inf,
    dispersal: bool = False,
    sharing: Sharing | None = None,
    watch: Watch | None = None,
    advance: Sequence[PlannedReservation] = (),
) -> Schedule:
    """Simulate a workload.

    Parameters
    ----------
    workload : a trace, whose jobs are rigid, or single jobs that may be resizable.
    machine : or its number of processors, for a machine that is nothing else.
    rules : of cleaning a trace.
    event_order : "batch" or "sequential"; see `Core`.
    counted : whether the core counts processors instead of allocating individual ones, which is
        faster. By default it counts those of a trace, unless the scenario has a selection other
        than first fit. Single jobs always get individual ones; False keeps them in the schedule.
    first : number of jobs to simulate, by submission; None: all.
    contiguity_speedup : gain of jobs on contiguous processors (`Contiguity`), not together with
        sharing. The core then kills jobs of a trace at their request; the rules do not cut the run
        times beforehand (`rules_of_run`).
    dispersal_exponent : how fast this gain falls with the distance of the processors
        (`Contiguity`).
    dispersal : measure the dispersal of the jobs on a tree; on a mesh or torus it always is, if the
        processors are kept.
    sharing : how jobs share nodes; for a trace it needs ``counted=False``. If it kills jobs at
        their requests, the rules do not cut the run times beforehand. Single jobs need its windows
        "changes".
    watch : called with (time, events, orders) of each instant, for single jobs.
    advance : advance reservations; they need ``counted=False``.

    Raises
    ------
    ReshapeError : no job can run by the rules, or a rule refuses one; scenario and machine do not
        go together, or scenario, sharing and the gain of contiguity.
    """
    machine = platform.flat(machine) if isinstance(machine, int) else machine
    contiguity = None
    if contiguity_speedup:
        contiguity = Contiguity(contiguity_speedup, machine.network, dispersal_exponent)
    _check_sharing(scenario, sharing, contiguity)
    if isinstance(workload, Workload):
        return _run_jobs(
            workload,
            machine,
            scenario,
            event_order,
            watch=watch,
            advance=advance,
            sharing=sharing,
            contiguity=contiguity,
            keeps_places=counted is False,
            dispersal=dispersal,
        )
    has_own_selection = scenario.selection != FirstFit()
    if counted and has_own_selection:
        raise ConfigError(
            "has no effect if processors are only counted; leave counted out, or this selection",
            field="selection",
        )
    counted = not has_own_selection if counted is None else counted
    rules = Rules() if rules is None else rules
    trace = _with_resources_of(machine, workload)
    rules, kill = rules_of_run(rules, sharing, contiguous_gain=contiguity is not None)
    jobs, report = normalise(trace, machine.processors, rules, labels=predicts(scenario))
    jobs = jobs if first is None else jobs.first(first)
    requested, jobs = jobs.processors, _whole_nodes(jobs, machine, scenario.selection)
    resources = trace.capacities()
    if sharing is not None:
        machine = _shared(machine, sharing)
    elif not machine.shared_per_node:
        shared = trace.shared_capacities()
        machine = msgspec.structs.replace(machine, shared_per_node=shared)
    core = _core(scenario, machine, resources, event_order, counted=counted, kill=kill)
    loss = _external_loss(core)
    engine = Engine(
        core,
        in_trace(jobs, advance, machine.processors_per_node) if advance else jobs,
        requests=[each.request(float(jobs.submitted[0])) for each in advance],
        watch=loss,
        allocations=not counted,
        estimates=predicts(scenario),
        contiguity=contiguity,
        sharing=sharing,
    )
    with no_collection():
        result = engine.run()
    schedule = Schedule.of(result, jobs, report)
    if advance:
        schedule = msgspec.structs.replace(schedule, advance=granted(result.answers))
    if core.redirector is None and not counted:
        found = fragmentation(schedule, 0.0 if loss is None else loss.lost, requested)
        schedule = msgspec.structs.replace(schedule, fragmentation=found)
    if not counted and (isinstance(machine.network, Mesh) or (dispersal and machine.network)):
        held = result.allocated or {}
        places = (held.get(place) for place in range(1, len(jobs) + 1))
        measured = Dispersal.of(machine.network, places)
        schedule = msgspec.structs.replace(schedule, dispersal=measured)
    if sharing is not None:
        schedule = msgspec.structs.replace(schedule, penalties=penalties(schedule))
    return schedule


def _run_jobs(
    workload: Workload,
    machine: Platform,
    scenario: Scenario,
    event_order: str,
    *,
    watch: Watch | None,
    advance: Sequence[PlannedReservation],
    sharing: Sharing | None,
    contiguity: Contiguity | None,
    keeps_places: bool,
    dispersal: bool,
) -> Schedule:
    """Simulate single jobs."""
    if machine.exclusive:
        raise ConfigError(
            "exclusive nodes do not apply to resizable jobs, whose sizes are numbers of processors:"
            " leave exclusive out of the machine file",
            field="exclusive",
        )
    if sharing is not None:
        if sharing.windows != "changes":
            raise ConfigError(
                "--sharing table does not apply to resizable jobs, which change their windows: give"
                " --sharing changes",
                field="sharing",
            )
        machine = _shared(machine, sharing)
    jobs = sorted(workload.jobs, key=lambda job: job.at)
    kill = workload.kills or (sharing is not None and sharing.overtime == "kill")
    core = _core(scenario, machine, {}, event_order, counted=False, kill=kill, keep_ended=True)
    loss = _external_loss(core) if keeps_places else None
    engine = Engine(
        core,
        in_list(jobs, advance, machine.processors_per_node) if advance else jobs,
        requests=[each.request(jobs[0].at) for each in advance],
        cost=workload.cost,
        start_s=workload.start_s,
        end_s=workload.end_s,
        watch=_both(watch, loss),
        allocations=keeps_places,
        estimates=predicts(scenario),
        contiguity=contiguity,
        sharing=sharing,
    )
    result = engine.run()
    schedule = Schedule.of(result, workload.columns())
    found: dict[str, Any] = {"advance": granted(result.answers)}
    if keeps_places and core.redirector is None:
        lost = 0.0 if loss is None else loss.lost
        found["fragmentation"] = fragmentation(schedule, lost, schedule.jobs.processors)
    network = machine.network
    if schedule.places is not None and network and (isinstance(network, Mesh) or dispersal):
        numbers = range(1, len(schedule.ended) + 1)
        ends = zip(numbers, schedule.ended.tolist(), strict=True)
        held = ((schedule.places.get(number, ()), end) for number, end in ends)
        found["dispersal"] = Dispersal.over_time(network, held)
    if sharing is not None:
        found["penalties"] = penalties(schedule)
    return msgspec.structs.replace(schedule, **found)


def rules_of_run(
    rules: Rules, sharing: Sharing | None, *, contiguous_gain: bool
) -> tuple[Rules, bool]:
    """Rules of cleaning, and whether the core kills jobs at their walltimes.

    Neighbours and places change run times, so that these rules do not cut them beforehand.

    Parameters
    ----------
    contiguous_gain : whether jobs gain by contiguous processors.
    """
    kills = sharing is not None and sharing.overtime == "kill"
    if rules.overrun == "cut" and (kills or contiguous_gain):
        return msgspec.structs.replace(rules, overrun="keep"), True
    return rules, kills


def _check_sharing(
    scenario: Scenario, sharing: Sharing | None, contiguity: Contiguity | None
) -> None:
    if sharing is None:
        return
    if scenario.redirection is not None:
        raise ConfigError("jobs that share nodes cannot be redirected", field="redirection")
    if contiguity is not None:
        raise ConfigError(
            "--sharing and --contiguity-speedup both change run times, and no model combines them:"
            " leave one out",
            field="sharing",
        )


def _shared(machine: Platform, sharing: Sharing) -> Platform:
    """Machine with the capacities of shared nodes."""
    return msgspec.structs.replace(
        machine, shared_per_node=sharing.amounts, shared_penalty=sharing.penalty
    )


def _both(first: Watch | None, second: Watch | None) -> Watch | None:
    """Watch that calls two others, either of which may be missing."""
    if first is None or second is None:
        return first or second

    def watch(now: float, events: list[Event], orders: list[Order]) -> None:
        first(now, events, orders)
        second(now, events, orders)

    return watch


def predicts(scenario: Scenario) -> bool:
    """Whether estimates of run times differ from the requests."""
    return scenario.estimates.predictor() is not None


def _with_resources_of(machine: Platform, trace: Trace) -> Trace:
    """Trace whose header names the further resources of the machine in place of its own."""
    declared = trace.capacities()
    named = {name: machine.resources[name] for name in declared if name in machine.resources}
    amounts = declared | named
    if amounts == declared:
        return trace
    line = "; Resources: " + " ".join(f"{name}={amount}" for name, amount in amounts.items())
    return msgspec.structs.replace(trace, header=[line, *trace.header])


def _whole_nodes(jobs: TraceJobs, machine: Platform, selection: Selection) -> TraceJobs:
    """Round requests up to what the selection holds for them, if nodes are exclusive."""
    if not machine.exclusive:
        return jobs
    per_node, network = machine.processors_per_node, machine.network
    sizes, place = np.unique(jobs.processors, return_inverse=True)
    held = [selection.held(size, per_node, network) for size in sizes.tolist()]
    whole = np.array(held, dtype=np.int64)
    return msgspec.structs.replace(jobs, processors=whole[place])


def _external_loss(core: Core) -> ExternalLoss | None:
    """Count of what contiguity costs; None with a redirection group, or if any processors do."""
    partition = core.partitions[0]
    return ExternalLoss(partition) if core.redirector is None and partition.state.placing else None


def _core(
    scenario: Scenario,
    platform: Platform,
    resources: Mapping[str, int],
    event_order: str,
    *,
    counted: bool,
    kill: bool,
    keep_ended: bool = False,
) -> Core:
    """Core for a machine, with a redirection group beside it if the scenario has one.

    Parameters
    ----------
    kill : kill jobs at their walltimes; False if the rules have decided about their run times.
    """
    machine = platform.machine(resources, counted=counted)
    order: EventOrder = "sequential" if event_order == "sequential" else "batch"
    group = None
    if scenario.redirection is not None:
        try:
            extra = scenario.redirection.group_size(platform.processors)
        except ValueError as error:
            raise ConfigError(str(error), field="redirection") from None
        group = Machine([("redirection", extra)], counted=counted, numbering=machine.numbering)
    return Core(scenario, machine, group, kill_at_walltime=kill, order=order, keep_ended=keep_ended)
