"""Simulate a workload on one machine under a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.collection import no_collection
from reshape.errors import ConfigError, ReshapeError
from scheduler.config import machine_file as platform
from scheduler.config.machine_file import Platform
from scheduler.core.core import Core
from scheduler.core.partition import EventOrder
from scheduler.model.events import REDIRECTION, Event
from scheduler.model.machine import Machine
from scheduler.model.mesh.mesh import Mesh
from scheduler.model.network import Network
from scheduler.model.orders import Order
from scheduler.model.selection import Selection
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import by_partition
from scheduler.policies.selection.first_fit import FirstFit
from scheduler.virtual_clock.loop import Tick, Watch
from simulator.engine.costs import Contiguity, ResizeCost
from simulator.engine.engine import Engine
from simulator.engine.jobs import SimJob, Submissions
from simulator.engine.sharing import Sharing
from simulator.results.dispersal import Dispersal
from simulator.results.fragmentation import ExternalLoss, fragmentation
from simulator.results.penalties import penalties
from simulator.results.schedule import Schedule
from simulator.traces.feedback import Feedback
from simulator.traces.normalise import CleaningReport, Rules, TraceJobs, normalise
from simulator.traces.partitions import PartitionField, TracePartitions
from simulator.traces.swf import Trace
from simulator.workload_models.advance_reservations import (
    PlannedReservation,
    granted,
    in_list,
    in_trace,
)
from simulator.workload_models.workload import Workload


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
    partition_field: PartitionField = "partition",
    feedback: Trace | None = None,
    tick: Tick | None = None,
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
    partition_field : field of a trace that numbers the partitions of the machine, if it has any.
    tick : called with the time now and then.
    feedback : trace of the jobs, to submit them after their preceding ones; see `Feedback`.

    Raises
    ------
    ReshapeError : no job can run by the rules, or a rule refuses one; scenario and machine do not
        go together, or scenario, sharing and the gain of contiguity.
    """
    machine = platform.flat(machine) if isinstance(machine, int) else machine
    contiguity = None
    if contiguity_speedup:
        contiguity = Contiguity(contiguity_speedup, machine.network, dispersal_exponent)
    scenario = machine.scenario(scenario)
    _check_sharing(scenario, sharing, contiguity)
    if isinstance(workload, Workload):
        source = _single_jobs(workload, machine, sharing, keeps_places=counted is False)
    else:
        rules, kill = rules_of_run(rules or Rules(), sharing, contiguous_gain=bool(contiguity))
        counted = _is_counted(scenario, counted)
        parts = None
        if machine.limits is not None:
            parts = TracePartitions.of(workload, machine.limits, partition_field)
        source = _columns(
            workload, machine, scenario, rules, sharing, first, parts, counted=counted, kill=kill
        )
    follows = None if feedback is None else Feedback.of(feedback, source.jobs)
    order: EventOrder = "sequential" if event_order == "sequential" else "batch"
    core = _core(scenario, source, order)
    loss = _external_loss(core) if source.keeps_places else None
    engine = Engine(
        core,
        _reserved(source, advance, machine.processors_per_node) if advance else source.submissions,
        requests=[each.request(float(source.jobs.submitted[0])) for each in advance],
        cost=source.cost,
        start_s=source.start_s,
        end_s=source.end_s,
        watch=_both(watch, loss),
        allocations=source.keeps_places,
        estimates=predicts(scenario),
        contiguity=contiguity,
        sharing=sharing,
        tick=tick,
        feedback=None if follows is None else (follows.after, follows.think_s),
    )
    with no_collection():
        result = engine.run()
    schedule = Schedule.of(result, _submitted(source.jobs, engine.submitted), source.report)
    measured = _measured(schedule, source, core, loss, machine.network, dispersal=dispersal)
    if sharing is not None:
        measured["penalties"] = penalties(schedule)
    return msgspec.structs.replace(schedule, advance=granted(result.answers), **measured)


def _submitted(jobs: TraceJobs, times: Sequence[float] | None) -> TraceJobs:
    """Jobs with the times at which feedback submitted them; as recorded if it did not."""
    if times is None:
        return jobs
    given = np.array(times)
    submitted = np.where(np.isnan(given), jobs.submitted, given)
    return msgspec.structs.replace(jobs, submitted=submitted)


def _measured(
    schedule: Schedule,
    source: _Source,
    core: Core,
    loss: ExternalLoss | None,
    network: Network | None,
    *,
    dispersal: bool,
) -> dict[str, Any]:
    """What the places of the jobs amount to, as fields of a schedule."""
    found: dict[str, Any] = {}
    if source.keeps_places and len(core.partitions) == 1:
        lost = 0.0 if loss is None else loss.lost
        found["fragmentation"] = fragmentation(schedule, lost, source.requested)
    if source.keeps_places and network and (dispersal or isinstance(network, Mesh)):
        found["dispersal"] = _dispersal(schedule, network)
    return found


def _is_counted(scenario: Scenario, counted: bool | None) -> bool:
    """Whether the processors of rigid jobs are counted.

    Raises
    ------
    ConfigError : they are to be, and the scenario has a selection.
    """
    counts = uses_first_fit(scenario)
    if counted and not counts:
        raise ConfigError(
            "has no effect if processors are only counted; leave counted out, or this selection",
            field="selection",
        )
    return counts if counted is None else counted


class _Source(NamedTuple):
    """Jobs of a simulation and the machine for them.

    Parameters
    ----------
    submissions : the same jobs as an engine takes them.
    requested : (n,) int64, processors that users requested.
    resources : further ones, by the header of a trace.
    counted : count processors instead of numbering them.
    kill : kill jobs at their walltimes; False if the rules have decided about their run times.
    """

    jobs: TraceJobs
    submissions: TraceJobs | list[SimJob]
    machine: Platform
    requested: NDArray[np.int64]
    resources: Mapping[str, int]
    counted: bool
    keeps_places: bool
    kill: bool
    cost: ResizeCost | None = None
    start_s: float = 0.0
    end_s: float = 0.0
    report: CleaningReport | None = None


def _columns(
    workload: Trace,
    machine: Platform,
    scenario: Scenario,
    rules: Rules,
    sharing: Sharing | None,
    first: int | None,
    partitions: TracePartitions | None,
    *,
    counted: bool,
    kill: bool,
) -> _Source:
    """Rigid jobs of a trace, as columns."""
    trace = _with_resources_of(machine, workload)
    jobs, report = normalise(
        trace, machine.processors, rules, labels=predicts(scenario), partitions=partitions
    )
    jobs = jobs if first is None else jobs.first(first)
    requested, jobs = jobs.processors, _whole_nodes(jobs, machine, scenario.selection)
    if sharing is not None:
        machine = _shared(machine, sharing)
    elif not machine.shared_per_node:
        shared = trace.shared_capacities()
        machine = msgspec.structs.replace(machine, shared_per_node=shared)
    capacities = trace.capacities()
    _check_resources(machine, capacities)
    return _Source(
        jobs, jobs, machine, requested, capacities, counted, not counted, kill, report=report
    )


def _single_jobs(
    workload: Workload, machine: Platform, sharing: Sharing | None, *, keeps_places: bool
) -> _Source:
    """Jobs that may be resizable, each with a program."""
    if machine.exclusive:
        raise ConfigError(
            "exclusive nodes do not apply to resizable jobs, whose sizes are numbers of processors:"
            " leave exclusive out of the machine file",
            field="exclusive",
        )
    if sharing is not None:
        if sharing.windows != "changes":
            raise ConfigError(
                "the windows of a table do not apply to resizable jobs, which change theirs: give"
                " windows of changes",
                field="sharing",
            )
        machine = _shared(machine, sharing)
    workload = _in_partitions(workload, machine)
    columns = workload.columns()
    return _Source(
        columns,
        sorted(workload.jobs, key=lambda job: job.at),
        machine,
        columns.processors,
        {},
        False,
        keeps_places,
        workload.kills or (sharing is not None and sharing.overtime == "kill"),
        workload.cost,
        workload.start_s,
        workload.end_s,
    )


def _reserved(
    source: _Source, advance: Sequence[PlannedReservation], per_node: int
) -> Submissions | list[SimJob]:
    """Submissions of which some are made to advance reservations."""
    if isinstance(source.submissions, list):
        return in_list(source.submissions, advance, per_node)
    return in_trace(source.submissions, advance, per_node)


def _dispersal(schedule: Schedule, network: Network) -> Dispersal:
    """Dispersal of the jobs in a network."""
    numbers = range(1, len(schedule.ended) + 1)
    if schedule.places is None:
        held = schedule.allocated or {}
        return Dispersal.of(network, (held.get(number) for number in numbers))
    ends = zip(numbers, schedule.ended.tolist(), strict=True)
    over_time = ((schedule.places.get(number, ()), end) for number, end in ends)
    return Dispersal.over_time(network, over_time)


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
            "sharing and contiguity both change run times, and no model combines them; leave one"
            " out",
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
    """Whether estimates of run times differ from the requests, in any partition."""
    scenarios = by_partition(scenario).values()
    return any(own.estimates.predictor() is not None for own in scenarios)


def uses_first_fit(scenario: Scenario) -> bool:
    """Whether all partitions take the first free processors, so that they may be counted."""
    return all(own.selection == FirstFit() for own in by_partition(scenario).values())


def _check_resources(machine: Platform, resources: Mapping[str, int]) -> None:
    """Check that all further resources belong to nodes, if partitions divide these."""
    of_none = [name for name in resources if name not in machine.resources_per_node]
    if machine.partitions and of_none:
        raise ConfigError(
            f"the trace declares {of_none[0]}, of which no partition has its own: name it in the"
            " resources_per_node of the machine file",
            field="partitions",
        )


def _in_partitions(workload: Workload, machine: Platform) -> Workload:
    """Workload whose jobs name their partitions, if the machine has any.

    Raises
    ------
    ReshapeError : a job names a partition that there is not, or is beyond its limits.
    """
    limits = machine.limits
    jobs = []
    for number, job in enumerate(workload.jobs, 1):
        spec, name = job.spec, ""
        if limits is not None:
            largest = spec.max_processors or spec.processors
            try:
                name = limits.check(spec.partition, spec.processors, largest, spec.walltime_s)
            except ReshapeError as error:
                raise ReshapeError(f"job {number}: {error}") from None
        elif spec.partition:
            raise ReshapeError(
                f"job {number} names partition {spec.partition!r}, and the machine has none: give a"
                " machine with partitions"
            )
        own = spec if limits is None else msgspec.structs.replace(spec, partition=name)
        jobs.append(msgspec.structs.replace(job, spec=own))
    return workload if limits is None else msgspec.structs.replace(workload, jobs=jobs)


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
    """Count of what contiguity costs; None with several partitions, or if any processors do."""
    partition, *others = core.partitions
    return ExternalLoss(partition) if partition.state.placing and not others else None


def _core(scenario: Scenario, source: _Source, order: EventOrder) -> Core:
    """Core for a machine, with its partitions, or a redirection group beside it."""
    machines = source.machine.machines(source.resources, counted=source.counted)
    machine = machines.pop(next(iter(machines)))
    if scenario.redirection is not None and not scenario.partitions:
        try:
            extra = scenario.redirection.group_size(source.machine.processors)
        except ValueError as error:
            raise ConfigError(str(error), field="redirection") from None
        machines[REDIRECTION] = Machine(
            [(REDIRECTION, extra)], counted=source.counted, numbering=machine.numbering
        )
    single = isinstance(source.submissions, list)
    return Core(
        scenario, machine, machines, kill_at_walltime=source.kill, order=order, keep_ended=single
    )
