"""Simulate an experiment: the one path from its settings to a run."""

from __future__ import annotations

from math import inf

import msgspec
import numpy as np

from reshape.errors import ConfigError
from scheduler.config import machine_file
from scheduler.policies.scenarios import scenario
from simulator.experiment.jobs import processors_of
from simulator.experiment.progress import SimulationProgress
from simulator.experiment.run import SAMPLE_S, Simulation
from simulator.experiment.settings import Settings
from simulator.many_centres.rules import with_estimates
from simulator.results.schedule import Schedule
from simulator.results.window import Window
from simulator.run import predicts, rules_of_run, run
from simulator.traces import swf
from simulator.traces.feedback import COLUMNS as FEEDBACK
from simulator.traces.normalise import (
    LABELS,
    NEEDED,
    CleaningReport,
    Rules,
    TraceJobs,
    machine_size,
    normalise,
)
from simulator.traces.partitions import TracePartitions
from simulator.traces.scaling import scaled
from simulator.traces.swf import Trace
from simulator.workload_models.resizable_trace import of_trace
from simulator.workload_models.workload import Workload


def simulated(
    settings: Settings, *, whole_trace: bool = False, shows_progress: bool = False
) -> Simulation:
    """Simulate an experiment.

    Parameters
    ----------
    whole_trace : read all columns of the trace, so that the run can write it with its waits.
    shows_progress : show progress if it takes more than a few seconds.

    Raises
    ------
    ReshapeError : no job can run by the rules, or a rule refuses one; what does not go together.
    """
    if settings.centres is not None:
        return _at_centres(settings, shows_progress=shows_progress)
    chosen = settings.chosen
    columns: tuple[str, ...] = swf.FIELDS if whole_trace else NEEDED
    if not whole_trace and predicts(chosen):
        columns = (*NEEDED, *LABELS.values())
    if settings.feedback:
        columns = (*columns, *FEEDBACK)
    if settings.platform is not None and settings.platform.partitions:
        columns = (*columns, settings.partition_field)
    loaded = settings.jobs.load(settings.seed, columns=columns, simulated=_under_easy)
    if settings.pool_options is not None:
        return _on_pool(settings, loaded, shows_progress=shows_progress)
    return _on_machine(settings, loaded, shows_progress=shows_progress)


def _progress(settings: Settings, loaded: Trace | Workload, *, shows: bool) -> SimulationProgress:
    """Progress from the first to the last submission."""
    if isinstance(loaded, Trace):
        times = loaded.columns["submit"]
    else:
        times = np.array([job.at for job in loaded.jobs])
    first, last = (float(times.min()), float(times.max())) if len(times) else (0.0, 0.0)
    return SimulationProgress(settings.name, first, last, shows=shows)


def _on_machine(
    settings: Settings, loaded: Trace | Workload, *, shows_progress: bool
) -> Simulation:
    """Simulate on one machine."""
    chosen, trace, report = settings.chosen, None, None
    machine = settings.platform or machine_file.flat(_size(settings, loaded))
    amounts: dict[str, int] = {}
    counted: bool | None = settings.counted
    if isinstance(loaded, Trace):
        loaded = trace = _with_load(settings, loaded, machine.processors)
        amounts = trace.shared_capacities()
    sharing = settings.sharing_on(machine, amounts)
    gain = settings.gain
    workload: Trace | Workload = loaded
    how = settings.resizability
    if trace is not None and how is not None:
        rules, kills = rules_of_run(settings.rules, sharing, contiguous_gain=gain is not None)
        jobs, report = _cleaned(settings, trace, machine.processors, rules)
        size, limits = machine.processors, machine.limits
        workload = of_trace(jobs, size, how, kills=kills, limits=limits)
    if isinstance(workload, Workload):
        counted = False if settings.individual else None
    with _progress(settings, workload, shows=shows_progress) as progress:
        schedule = run(
            workload,
            machine,
            chosen,
            settings.rules,
            event_order=settings.event_order,
            counted=counted,
            first=settings.jobs.fields.first,
            contiguity_speedup=None if gain is None else gain.speedup,
            dispersal_exponent=inf if gain is None else gain.exponent,
            dispersal=settings.dispersal,
            sharing=sharing,
            advance=settings.reservations,
            partition_field=settings.partition_field,
            feedback=trace if settings.feedback else None,
            tick=progress.tick,
        )
    if report is not None:
        schedule = msgspec.structs.replace(schedule, report=report)
    made = Simulation(
        settings.name,
        {"trace": settings.source, "policy": settings.title},
        chosen,
        schedule,
        machine.processors,
        settings.tau_s,
        _is_rigid(workload),
        isinstance(workload, Trace),
        trace,
        sample_s=settings.sample_s or SAMPLE_S,
        price=settings.price,
        site=settings.site,
        counted=bool(counted),
        window=Window(settings.warm_up_s, settings.cool_down_s),
    )
    _ = made.metrics  # an error about the window comes with the run
    return made


def _on_pool(settings: Settings, loaded: Trace | Workload, *, shows_progress: bool) -> Simulation:
    """Simulate on the nodes of an elastic pool."""
    from simulator.pools.run import run_pool  # late, as all that few runs need

    pool, chosen = settings.pool_options, settings.chosen
    assert pool is not None
    size = pool.max_nodes * pool.processors
    workload: TraceJobs | Workload
    trace, report = None, None
    if isinstance(loaded, Workload):
        workload = loaded
    else:
        trace = _with_load(settings, loaded, size)
        workload, report = _cleaned(settings, trace, size, settings.rules)
        if settings.resizability is not None:
            workload = of_trace(workload, size, settings.resizability)
    seed = settings.seed or 0
    with _progress(settings, loaded, shows=shows_progress) as progress:
        ran = run_pool(workload, chosen, pool, settings.waits(), seed, progress.tick)
    return Simulation(
        settings.name,
        {
            "trace": settings.source,
            "policy": settings.title,
            "pool_wait": str(settings.pool_wait),
        },
        chosen,
        msgspec.structs.replace(ran.schedule, report=report),
        ran.schedule.processors,
        settings.tau_s,
        _is_rigid(workload),
        isinstance(workload, TraceJobs),
        trace,
        pool=ran,
        site=settings.site,
    )


def _at_centres(settings: Settings, *, shows_progress: bool) -> Simulation:
    """Simulate at several centres."""
    from simulator.many_centres.run import run_centres  # late, as all that few runs need

    centres, rules = settings.centres, settings.assignment
    assert centres is not None
    if settings.estimates is not None:
        centres, rules = with_estimates(centres, rules, settings.centre_estimates)
    trace = settings.jobs.load(settings.seed, simulated=_under_easy)
    assert isinstance(trace, Trace), "a rule refuses workload files at centres"
    with _progress(settings, trace, shows=shows_progress) as progress:
        ran = run_centres(
            trace,
            centres,
            rules,
            settings.rules,
            first=settings.jobs.fields.first,
            resizability=settings.resizability,
            tick=progress.tick,
        )
    return Simulation(
        settings.name,
        {"trace": settings.source, "assign": settings.assign_name},
        None,
        ran.schedule,
        ran.schedule.processors,
        settings.tau_s,
        settings.resizability is None,
        settings.resizability is None,
        trace,
        centres=ran,
        sample_s=settings.sample_s or SAMPLE_S,
    )


def _size(settings: Settings, loaded: Trace | Workload) -> int:
    """Processors of a machine that is nothing else."""
    size = settings.processors or processors_of(loaded)
    if size is not None:
        return size
    if isinstance(loaded, Trace):
        return machine_size(loaded)  # its error names the largest job
    raise ConfigError(
        f"{settings.source} names no processors; give their number", field="processors"
    )


def _with_load(settings: Settings, trace: Trace, processors: int) -> Trace:
    """Trace with the wanted offered load, by the jobs that run."""
    if settings.load is None:
        return trace
    jobs, _ = _cleaned(settings, trace, processors, settings.rules)
    return scaled(trace, jobs, processors, settings.load)


def _cleaned(
    settings: Settings, trace: Trace, processors: int, rules: Rules
) -> tuple[TraceJobs, CleaningReport]:
    """Jobs of a trace that the rules keep and the experiment takes."""
    limits = None if settings.platform is None else settings.platform.limits
    parts = None
    if limits is not None:
        parts = TracePartitions.of(trace, limits, settings.partition_field)
    jobs, report = normalise(
        trace, processors, rules, labels=predicts(settings.chosen), partitions=parts
    )
    first = settings.jobs.fields.first
    return jobs if first is None else jobs.first(first), report


def _is_rigid(workload: Trace | TraceJobs | Workload) -> bool:
    """Whether no job can be resized."""
    if not isinstance(workload, Workload):
        return True
    return not any(job.spec.resizable for job in workload.jobs)


def _under_easy(trace: Trace, processors: int) -> Schedule:
    """Schedule under EASY, by which a model finds the rate of arrival for a mean queue."""
    return run(trace, processors, scenario("easy"))
