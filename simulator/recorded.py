"""A live run as its journal tells it, made into a workload for the simulator.

Two ways to the jobs: what was *measured* of them (iteration times by size, for what-if runs), or
what their *submissions* say (for a prediction that has not seen the run). Both need what this
machine takes for starts, joins, moves and ends: `Overheads`, measured from a journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from statistics import fmean

import msgspec

from reshape.errors import ReshapeError
from reshape.messages import Submission
from reshape.pace import ASK_EVERY_S
from reshape.speedup import Formula, Prio, Tabulated
from scheduler.core.events import JobSpec, JobStarted, ResizeDone, ResizeFailed, ResizePoint
from scheduler.core.orders import Contract
from scheduler.core.redirecting import Redirecting
from scheduler.core.state import FINAL, Job
from scheduler.policies.scenario import Scenario
from scheduler.replay.compare import new_core, replay
from scheduler.replay.journal import Batch
from simulator.engine import Engine
from simulator.engine import outcome as outcome_of
from simulator.metrics import Metrics, Result
from simulator.runtimes import ResizeCost
from simulator.workload import SimJob

#: Model for sizes on which a job never ran, if its program tells none.
UNKNOWN: Formula = Prio()


class Overheads(msgspec.Struct, frozen=True):
    """What a machine takes besides computing; means, seconds.

    Parameters
    ----------
    point_s : a resize point without a resize: question, answer, broadcast, waiting for one another.
    start_s : from the order to start a job to its first iteration (mpiexec, imports, set-up).
    end_s : from the last iteration until the job's processes are gone.
    resize : what a resize costs.
    """

    start_s: float = 0.0
    end_s: float = 0.0
    point_s: float = 0.0
    resize: ResizeCost = ResizeCost()


class Recorded(msgspec.Struct):
    """A live run.

    Parameters
    ----------
    core : as it was at the end of the journal.
    first, last : first and last resize point of each job that came to one.
    between : seconds between resize points that no iteration accounts for, and how many iterations
        there were, where no resize came in between.
    """

    core: Redirecting
    first: dict[int, ResizePoint]
    last: dict[int, ResizePoint]
    between: list[tuple[float, int]]

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> Recorded:
        """Replay a journal."""
        run = cls(new_core(), {}, {}, [])
        steady: set[int] = set()  # jobs that nothing has happened to since their last point
        for batch, orders in replay(batches, run.core):
            for event in batch.events:
                if type(event) is ResizePoint:
                    run._point(event, event.job in steady)
                    steady.add(event.job)
                elif isinstance(event, ResizeDone | ResizeFailed | JobStarted):
                    steady.discard(event.job)
            steady -= {order.job for order in orders if isinstance(order, Contract)}
        return run

    def _point(self, event: ResizePoint, steady: bool) -> None:
        self.first.setdefault(event.job, event)
        before = self.last.get(event.job)
        if steady and before is not None and event.iteration > before.iteration:
            passed = event.iteration - before.iteration
            seconds = event.at - before.at - passed * event.iteration_s
            self.between.append((max(0.0, seconds), passed))
        self.last[event.job] = event

    @property
    def jobs(self) -> list[Job]:
        """Jobs that started and ended, by number."""
        return [
            job
            for job in self.core.jobs.values()
            if job.state in FINAL and job.started_at is not None
        ]

    @property
    def left_out(self) -> list[int]:
        """Jobs that never started or have not ended."""
        there = {job.id for job in self.jobs}
        return sorted(self.core.jobs.keys() - there)

    def result(self) -> Result:
        """What the live run gave."""
        outcomes = sorted(map(outcome_of, self.jobs), key=lambda outcome: outcome.ended_at)
        busy_s = sum(
            size * (end - begin)
            for o in outcomes
            for (begin, size), end in zip(
                o.sizes, [at for at, _ in o.sizes[1:]] + [o.ended_at], strict=True
            )
        )
        return Result(outcomes, self.core.machine.installed, busy_s, self.left_out)


def overheads(run: Recorded) -> Overheads:
    """Measure what the machine took in a run; 0 where it gives nothing to measure."""
    starts, ends = [], []
    for job in run.jobs:
        assert job.started_at is not None
        if job.id in run.first and not job.restarts:
            first = run.first[job.id]
            starts.append(max(0.0, first.at - first.iteration_s - job.started_at))
            ends.append(_remainder(run, job)[1])
    times = [times for job in run.core.jobs.values() for times in job.times]
    grown = [t for t in times if t.start_s > 0]
    moved, move_s = sum(t.moved_bytes for t in times), sum(t.move_s for t in times)
    cost = ResizeCost(
        start_s=_mean([t.start_s for t in grown]),
        join_s=_mean([t.join_s + t.plan_s + t.resume_s for t in grown]),
        **({"bytes_per_s": moved / move_s} if moved and move_s > 0 else {}),
    )
    lost_s, iterations = (sum(column) for column in zip((0.0, 0), *run.between, strict=True))
    return Overheads(_mean(starts), _mean(ends), lost_s / max(1, iterations), cost)


def measured(run: Recorded, unknown: Formula = UNKNOWN) -> list[SimJob]:
    """Jobs as they were measured; one that did not end by itself has the work that it did.

    Parameters
    ----------
    unknown : model for sizes beyond those a job was measured on.
    """
    cost = overheads(run)
    return [_measured(run, job, cost, unknown) for job in run.jobs]


def _measured(run: Recorded, job: Job, cost: Overheads, unknown: Formula) -> SimJob:
    assert job.started_at is not None
    assert job.ended_at is not None
    history = job.history
    times = {size: history.time_s(size) for size in set(history.visits)}
    table = {size: seconds for size, seconds in times.items() if seconds}
    if not job.spec.resizable or not table or job.id not in run.last:
        ran_s = max(0.0, job.ended_at - job.started_at - cost.start_s - cost.end_s)
        return SimJob(job.submitted_at, job.spec, ran_s)
    model = Tabulated(table, beyond=unknown)
    return SimJob(
        job.submitted_at,
        _with_topology(job),
        model.time(job.spec.processors),
        run.last[job.id].iteration + _remainder(run, job)[0],
        model,
        max((times.moved_bytes for times in job.times), default=0),
    )


def _with_topology(job: Job) -> JobSpec:
    """What the user asked for, with the topology that the program declared."""
    return msgspec.structs.replace(job.spec, topology=job.topology)


def _remainder(run: Recorded, job: Job) -> tuple[int, float]:
    """Iterations after the last resize point, and the seconds that were left over at the end.

    Between the last question and the end there is one iteration, or as many as take no longer than
    a job waits between two questions.
    """
    assert job.ended_at is not None
    last = run.last[job.id]
    seconds = job.ended_at - last.at
    iteration_s = job.history.predict_s(job.size) or last.iteration_s
    if iteration_s <= 0:
        return 1, max(0.0, seconds)
    iterations = max(1, min(int(seconds / iteration_s), ceil(ASK_EVERY_S / iteration_s)))
    return iterations, max(0.0, seconds - iterations * iteration_s)


def submitted(
    run: Recorded, submissions: Mapping[int, Submission], cost: Overheads
) -> list[SimJob]:
    """Jobs as their submissions say, and nothing of what became of them.

    Raises
    ------
    ReshapeError : a program is none whose times its command line tells.
    """
    return [_submitted(job, submissions[job.id], cost) for job in run.jobs]


def _submitted(job: Job, submission: Submission, cost: Overheads) -> SimJob:
    words = submission.argv
    if "apps.synthetic" not in words:
        raise ReshapeError(
            f"job {job.id} runs {' '.join(words)}: only the command line of apps.synthetic tells"
            " how long it takes; what-if runs (--policy) go by measured times instead"
        )
    from apps.synthetic import arguments  # it alone knows what its options mean

    options = arguments(words[words.index("apps.synthetic") + 1 :])
    spec, model, start = job.spec, options.speedup, options.start_size
    if start is not None and spec.resizable and job.topology is not None:
        sizes = job.topology.valid_sizes(spec.processors, spec.max_processors or spec.processors)
        model = Tabulated({size: 1 / model.factor(start, size) for size in sizes})
    iteration_s = options.seconds / options.speedup.factor(
        start or spec.processors, spec.processors
    )
    mib = options.mib << 20
    return SimJob(
        job.submitted_at, spec, iteration_s, max(1, options.iterations), model, data_bytes=mib
    )


def simulate(run: Recorded, scenario: Scenario, jobs: list[SimJob], cost: Overheads) -> Result:
    """Run jobs on the machine of a recorded run, all of it up."""
    old = run.core
    nodes = {name: node.count for name, node in old.machine.nodes.items()}
    core = Redirecting.on(scenario, nodes, kill_at_walltime=old.kill_at_walltime)
    return Engine(core, jobs, cost=cost.resize, start_s=cost.start_s, end_s=cost.end_s).run()


def error_pct(live: Metrics, simulated: Metrics) -> float:
    """How far the simulated mean turnaround is from the live one, per cent."""
    return 100 * (simulated.mean_turnaround_s / live.mean_turnaround_s - 1)


def _mean(values: list[float]) -> float:
    return fmean(values) if values else 0.0
