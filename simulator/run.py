"""A trace through the decision core, on a machine: the jobs it gives, the core, what was lost."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from reshape.errors import ConfigError
from scheduler.config import machine_file as platform
from scheduler.config.machine_file import Platform
from scheduler.core.core import Core, EventOrder
from scheduler.model.machine import Machine
from scheduler.policies.scenario import Scenario
from scheduler.sites.site import Site
from scheduler.sites.two_groups import TwoGroupSite
from simulator.commands.usage import uncollected
from simulator.engine.costs import Contiguity
from simulator.engine.engine import Engine
from simulator.results.fragmentation import ExternalLoss, fragmentation
from simulator.results.schedule import Schedule
from simulator.traces import swf
from simulator.traces.normalise import Report, Rules, TraceJobs, normalise


def run(
    trace: swf.Trace,
    machine: int | Platform,
    chosen: Scenario,
    rules: Rules | None = None,
    *,
    event_order: str = "batch",
    counted: bool = True,
    first: int | None = None,
    contiguity_speedup: float | None = None,
) -> tuple[Schedule, Report]:
    """Simulate a trace.

    Parameters
    ----------
    machine : or its number of processors, if that is all there is to it.
    event_order : "batch" or "sequential"; see `Core`.
    counted : count processors instead of telling them apart.
    first : only so many jobs, by submission.
    contiguity_speedup : what jobs gain where their processors are contiguous (`Contiguity`). Runs
        are then cut at the request as they pass it, not beforehand.

    Raises
    ------
    ReshapeError : no job can run by these rules, or a rule refuses one; the policy and the machine
        do not go together.
    """
    rules = Rules() if rules is None else rules
    machine = platform.flat(machine) if isinstance(machine, int) else machine
    trace = _on(machine, trace)
    contiguity = contiguity_speedup and Contiguity(contiguity_speedup, machine.tree)
    cut_later = contiguity and rules.overrun == "cut"
    if cut_later:
        rules = msgspec.structs.replace(rules, overrun="keep")
    jobs, report = normalise(trace, machine.processors, rules)
    jobs = jobs if first is None else jobs.first(first)
    asked, jobs = jobs.processors, _whole_nodes(jobs, machine)
    kill, resources = bool(cut_later), trace.capacities()
    core = _core(chosen, machine, resources, event_order, counted=counted, kill=kill)
    loss = ExternalLoss(core) if isinstance(core, Core) and core.view.placing else None
    engine = Engine(core, jobs, allocations=not counted, watch=loss, contiguity=contiguity or None)
    with uncollected():
        engine.run()
    schedule = Schedule.of(engine, jobs)
    if isinstance(core, Core) and not counted:
        found = fragmentation(schedule, 0.0 if loss is None else loss.lost, asked)
        schedule = msgspec.structs.replace(schedule, fragmentation=found)
    return schedule, report


def _on(machine: Platform, trace: swf.Trace) -> swf.Trace:
    """Trace on a machine that may have other amounts of its further resources than it says."""
    told = trace.capacities()
    there = told | {name: machine.resources[name] for name in told if name in machine.resources}
    if there == told:
        return trace
    line = "; Resources: " + " ".join(f"{name}={amount}" for name, amount in there.items())
    return msgspec.structs.replace(trace, header=[line, *trace.header])


def _whole_nodes(jobs: TraceJobs, machine: Platform) -> TraceJobs:
    """Let each job ask for whole nodes, if nodes are exclusive."""
    if not machine.exclusive:
        return jobs
    per_node = machine.processors_per_node
    processors = -(-jobs.processors // per_node) * per_node
    return msgspec.structs.replace(jobs, processors=processors.astype(np.int64))


def _core(
    chosen: Scenario,
    platform: Platform,
    resources: Mapping[str, int],
    event_order: str,
    *,
    counted: bool,
    kill: bool,
) -> Site:
    """Core for a machine, with a redirection group beside it if asked for.

    Parameters
    ----------
    kill : end jobs at their walltimes (else the rules have cut the runs, or let them outlive it).
    """
    machine = platform.machine(resources, counted=counted)
    order: EventOrder = "sequential" if event_order == "sequential" else "batch"
    if chosen.redirection is None:
        return Core(chosen, machine, kill_at_walltime=kill, order=order, keep_ended=False)
    try:
        extra = chosen.redirection.group_size(platform.processors)
    except ValueError as error:
        raise ConfigError(str(error), field="redirection") from None
    group = Machine([("redirection", extra)], counted=counted, numbering=machine.numbering)
    return TwoGroupSite(
        chosen, machine, group, kill_at_walltime=kill, order=order, keep_ended=False
    )
