"""Simulate an experiment: the one path from its settings to a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np

from reshape.collection import no_collection
from reshape.errors import ConfigError
from scheduler.clock.loop import Recording, Tick, Watch
from scheduler.core.core import Core
from scheduler.model.events import REDIRECTION
from scheduler.model.machine import Machine
from scheduler.model.network import Mesh
from scheduler.policies.pools.options import PoolOptions
from scheduler.policies.scenarios import predicts
from simulator.engine.engine import Engine, check_conservation, simulated_core, together
from simulator.experiment.run import Simulation
from simulator.experiment.settings import Settings
from simulator.experiment.sources import Source, machine_for, source_of, with_load
from simulator.many_centres.rules import CentreDescription, with_estimates
from simulator.results.placement import ExternalLoss
from simulator.results.schedule import Schedule
from simulator.study.progress import SimulationProgress
from simulator.traces import swf
from simulator.traces.normalise import LABELS, NEEDED
from simulator.traces.swf import Trace
from simulator.traces.trace_jobs import FEEDBACK, TraceJobs, preceding_jobs
from simulator.workload_models.advance_reservations import granted
from simulator.workload_models.workload import Workload

if TYPE_CHECKING:
    from simulator.experiment.watches import StartQuotes

T = TypeVar("T")
#: Makes a watch of the cores and the jobs of a simulation; Grid-Backfilling has one core.
WatchMaker: TypeAlias = Callable[[Sequence[Core], TraceJobs], Watch]


class SimulatedSite(NamedTuple):
    """What the jobs of an experiment are submitted to.

    Parameters
    ----------
    driven : by the loop of the virtual clock.
    cores : that decide for it.
    results : from the schedule, fields of `Simulation` that only this kind of site has, or the
        schedule with more that was measured.
    watches : called after each instant; None: there is none.
    cpu_factors : see `Engine`.
    """

    driven: Recording
    cores: Sequence[Core]
    results: Callable[[Schedule], dict[str, Any]]
    watches: Sequence[Watch | None] = ()
    cpu_factors: Mapping[int, float] | None = None


def simulated(
    settings: Settings,
    *,
    whole_trace: bool = False,
    shows_progress: bool = False,
    watch: WatchMaker | None = None,
) -> Simulation:
    """Simulate an experiment: on one machine, on the nodes of a pool, or at several centres.

    These differ in the site to which the jobs are submitted, and in what it tells besides.

    Parameters
    ----------
    whole_trace : read all columns of the trace, so that the run can write it with its waits.
    shows_progress : show progress if it takes more than a few seconds.
    watch : makes what is called after each instant.

    Raises
    ------
    ReshapeError : no job can run by the rules, or a rule refuses one; what does not go together.
    """
    loaded = settings.jobs.load(settings.seed, columns=_columns(settings, whole=whole_trace))
    machine, guess = machine_for(settings, loaded)
    trace = None
    if isinstance(loaded, Trace):
        loaded = trace = with_load(settings, loaded, machine.processors)
    source = source_of(settings, loaded, machine)
    site = _site(settings, source)
    watches = [*site.watches, None if watch is None else watch(site.cores, source.columns)]
    progress = _progress(settings, loaded, shows=shows_progress)
    engine = _engine(settings, source, site, trace, together(watches), progress.tick)
    with no_collection(), progress:
        schedule = engine.run()
    schedule = msgspec.structs.replace(
        schedule, advance=granted(engine.answers), report=source.report
    )
    del engine  # its lists have the size of the results
    results = site.results(schedule)
    made = Simulation(
        settings,
        schedule=results.pop("schedule", schedule),
        processors=source.machine.processors if settings.centres is None else schedule.processors,
        is_rigid=source.rigid,
        is_trace=source.single is None,
        trace=trace,
        remarks=[*filter(None, [guess]), *source.remarks],
        **results,
    )
    _ = made.metrics  # an error about the window comes with the run
    return made


def _columns(settings: Settings, *, whole: bool) -> tuple[str, ...]:
    """Columns of a trace that the experiment reads."""
    columns: tuple[str, ...] = swf.FIELDS if whole or settings.centres is not None else NEEDED
    if columns is NEEDED and predicts(settings.chosen):
        columns = (*NEEDED, *LABELS.values())
    if settings.feedback:
        columns = (*columns, *FEEDBACK)
    if settings.platform is not None and settings.platform.partitions:
        columns = (*columns, settings.partition_field)
    return columns


def _progress(settings: Settings, loaded: Trace | Workload, *, shows: bool) -> SimulationProgress:
    """Progress from the first to the last submission."""
    if isinstance(loaded, Trace):
        times = loaded.columns["submit"]
    else:
        times = np.array([job.at for job in loaded.jobs])
    first, last = (float(times.min()), float(times.max())) if len(times) else (0.0, 0.0)
    return SimulationProgress(settings.name, first, last, shows=shows)


def _engine(
    settings: Settings,
    source: Source,
    site: SimulatedSite,
    trace: Trace | None,
    watch: Watch | None,
    tick: Tick,
) -> Engine:
    """Engine that submits the jobs to the site."""
    jobs, gain, feedback = source.columns, settings.gain, None
    if settings.feedback and trace is not None:
        feedback = preceding_jobs(trace, jobs)
    return Engine(
        site.driven,
        jobs if source.single is None else source.single,
        columns=jobs,
        requests=[planned.request(float(jobs.submitted[0])) for planned in settings.reservations],
        costs=source.costs,
        watch=watch,
        allocations=source.keeps_places,
        estimates=settings.centres is None and predicts(settings.chosen),
        contiguity=None if gain is None else gain.run_times_in(source.machine.network),
        sharing=source.sharing,
        cpu_factors=site.cpu_factors,
        tick=tick,
        feedback=feedback,
    )


def _site(settings: Settings, source: Source) -> SimulatedSite:
    """Several centres, a pool, or one machine: a core."""
    if settings.centres is not None:
        return _at_centres(settings, source, settings.centres)
    if settings.pool_options is not None:
        return _on_pool(settings, source, settings.pool_options)
    core = _core(settings, source)
    loss = _external_loss(core) if source.keeps_places else None
    quotes = _quotes(settings, core, source)

    def results(schedule: Schedule) -> dict[str, Any]:
        check_conservation(schedule)
        measured = _measured(settings, schedule, source, core, loss)
        schedule = msgspec.structs.replace(schedule, **measured)
        return {"schedule": schedule, "quoted": () if quotes is None else quotes.starts}

    return SimulatedSite(core, [core], results, [loss, quotes])


def _with_own_state(policies: T) -> T:
    """Copy of policies for one run: what they remember and draw begins anew in each.

    Raises
    ------
    ConfigError : a policy holds an object that cannot be copied.
    """
    try:
        return deepcopy(policies)
    except Exception as error:  # of any object that a policy holds
        raise ConfigError(
            f"each run takes a copy of the policies, and one of them cannot be copied: {error};"
            " create in its methods, or in its module, what has no copies, such as open files"
        ) from None


def _core(settings: Settings, source: Source) -> Core:
    """Core for a machine, with its partitions, or a redirection group beside it."""
    scenario = _with_own_state(settings.chosen)
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
    return simulated_core(
        scenario,
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
    rules, jobs = settings.quote_rules, source.columns
    if rules is None:
        return None
    from simulator.experiment.watches import StartQuotes  # late, as all that few runs need

    run_s = dict(enumerate(jobs.run.tolist(), 1)) if rules.run_times == "exact" else {}
    submitted, seed = jobs.submitted.tolist(), settings.seed or 0
    return StartQuotes(core, source.specs(), submitted, rules, run_s=run_s, seed=seed)


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


def _on_pool(settings: Settings, source: Source, options: PoolOptions) -> SimulatedSite:
    """Nodes of an elastic pool: a core whose nodes come and go."""
    from simulator.pools import PooledSite, PoolRun, pool_metrics  # late, as all few runs need

    count, seed, kill = len(source.columns), settings.seed or 0, source.kill
    waits = settings.waits()
    scenario = _with_own_state(settings.chosen)
    site = PooledSite(scenario, options, waits, count, kill_at_walltime=kill, seed=seed)

    def results(schedule: Schedule) -> dict[str, Any]:
        schedule = msgspec.structs.replace(schedule, processors=source.machine.processors)
        metrics = pool_metrics(schedule, site, options, source.too_long)
        return {"schedule": schedule, "pool": PoolRun(metrics, site.ended)}

    return SimulatedSite(site, [site.core], results)


def _at_centres(
    settings: Settings, source: Source, centres: list[CentreDescription]
) -> SimulatedSite:
    """Several centres: a core each, with dispatchers, or one core for all."""
    from simulator.many_centres.run import site_of  # late, as all that few runs need
    from simulator.many_centres.schedule import CentresSchedule

    rules, homes = settings.assignment, source.homes
    if settings.estimates is not None:
        centres, rules = with_estimates(centres, rules, settings.centre_estimates)
    centres, rules = _with_own_state((centres, rules))
    jobs, single, kill = source.columns, source.single, source.kill
    site = site_of(jobs, homes, centres, rules, single=single, kill_at_walltime=kill)

    def results(schedule: Schedule) -> dict[str, Any]:
        return {"centres": CentresSchedule.of(site, schedule, centres, homes)}

    return SimulatedSite(site, site.cores, results, cpu_factors=site.cpu_factors)
