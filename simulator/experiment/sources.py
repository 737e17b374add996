"""Jobs and machine of an experiment as an engine takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from reshape.errors import ConfigError, ReshapeError, nearest
from scheduler.config import machine_file
from scheduler.config.machine_file import Platform
from scheduler.model.events import JobSpec
from scheduler.model.interfaces import Selection
from scheduler.model.sharing import DIRECTIONS
from scheduler.policies.pools.options import PoolOptions
from scheduler.policies.scenarios import predicts
from simulator.engine.costs import NO_COSTS, Costs
from simulator.engine.jobs import SimJob
from simulator.engine.physics import Sharing
from simulator.experiment.jobs import processors_of
from simulator.experiment.settings import Settings
from simulator.many_centres.rules import CentreDescription
from simulator.traces.derived import origins, scaled
from simulator.traces.normalise import (
    CleaningReport,
    Rules,
    machine_size,
    normalise,
)
from simulator.traces.swf import SHARED, Trace
from simulator.traces.trace_jobs import TraceJobs
from simulator.workload_models.advance_reservations import in_list, in_trace
from simulator.workload_models.workload import Workload, of_trace


class Source(NamedTuple):
    """Jobs of a simulation and the machine for them.

    Parameters
    ----------
    columns : the jobs, in the order of submission.
    requested : (n,) int64, processors that users requested.
    resources : amounts of further ones, by the header of a trace or the machine.
    counted : count processors instead of numbering them.
    keeps_places : keep the processors of each job.
    kill : kill jobs at their walltimes; False if the rules have decided about their run times.
    single : the same jobs with programs of their own; None: all are rigid.
    costs : of single jobs.
    remarks : sentences about what has no effect.
    too_long : number of jobs that were left out because no allocation of the pool lasts so long.
    homes : name of the home centre of each job, "" for none; empty: there is one machine.
    """

    columns: TraceJobs
    machine: Platform
    requested: NDArray[np.int64]
    sharing: Sharing | None
    resources: Mapping[str, int] = {}
    counted: bool = False
    keeps_places: bool = False
    kill: bool = False
    single: Sequence[SimJob] | None = None
    costs: Costs = NO_COSTS
    report: CleaningReport | None = None
    remarks: tuple[str, ...] = ()
    too_long: int = 0
    homes: Sequence[str] = ()

    @property
    def rigid(self) -> bool:
        """Whether no job can be resized."""
        return self.single is None or not any(job.spec.resizable for job in self.single)

    def specs(self) -> list[JobSpec]:
        """Request of each job."""
        return self.columns.specs() if self.single is None else [job.spec for job in self.single]


def source_of(settings: Settings, loaded: Trace | Workload, machine: Platform) -> Source:
    """Jobs of an experiment, ready to run.

    Parameters
    ----------
    machine : see `machine_for`.

    Raises
    ------
    ReshapeError : no job can run by the rules, or a rule refuses one; a job does not go with the
        machine.
    """
    amounts = loaded.capacities(SHARED) if isinstance(loaded, Trace) else {}
    sharing = settings.sharing_on(machine, amounts)
    if sharing is not None:
        machine = replace(
            machine, shared_per_node=sharing.amounts, shared_penalty=sharing.penalty or "excess"
        )
    rules, kills = _rules_of_run(settings, sharing)
    if isinstance(loaded, Trace):
        loaded = _with_resources_of(machine, loaded)
        _check_resources(machine, loaded.capacities())
    homes: list[str] = []
    if isinstance(loaded, Workload):
        _check_only_processors(settings, loaded.columns)
        if settings.centres is not None:
            loaded, homes = _with_homes(loaded, settings.centres)
        elif settings.jobs.fields.workload is not None and settings.pool is None:
            _check_demands(settings.jobs.fields.workload, loaded, machine)
        source = _single_jobs(settings, loaded, machine, sharing, _resources_of(loaded, machine))
    elif (how := settings.jobs.fields.resizable) is not None:
        jobs, report = cleaned(settings, loaded, machine.processors, rules)
        size, seed = machine.processors, settings.seed or 0
        workload = of_trace(jobs, size, how, seed, kills=kills, limits=machine.limits)
        source = _single_jobs(settings, workload, machine, sharing, loaded.capacities())
        source = source._replace(report=report)
    else:
        source = _columns(settings, loaded, machine, sharing, rules)._replace(kill=kills)
    source = source._replace(remarks=tuple(_without_effect(source)))
    if settings.pool_options is not None:
        source = _on_pool(source, settings.pool_options)
    elif settings.centres is not None:  # each has processors of its own, with the same numbers
        if isinstance(loaded, Trace):
            names = origins(loaded)
            homes = [names[line] for line in source.columns.lines]
        source = source._replace(keeps_places=False, homes=homes)
    planned = settings.reservations
    if not planned:
        return source
    per_node = machine.processors_per_node
    if source.single is not None:
        return source._replace(single=in_list(source.single, planned, per_node))
    return source._replace(columns=in_trace(source.columns, planned, per_node))


def _on_pool(source: Source, options: PoolOptions) -> Source:
    """Source without the jobs that no allocation of a pool lasts long enough for."""
    from simulator.pools import short_enough  # late, as all that few runs need

    fits, single = short_enough(source.columns, options), source.single
    if not fits.all():
        source = source._replace(
            columns=source.columns.select(fits),
            single=None if single is None else list(compress(single, fits.tolist())),
            too_long=int((~fits).sum()),
        )
    return source._replace(counted=False, keeps_places=single is None)


def _with_homes(
    workload: Workload, centres: Sequence[CentreDescription]
) -> tuple[Workload, list[str]]:
    """Jobs for several centres, and the home centre of each, which its partition names."""
    names = [centre.name for centre in centres]
    jobs = sorted(workload.jobs, key=lambda job: job.at)
    for number, job in enumerate(jobs, 1):
        spec = job.spec
        if spec.partition and spec.partition not in names:
            raise ReshapeError(
                f"job {number} names partition {spec.partition!r}, which is no centre"
                f"{nearest(spec.partition, names)}; the partition of a job at centres is its home"
            )
        depends = spec.conditions is not None and spec.conditions.dependency is not None
        if depends or spec.array is not None or spec.task_of is not None:
            what = "depends on others" if depends else "is an array"
            raise ReshapeError(
                f"job {number} {what}, and each centre knows only the jobs that came to it:"
                " simulate these jobs on one machine"
            )
    plain = [replace(job, spec=replace(job.spec, partition="")) for job in jobs]
    return replace(workload, jobs=plain), [job.spec.partition for job in jobs]


def _check_only_processors(settings: Settings, jobs: TraceJobs) -> None:
    """Check that no job requests further resources of a pool or of centres, which have none."""
    if settings.pool is None and settings.centres is None:
        return
    for name, amounts in jobs.resources.items():
        if amounts.any():
            index = int(np.argmax(amounts > 0))
            place = "centres" if settings.pool is None else "a pool"
            raise ReshapeError(
                f"job {jobs.numbers[index]} requests {name}={amounts[index]}, and the nodes of"
                f" {place} have only processors: simulate these jobs on one machine"
            )


def _without_effect(source: Source) -> Iterator[str]:
    """Sentences about amounts of the machine that no job requests, and demands without effect."""
    sharing = source.sharing
    for name in source.machine.resources_per_node:
        if name not in source.columns.resources:
            yield f"{name} in resources_per_node has no effect, because no job requests it"
            break
    demanded = _demanded(source)
    if sharing is None:
        return
    shared = set(sharing.amounts)
    if not any(_names_of(name) & shared for name in demanded):
        yield f"sharing has no effect, because no job demands {', '.join(sorted(shared))}"
    elif missing := sorted(name for name in demanded if not _names_of(name) & shared):
        yield f"the demands for {', '.join(missing)} have no effect: nodes have no amount of them"


def _demanded(source: Source) -> set[str]:
    """Shared resources that jobs demand."""
    if source.single is not None:
        return {name for job in source.single for name, n in job.spec.shared.items() if n}
    return {name for name, column in source.columns.shared.items() if column.any()}


def _names_of(demand: str) -> set[str]:
    """Names under which nodes may have what a demand names, which may have a direction."""
    return {demand, *(demand.removesuffix(direction) for direction in DIRECTIONS)}


def _columns(
    settings: Settings, trace: Trace, machine: Platform, sharing: Sharing | None, rules: Rules
) -> Source:
    """Rigid jobs of a trace, as columns."""
    jobs, report = cleaned(settings, trace, machine.processors, rules)
    requested, jobs = jobs.processors, _whole_nodes(jobs, machine, settings.chosen.selection)
    if sharing is None and not machine.shared_per_node:
        machine = replace(machine, shared_per_node=trace.capacities(SHARED))
    amounts, counted = trace.capacities(), settings.counted
    return Source(jobs, machine, requested, sharing, amounts, counted, not counted, report=report)


def _single_jobs(
    settings: Settings,
    workload: Workload,
    machine: Platform,
    sharing: Sharing | None,
    resources: Mapping[str, int],
) -> Source:
    """Jobs that may be resizable, each with a program; they request `resources`, by name."""
    workload = _in_partitions(workload, machine)
    columns = workload.columns
    return Source(
        columns,
        machine,
        columns.processors,
        sharing,
        resources,
        keeps_places=settings.individual,
        kill=workload.kills or (sharing is not None and sharing.overtime == "kill"),
        single=sorted(workload.jobs, key=lambda job: job.at),
        costs=workload.costs,
    )


def _rules_of_run(settings: Settings, sharing: Sharing | None) -> tuple[Rules, bool]:
    """Rules of cleaning, and whether the core kills jobs at their walltimes.

    Neighbours and places change run times, so that these rules do not cut them beforehand.
    """
    rules, kills = settings.rules, sharing is not None and sharing.overtime == "kill"
    if rules.overrun == "cut" and (kills or settings.gain is not None):
        return replace(rules, overrun="keep"), True
    return rules, kills


def machine_for(settings: Settings, loaded: Trace | Workload) -> tuple[Platform, str]:
    """Machine of an experiment, or one of as many processors as it or its jobs name.

    For a pool it has all nodes, and for centres as many processors as the largest one.

    Returns
    -------
    the machine, and a note if its size is a guess

    Raises
    ------
    ReshapeError : neither names any.
    """
    if settings.platform is not None:
        return settings.platform, ""
    if settings.centres is not None:
        return machine_file.flat(max(centre.processors for centre in settings.centres)), ""
    if settings.pool_options is not None:
        pool = settings.pool_options
        return machine_file.flat(pool.max_nodes * pool.processors), ""
    size, note = settings.processors, ""
    if size is None:
        size, note = processors_of(loaded)
    if size is None and isinstance(loaded, Trace):
        size = machine_size(loaded)  # its error names the largest job
    if size is None:
        raise ConfigError(
            f"{settings.jobs.source} names no processors; give their number", field="processors"
        )
    return machine_file.flat(size), note


def with_load(settings: Settings, trace: Trace, processors: int) -> Trace:
    """Trace with the wanted offered load, by the jobs that run."""
    if settings.load is None:
        return trace
    jobs, _ = cleaned(settings, trace, processors, settings.rules)
    return scaled(trace, jobs, processors, settings.load)


def cleaned(
    settings: Settings, trace: Trace, processors: int, rules: Rules
) -> tuple[TraceJobs, CleaningReport]:
    """Jobs of a trace that the rules keep and the experiment takes."""
    limits = None if settings.platform is None else settings.platform.limits
    field = settings.partition_field
    labels = settings.centres is not None or predicts(settings.chosen)
    jobs, report = normalise(
        trace, processors, rules, labels=labels, limits=limits, partition_field=field
    )
    first = settings.jobs.fields.first
    jobs = jobs if first is None else jobs.first(first)
    _check_only_processors(settings, jobs)
    return jobs, report


def _check_resources(machine: Platform, resources: Mapping[str, int]) -> None:
    """Check that all further resources belong to nodes, if partitions divide these."""
    of_none = [name for name in resources if name not in machine.resources_per_node]
    if machine.partitions and of_none:
        raise ConfigError(
            f"the trace declares {of_none[0]}, of which no partition has its own: name it in the"
            " resources_per_node of the machine file",
            field="partitions",
        )


def _resources_of(workload: Workload, machine: Platform) -> dict[str, int]:
    """How much the machine has of the further resources that jobs of a workload request."""
    installed = machine.resources
    for number, job in enumerate(workload.jobs, 1):
        for name in job.spec.resources:
            if name not in installed:
                raise ReshapeError(
                    f"job {number} requests {name}, of which the machine has none: name it in the"
                    " resources_per_node of the machine"
                )
    requested = {name for job in workload.jobs for name in job.spec.resources}
    return {name: amount for name, amount in installed.items() if name in requested}


def _check_demands(path: str, workload: Workload, machine: Platform) -> None:
    """Check that the nodes have what jobs of a workload demand of them."""
    for number, job in enumerate(workload.jobs, 1):
        for name, amount in job.spec.shared.items():
            if amount and not _names_of(name) & machine.shared_per_node.keys():
                raise ReshapeError(
                    f"{path}: job {number}: demand.{name}: the nodes of the machine have no {name}"
                    " that processes share: name it in shared_per_node of the machine"
                )


def _in_partitions(workload: Workload, machine: Platform) -> Workload:
    """Workload whose jobs name their partitions, if the machine has any."""
    jobs = []
    for number, job in enumerate(workload.jobs, 1):
        spec = job.spec
        if machine.limits is not None:
            request = spec.partition, spec.processors, spec.largest, spec.walltime_s
            try:
                name = machine.limits.check(*request)
            except ReshapeError as error:
                raise ReshapeError(f"job {number}: {error}") from None
            jobs.append(replace(job, spec=replace(spec, partition=name)))
        elif spec.partition:
            raise ReshapeError(
                f"job {number} names partition {spec.partition!r}, and the machine has none: give a"
                " machine with partitions"
            )
    return replace(workload, jobs=jobs) if jobs else workload


def _with_resources_of(machine: Platform, trace: Trace) -> Trace:
    """Trace whose header names the further resources of the machine in place of its own."""
    declared = trace.capacities()
    named = {name: machine.resources[name] for name in declared if name in machine.resources}
    amounts = declared | named
    if amounts == declared:
        return trace
    line = "; Resources: " + " ".join(f"{name}={amount}" for name, amount in amounts.items())
    return replace(trace, header=[line, *trace.header])


def _whole_nodes(jobs: TraceJobs, machine: Platform, selection: Selection) -> TraceJobs:
    """Round requests up to what the selection holds for them, if nodes are exclusive."""
    if not machine.exclusive:
        return jobs
    per_node, network = machine.processors_per_node, machine.network
    sizes, index = np.unique(jobs.processors, return_inverse=True)
    held = [selection.held(size, per_node, network) for size in sizes.tolist()]
    whole = np.array(held, dtype=np.int64)
    return replace(jobs, processors=whole[index])
