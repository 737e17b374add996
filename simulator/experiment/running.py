"""Simulate an experiment: the one path from its settings to a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np

from reshape.collection import no_collection
from reshape.errors import ConfigError
from scheduler.clock.loop import Watch
from scheduler.core.core import Core
from scheduler.model.events import REDIRECTION
from scheduler.model.machine import Machine
from scheduler.model.network import Mesh
from scheduler.policies.scenarios import predicts
from simulator.engine.engine import Engine, check_conservation, simulated_core, together
from simulator.experiment.run import SAMPLE_S, Simulation
from simulator.experiment.settings import Settings
from simulator.experiment.sources import Source, cleaned, machine_for, source_of, with_load
from simulator.many_centres.rules import with_estimates
from simulator.results.placement import ExternalLoss
from simulator.results.schedule import Schedule, Window
from simulator.study.progress import SimulationProgress
from simulator.traces import swf
from simulator.traces.normalise import LABELS, NEEDED
from simulator.traces.swf import Trace
from simulator.traces.trace_jobs import COLUMNS as FEEDBACK
from simulator.traces.trace_jobs import Feedback, TraceJobs
from simulator.workload_models.advance_reservations import granted
from simulator.workload_models.workload import Workload, of_trace

if TYPE_CHECKING:
    from simulator.experiment.watches import StartQuotes

#: Makes a watch of the core and the jobs of a simulation.
WatchMaker: TypeAlias = Callable[[Core, TraceJobs], Watch]


def simulated(
    settings: Settings,
    *,
    whole_trace: bool = False,
    shows_progress: bool = False,
    watch: WatchMaker | None = None,
) -> Simulation:
    """Simulate an experiment.

    Parameters
    ----------
    whole_trace : read all columns of the trace, so that the run can write it with its waits.
    shows_progress : show progress if it takes more than a few seconds.
    watch : makes what is called after each instant, on one machine; see `Experiment.run`.

    Raises
    ------
    ReshapeError : no job can run by the rules, or a rule refuses one; what does not go together.
    """
    if watch is not None and (settings.centres is not None or settings.pool is not None):
        raise ConfigError("applies to one machine; leave it out", field="watch")
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
    loaded = settings.jobs.load(settings.seed, columns=columns)
    if settings.pool_options is not None:
        return _on_pool(settings, loaded, shows_progress=shows_progress)
    return _on_machine(settings, loaded, watch, shows_progress=shows_progress)


def _progress(settings: Settings, loaded: Trace | Workload, *, shows: bool) -> SimulationProgress:
    """Progress from the first to the last submission."""
    if isinstance(loaded, Trace):
        times = loaded.columns["submit"]
    else:
        times = np.array([job.at for job in loaded.jobs])
    first, last = (float(times.min()), float(times.max())) if len(times) else (0.0, 0.0)
    return SimulationProgress(settings.name, first, last, shows=shows)


def _on_machine(
    settings: Settings,
    loaded: Trace | Workload,
    watch: WatchMaker | None = None,
    *,
    shows_progress: bool = False,
) -> Simulation:
    """Simulate on one machine."""
    trace = None
    machine, guess = machine_for(settings, loaded)
    if isinstance(loaded, Trace):
        loaded = trace = with_load(settings, loaded, machine.processors)
    source = source_of(settings, loaded, machine)
    jobs, feedback = source.columns, None
    if settings.feedback and trace is not None:
        feedback = Feedback.of(trace, jobs)
    core = _core(settings, source)
    loss = _external_loss(core) if source.keeps_places else None
    quotes = _quotes(settings, core, source)
    gain, network = settings.gain, machine.network
    progress = _progress(settings, loaded, shows=shows_progress)
    engine = Engine(
        core,
        jobs if source.single is None else source.single,
        columns=jobs,
        requests=[planned.request(float(jobs.submitted[0])) for planned in settings.reservations],
        costs=source.costs,
        watch=together([watch and watch(core, jobs), loss, quotes]),
        allocations=source.keeps_places,
        estimates=predicts(settings.chosen),
        contiguity=None if gain is None else gain.run_times_in(network),
        sharing=source.sharing,
        tick=progress.tick,
        feedback=feedback,
    )
    with no_collection(), progress:
        schedule = engine.run()
    check_conservation(schedule)
    advance = granted(engine.answers)
    del engine  # its lists have the size of the results
    measured = _measured(settings, schedule, source, core, loss)
    window = Window(settings.warm_up_s, settings.cool_down_s)
    made = Simulation(
        settings.name,
        {"trace": settings.source, "policy": settings.title},
        settings.chosen,
        msgspec.structs.replace(schedule, advance=advance, report=source.report, **measured),
        machine.processors,
        settings.tau_s,
        source.rigid,
        source.single is None,
        trace,
        sample_s=settings.sample_s or SAMPLE_S,
        price=settings.price,
        site=settings.site,
        counted=source.counted,
        window=window if window != Window() else None,
        quoted=() if quotes is None else quotes.starts,
        remarks=[*filter(None, [guess]), *source.remarks],
    )
    _ = made.metrics  # an error about the window comes with the run
    return made


def _core(settings: Settings, source: Source) -> Core:
    """Core for a machine, with its partitions, or a redirection group beside it."""
    chosen = settings.chosen
    machines = source.machine.machines(source.resources, counted=source.counted)
    machine = machines.pop(next(iter(machines)))
    if chosen.redirection is not None and not chosen.partitions:
        try:
            extra = chosen.redirection.group_size(source.machine.processors)
        except ValueError as error:
            raise ConfigError(str(error), field="redirection") from None
        machines[REDIRECTION] = Machine(
            [(REDIRECTION, extra)], counted=source.counted, numbering=machine.numbering
        )
    return simulated_core(
        chosen,
        machine,
        machines,
        kill_at_walltime=source.kill,
        order=settings.event_order,
        keep_ended=source.single is not None,
    )


def _external_loss(core: Core) -> ExternalLoss | None:
    """Count of what contiguity costs; None with several partitions, or if any processors do."""
    partition, *others = core.partitions
    return ExternalLoss(partition) if partition.state.placing and not others else None


def _quotes(settings: Settings, core: Core, source: Source) -> StartQuotes | None:
    """Forecasts at submission, if they are wanted."""
    rules = settings.quote_rules
    if rules is None:
        return None
    from simulator.experiment.watches import StartQuotes  # late, as all that few runs need

    jobs, exact = source.columns, rules.run_times == "exact"
    run_s = dict(enumerate(jobs.run_times(), 1)) if exact else {}
    specs, seed = source.specs(), settings.seed or 0
    return StartQuotes(core, specs, jobs.submit_times(), rules, run_s=run_s, seed=seed)


def _measured(
    settings: Settings, schedule: Schedule, source: Source, core: Core, loss: ExternalLoss | None
) -> dict[str, Any]:
    """What neighbours and the places of the jobs amount to, as fields of a schedule."""
    fields: dict[str, Any] = {"shares_nodes": source.sharing is not None}
    network = source.machine.network
    if source.keeps_places and len(core.partitions) == 1:
        lost = 0.0 if loss is None else loss.lost
        fields["fragmentation"] = schedule.fragmentation_of(lost, source.requested)
    if source.keeps_places and network and (settings.dispersal or isinstance(network, Mesh)):
        fields["dispersal"] = schedule.dispersal_in(network)
    return fields


def _on_pool(settings: Settings, loaded: Trace | Workload, *, shows_progress: bool) -> Simulation:
    """Simulate on the nodes of an elastic pool."""
    from simulator.pools import run_pool  # late, as all that few runs need

    pool, chosen = settings.pool_options, settings.chosen
    assert pool is not None
    size = pool.max_nodes * pool.processors
    workload: TraceJobs | Workload
    trace, report, seed = None, None, settings.seed or 0
    if isinstance(loaded, Workload):
        workload = loaded
    else:
        trace = with_load(settings, loaded, size)
        workload, report = cleaned(settings, trace, size, settings.rules)
        if settings.resizable is not None:
            workload = of_trace(workload, size, settings.resizable, seed)
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
    trace = settings.jobs.load(settings.seed)
    assert isinstance(trace, Trace), "a rule refuses workload files at centres"
    with _progress(settings, trace, shows=shows_progress) as progress:
        ran = run_centres(
            trace,
            centres,
            rules,
            settings.rules,
            first=settings.jobs.fields.first,
            resizable=settings.resizable,
            seed=settings.seed or 0,
            tick=progress.tick,
        )
    return Simulation(
        settings.name,
        {"trace": settings.source, "assign": settings.assign_name},
        None,
        ran.schedule,
        ran.schedule.processors,
        settings.tau_s,
        settings.resizable is None,
        settings.resizable is None,
        trace,
        centres=ran,
        sample_s=settings.sample_s or SAMPLE_S,
    )


def _is_rigid(workload: TraceJobs | Workload) -> bool:
    """Whether no job can be resized."""
    if not isinstance(workload, Workload):
        return True
    return not any(job.spec.resizable for job in workload.jobs)
