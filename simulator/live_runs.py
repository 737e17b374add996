"""Live runs, read from their journals: as schedules, and as workloads for the simulator.

Jobs come from *measurements* (iteration times by size, for what-if runs) or from their
*submissions* (for a prediction without knowledge of the run). Both need the times of starts, joins,
moves and ends on this machine: `Costs`, measured in this journal or in others. They vary, and
fractions of a second decide which job finds free processors at its resize point; so a run is
simulated several times with costs drawn from the measurements, and the mean counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, nan
from statistics import fmean, stdev
from typing import Any, TypeAlias

import msgspec
import numpy as np
from msgspec.structs import replace

from reshape.errors import ReshapeError
from reshape.speedup import Formula, Prio, Tabulated
from reshape.wire.identity import ASK_EVERY_S
from scheduler.core.core import Core
from scheduler.journal.descriptions import iteration_times
from scheduler.journal.journal_reader import Batch
from scheduler.journal.replay import initial_core, replay
from scheduler.model.events import (
    REDIRECTION,
    JobSpec,
    JobStarted,
    NodeLost,
    ResizeDone,
    ResizeFailed,
    ResizePoint,
    SizesRequested,
)
from scheduler.model.job import FINAL, Job, JobState
from scheduler.model.orders import Contract, Expand, Resize
from scheduler.model.requests import Dependency
from scheduler.policies.scenario import Scenario
from scheduler.protocol.messages import Submission
from simulator.engine.costs import Costs, StepTime
from simulator.engine.engine import Engine
from simulator.engine.jobs import ProgramPhase, SimJob
from simulator.results.schedule import Metrics, Schedule
from simulator.traces.trace_jobs import TraceJobs

#: Model for sizes on which a job never ran.
UNKNOWN: Formula = Prio()
#: Module of the program whose command line tells its times.
_SYNTHETIC = "apps.synthetic"


#: (Processes, seconds) of each measurement of a step.
Times: TypeAlias = list[tuple[float, float]]
#: (Start, processes, seconds) of a start of processes.
Launched: TypeAlias = tuple[float, int, float]


class RecordedRun(msgspec.Struct):
    """A live run.

    Parameters
    ----------
    core : its state at the end of the journal.
    first, last : first and last resize point of each job that reached one.
    points : seconds between two resize points beyond the iterations, without a resize in between;
        by the processes of the job.
    groups : (start, processes, seconds until ready) of each joining group.
    joins, leaves : times of joins by the processes of the job, and of leaves by those that left.
    moves : bytes of a job's data, and the seconds of its move.
    held_s : processor-seconds that each job held.
    phases : requests of each program for bounds on its size, by the last iteration before them.
    """

    core: Core
    first: dict[int, ResizePoint] = {}
    last: dict[int, ResizePoint] = {}
    points: Times = []
    groups: list[Launched] = []
    joins: Times = []
    leaves: Times = []
    moves: Times = []
    held_s: dict[int, float] = {}
    phases: dict[int, list[ProgramPhase]] = {}

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> RecordedRun:
        """Replay a journal."""
        first, batches = initial_core(batches)
        run = cls(first)
        steady: set[int] = set()  # jobs that nothing has happened to since their last point
        under_way: dict[int, Resize] = {}
        held: dict[int, tuple[float, int]] = {}  # since when, processors
        for batch, orders, core in replay(batches, first):
            run.core = core
            at = batch.events[0].at
            named = {what.job for what in (*batch.events, *orders) if hasattr(what, "job")}
            if any(type(event) is NodeLost for event in batch.events):
                named |= held.keys()
            for number in named:
                since, processors = held.pop(number, (at, 0))
                run.held_s[number] = run.held_s.get(number, 0.0) + processors * (at - since)
                if groups := core.jobs[number].groups:
                    held[number] = at, sum(map(len, groups.values()))
            for event in batch.events:
                if type(event) is SizesRequested:
                    run._request(event)
                elif type(event) is ResizePoint:
                    run._point(event, event.job in steady)
                    steady.add(event.job)
                elif isinstance(event, ResizeDone | ResizeFailed | JobStarted):
                    steady.discard(event.job)
                if type(event) is ResizeDone and event.job in under_way:
                    run._resized(event, under_way.pop(event.job))
            for order in orders:
                if isinstance(order, Expand | Contract):
                    resize = run.core.jobs[order.job].resize
                    if resize is not None:
                        under_way[order.job] = resize
            steady -= {order.job for order in orders if isinstance(order, Contract)}
        return run

    def _resized(self, event: ResizeDone, resize: Resize) -> None:
        times, data_bytes = event.times, self.core.jobs[event.job].history.data_bytes
        if not resize.expands:
            leave_s = event.at - resize.at - times.pause_s
            self.leaves.append((resize.old - resize.new, max(0.0, leave_s)))
        elif times.start_s > 0:  # otherwise its report was lost
            self.groups.append((resize.at, resize.new - resize.old, times.start_s))
            join_s = times.close_s + times.join_s + times.plan_s + times.resume_s
            self.joins.append((resize.new, join_s))
        if data_bytes > 0 and times.move_s > 0:
            self.moves.append((data_bytes, times.move_s))

    def _request(self, event: SizesRequested) -> None:
        """Note a request; a live program sends it at the end of the iteration that makes it."""
        before = self.last.get(event.job)
        iteration = 0 if before is None else before.iteration
        phase = ProgramPhase(iteration, event.minimum, event.maximum)
        self.phases.setdefault(event.job, []).append(phase)

    def _point(self, event: ResizePoint, steady: bool) -> None:
        self.first.setdefault(event.job, event)
        before = self.last.get(event.job)
        if steady and before is not None and event.iteration > before.iteration:
            passed, size = event.iteration - before.iteration, self.core.jobs[event.job].size
            seconds = (event.at - before.at) / passed - event.iteration_s
            self.points.append((size, max(0.0, seconds)))
        self.last[event.job] = event

    @property
    def jobs(self) -> list[Job]:
        """Jobs that started and ended, by number; steps ran within them."""
        return [job for job in self._own_jobs if job.state in FINAL and job.started_at is not None]

    @property
    def _own_jobs(self) -> list[Job]:
        return [job for job in self.core.jobs.values() if job.spec.step_of is None]

    @property
    def left_out(self) -> list[int]:
        """Jobs that never started or have not ended."""
        ids = {job.id for job in self.jobs}
        return sorted({job.id for job in self._own_jobs} - ids)

    @property
    def schedule(self) -> Schedule:
        """The run as it was; jobs that are left out have no start."""
        jobs, run = self._own_jobs, {job.id for job in self.jobs}
        times = [(job.started_at, job.ended_at) if job.id in run else (nan, nan) for job in jobs]
        started, ended = np.array(times, float).reshape(-1, 2).T
        columns = TraceJobs.of(
            np.array([job.id for job in jobs]),
            np.array([job.submitted_at for job in jobs]),
            ended - started,
            np.array([job.spec.processors for job in jobs]),
        )
        return Schedule(
            columns,
            self.core.machine.installed,
            started,
            ended,
            np.array([job.state is JobState.TIMEOUT for job in jobs], np.bool_),
            held_s=sum(self.held_s[job.id] for job in jobs if job.id in run),
            sizes={n: job.sizes for n, job in enumerate(jobs, 1) if job.id in run},
        )


def costs(*runs: RecordedRun) -> Costs:
    """Costs measured in some runs; 0 where they have no measurement."""
    starts: Times = []
    groups: Times = []
    for run in runs:
        begun = _starts(run)
        together = _sharing([*begun, *run.groups])
        starts += together[: len(begun)]
        groups += together[len(begun) :]
    moved, move_s = (
        sum(column)
        for column in zip((0, 0.0), *(m for run in runs for m in run.moves), strict=True)
    )
    return Costs(
        StepTime.fitted(starts),
        StepTime.fitted([end for run in runs for end in _ends(run)]),
        StepTime.fitted([point for run in runs for point in run.points]),
        StepTime.fitted(groups),
        StepTime.fitted([join for run in runs for join in run.joins]),
        StepTime.fitted([leave for run in runs for leave in run.leaves]),
        **({"bytes_per_s": moved / move_s} if moved else {}),
    )


def _sharing(launched: list[Launched]) -> Times:
    """Seconds of each start, by its processes and those that started at the same time."""
    times = []
    for i, (at, processes, seconds) in enumerate(launched):
        others = 0.0
        for j, (other_at, other, other_s) in enumerate(launched):
            if j != i and other_s > 0:
                together = min(at + seconds, other_at + other_s) - max(at, other_at)
                others += other * max(0.0, together) / other_s
        times.append((processes + others, seconds))
    return times


def _starts(run: RecordedRun) -> list[Launched]:
    """Start of each job that reached resize points."""
    starts = []
    for job in _regular(run):
        assert job.started_at is not None
        first = run.first[job.id]
        start_s = max(0.0, first.at - first.iteration_s - job.started_at)
        starts.append((job.started_at, job.sizes[0][1], start_s))
    return starts


def _ends(run: RecordedRun) -> Times:
    """End of each of them, by its processes then."""
    return [(job.size, _remainder(run, job)[1]) for job in _regular(run)]


def _regular(run: RecordedRun) -> list[Job]:
    return [job for job in run.jobs if job.id in run.first and not job.restarts]


def measured(run: RecordedRun, unknown: Formula = UNKNOWN) -> list[SimJob]:
    """Jobs as measured; a job that was ended has the work that it did.

    Parameters
    ----------
    unknown : model for sizes on which a job was not measured.
    """
    cost = costs(run)
    return [_measured(run, job, cost, unknown) for job in run.jobs]


def _measured(run: RecordedRun, job: Job, cost: Costs, unknown: Formula) -> SimJob:
    assert job.started_at is not None
    assert job.ended_at is not None
    table = dict(iteration_times(job))
    if not job.spec.resizable or not table or job.id not in run.last:
        around_s = cost.start.of(job.spec.processors) + cost.end.of(job.size)
        ran_s = max(0.0, job.ended_at - job.started_at - around_s)
        return SimJob(job.submitted_at, _as_simulated(run, job.spec), ran_s)
    model = Tabulated(table, beyond=unknown)
    iterations = run.last[job.id].iteration + _remainder(run, job)[0]
    return SimJob(
        job.submitted_at,
        replace(_as_simulated(run, job.spec), topology=job.topology),
        iterations * model.time(job.spec.processors),
        iterations,
        model,
        job.most_moved_bytes,
        tuple(run.phases.get(job.id, ())),
    )


def _as_simulated(run: RecordedRun, spec: JobSpec) -> JobSpec:
    """Request whose dependency has the numbers of the simulated jobs; nothing is held.

    What was to become of jobs that are not simulated has become of them.
    """
    conditions = spec.conditions
    if conditions is None:
        return spec
    dependency = conditions.dependency
    if dependency is not None:
        in_order = sorted(run.jobs, key=lambda job: job.submitted_at)
        numbers = {job.id: number for number, job in enumerate(in_order, 1)}
        terms = tuple(
            replace(term, job=numbers[term.job])
            if term.job in numbers
            else replace(term, met=None if term.kind == "singleton" else True)
            for term in dependency.terms
        )
        dependency = Dependency(terms, dependency.any_of)
    conditions = replace(conditions, hold="", dependency=dependency)
    return replace(spec, conditions=conditions)


def _remainder(run: RecordedRun, job: Job) -> tuple[int, float]:
    """Iterations after the last resize point, and the seconds that remain at the end.

    There is one iteration, or as many as fit into the time that a job waits between two resize
    points.
    """
    assert job.ended_at is not None
    last = run.last[job.id]
    seconds = job.ended_at - last.at
    iteration_s = job.history.predict_s(job.size) or last.iteration_s
    if iteration_s <= 0:
        return 1, max(0.0, seconds)
    iterations = max(1, min(int(seconds / iteration_s), ceil(ASK_EVERY_S / iteration_s)))
    return iterations, max(0.0, seconds - iterations * iteration_s)


def as_measured(run: RecordedRun, submissions: Mapping[int, Submission]) -> list[int]:
    """Jobs whose command lines do not tell how long they take.

    Raises
    ------
    ReshapeError : no command line does.
    """
    untold = [job.id for job in run.jobs if _SYNTHETIC not in submissions[job.id].argv]
    if untold and len(untold) == len(run.jobs):
        words = submissions[untold[0]].argv
        raise ReshapeError(
            f"job {untold[0]} runs {' '.join(words)}: only the command line of {_SYNTHETIC}"
            " states its times; what-if runs (--policy) use measured times instead"
        )
    return untold


def submitted(
    run: RecordedRun, submissions: Mapping[int, Submission], cost: Costs, unknown: Formula = UNKNOWN
) -> list[SimJob]:
    """Jobs by their submissions, and by their measured times where these do not tell the times.

    Parameters
    ----------
    cost : with the time of a resize point, which rigid programs have as well.
    unknown : model for sizes on which a job that goes by its measurements did not run.

    Raises
    ------
    ReshapeError : no command line of a program contains its times.
    """
    untold, own_cost = set(as_measured(run, submissions)), costs(run)
    return [
        _measured(run, job, own_cost, unknown)
        if job.id in untold
        else _submitted(job, _as_simulated(run, job.spec), submissions[job.id], cost)
        for job in run.jobs
    ]


def _submitted(job: Job, spec: JobSpec, submission: Submission, cost: Costs) -> SimJob:
    words = submission.argv
    from apps.synthetic import arguments  # which defines these options

    options = arguments(words[words.index(_SYNTHETIC) + 1 :])
    model, start = options.speedup, options.start_size or job.processors
    if start != spec.processors and spec.resizable and job.topology is not None:
        sizes = job.topology.valid_sizes(spec.processors, spec.largest, spec.min_processors)
        model = Tabulated({size: 1 / model.factor(start, size) for size in sizes})
    iteration_s = options.seconds / options.speedup.factor(start, spec.processors)
    if not spec.resizable:  # the simulator has no resize points for rigid jobs
        iteration_s += cost.point.of(spec.processors)
    iterations, mib = max(1, options.iterations), options.mib << 20
    return SimJob(
        job.submitted_at, spec, iterations * iteration_s, iterations, model, data_bytes=mib
    )


def simulate(
    run: RecordedRun, scenario: Scenario, jobs: list[SimJob], cost: Costs, runs: int
) -> tuple[Metrics, float]:
    """Run jobs several times on the machine of a recorded run, all of it up.

    Parameters
    ----------
    cost : measured times, drawn again each time.

    Returns
    -------
    metrics : their means over the simulations.
    spread_pct : standard deviation of the mean turnaround between them, per cent of the mean.
    """
    rngs = [np.random.default_rng(seed) for seed in range(runs)]
    engines = (engine_of(run, scenario, jobs, costs=cost, rng=rng) for rng in rngs)
    results = [engine.run().metrics() for engine in engines]
    columns = ([getattr(its, name) for its in results] for name in Metrics.__struct_fields__)
    means = Metrics(*(_mean(column) for column in columns))
    spread_s = stdev(its.mean_turnaround_s for its in results) if runs > 1 else 0.0
    mean_s = means.mean_turnaround_s
    return means, 100 * spread_s / mean_s if mean_s else nan


def engine_of(run: RecordedRun, scenario: Scenario, jobs: list[SimJob], **options: Any) -> Engine:
    """Make an engine that runs jobs on the machine of a recorded run, all of it up.

    Parameters
    ----------
    options : further arguments of `Engine`.
    """
    recorded = run.core
    core = Core.on(
        scenario,
        recorded.machine.nodes.values(),
        recorded.partitions[0].machine,
        shares_in(recorded, scenario),
        kill_at_walltime=recorded.kill_at_walltime,
    )
    return Engine(core, jobs, **options)


def shares_in(core: Core, scenario: Scenario) -> dict[str, dict[str, int]]:
    """Division of the nodes of a recorded core among the partitions of a scenario.

    Partitions with nodes keep them; a redirection group gets its processors by the scenario's rule.
    """
    nodes = core.machine.nodes
    if scenario.redirection is not None and not scenario.partitions:
        counts = {node.name: node.count for node in nodes.values()}
        reserved = scenario.redirection.reserved(counts)
        return {node: {REDIRECTION: count} for node, count in reserved.items()}
    shares: dict[str, dict[str, int]] = {node: {} for node in nodes}
    for partition in core.partitions:
        for node in partition.machine.nodes.values():
            shares[node.name][partition.name] = node.installed
    return shares


def error_pct(live: Metrics, simulated: Metrics) -> float:
    """Error of the simulated mean turnaround, per cent of the live one; nan if that is 0."""
    if not live.mean_turnaround_s:
        return nan
    return 100 * (simulated.mean_turnaround_s / live.mean_turnaround_s - 1)


def _mean(values: list[Any]) -> Any:
    """Mean of numbers; the number itself where they are the same."""
    return values[0] if len(set(values)) == 1 else fmean(values)
