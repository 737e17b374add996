"""Workloads of single jobs, resizable or rigid, ready to run; where the resizable ones come from.

They come from a trace: the run of a job is cut into iterations, and a model gives its speedup. The
jobs of a trace have one size and one run time; a job that keeps its size runs exactly as long as it
did. Or they are those of PRIO section 4: resizable jobs of three sizes and three topologies.
"""

from __future__ import annotations

from math import ceil, inf
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ConfigError, check_ranges
from reshape.key_values import key_values
from reshape.speedup import Model, Prio, named, parse
from reshape.topology import Topology
from scheduler.config.partitions import PartitionLimits
from scheduler.model.events import JobSpec
from scheduler.policies.queue_orders.aging import CLASSES
from scheduler.text.located import converted
from simulator.engine.costs import NO_COSTS, Costs, ResizeCost
from simulator.engine.jobs import SimJob, columns_of
from simulator.traces.trace_jobs import TraceJobs


class Workload(msgspec.Struct, frozen=True):
    """A workload of single jobs.

    Parameters
    ----------
    processors : of the machine, if the workload names them.
    jobs : in any order.
    costs : of starts, resizes and ends.
    trace_jobs : jobs of the trace from which the workload was made, in the order of `jobs`.
    kills : whether jobs are killed at their walltimes; not if the rules of cleaning have decided
        about runs longer than requested.
    """

    processors: int | None
    jobs: list[SimJob]
    costs: Costs = NO_COSTS
    trace_jobs: TraceJobs | None = None
    kills: bool = True

    @property
    def columns(self) -> TraceJobs:
        """The jobs as columns, in the order of submission."""
        if self.trace_jobs is not None:
            return self.trace_jobs
        return columns_of(sorted(self.jobs, key=lambda job: job.at))


class Resizable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a share of the jobs of a trace is made resizable.

    Parameters
    ----------
    share : of the jobs, from 0 to 1, drawn by the seed of the experiment.
    speedup : model of every resizable job, as `reshape.speedup.parse` reads it.
    iterations : of every resizable job, with a resize point between any two.
    expand_most : largest size of jobs that state none, in multiples of the processors requested.
    expand_least : smallest size of jobs that state none, as a share of the processors requested;
        1: no job starts on fewer processors, or contracts below those on which it starts.
    expand_step : processors that an expansion adds, as a share of those requested.
    data_mib : data that moves at a resize, MiB for each processor requested.
    performance : performance model that the scheduler uses, as `reshape.speedup.named` reads it.
    cost : cost of a resize: fields of `ResizeCost`, or the same as text, such as
        ``start_s=0.4,join_s=0.05,bytes_per_s=1e9``.
    """

    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    speedup: str = "downey"
    iterations: Annotated[int, msgspec.Meta(ge=1)] = 10
    expand_most: Annotated[float, msgspec.Meta(ge=1)] = 4.0
    expand_least: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    expand_step: Annotated[float, msgspec.Meta(ge=0)] = 0.25
    data_mib: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    cost: dict[str, Any] | str = {}
    performance: str = ""

    def model(self) -> Model:
        """Speedup model.

        Raises
        ------
        ConfigError : the text names none.
        """
        try:
            return parse(self.speedup)
        except ValueError as error:
            raise ConfigError(str(error), field="resizable.speedup") from None

    def costs(self) -> Costs:
        """Cost of a resize, as an engine takes it.

        Raises
        ------
        ConfigError : a field is unknown, or a value is wrong.
        """
        try:
            cost = key_values(self.cost.split(",")) if isinstance(self.cost, str) else self.cost
        except ValueError as error:
            raise ConfigError(str(error), field="resizable.cost") from None
        return Costs.constant(converted(cost, ResizeCost, "resizable.cost"))

    def check(self) -> None:
        """Check the texts.

        Raises
        ------
        ConfigError : one names no model, or the cost is wrong.
        """
        self.model()
        try:
            _ = self.performance and named(self.performance)
        except ValueError as error:
            raise ConfigError(str(error), field="resizable.performance") from None
        self.costs()


def of_trace(
    jobs: TraceJobs,
    processors: int,
    how: Resizable,
    seed: int = 0,
    *,
    kills: bool = False,
    limits: PartitionLimits | None = None,
) -> Workload:
    """Make a share of the jobs of a trace resizable, none above the size of the machine.

    Parameters
    ----------
    seed : draws the jobs.
    limits : of the partitions of the machine; None: there are none.
    kills : see `Workload`.
    """
    is_resizable = np.random.default_rng(seed).permutation(len(jobs)) < round(how.share * len(jobs))
    model, made = how.model(), []
    for at, spec, run_s, is_chosen in zip(
        jobs.submitted.tolist(), jobs.specs(), jobs.run.tolist(), is_resizable.tolist(), strict=True
    ):
        start = spec.processors
        installed = processors if limits is None else limits.largest(spec.partition)
        most = min(installed, spec.max_processors or int(how.expand_most * start))
        least = spec.min_processors or ceil(how.expand_least * start)
        if not is_chosen or (most <= start and least >= start):
            if spec.resizable:
                spec = msgspec.structs.replace(spec, min_processors=None, max_processors=None)
            made.append(SimJob(at, spec, run_s))
            continue
        topology = Topology(step=max(1, round(how.expand_step * start)))
        spec = msgspec.structs.replace(
            spec,
            max_processors=max(most, start),
            min_processors=least if least < start else None,
            topology=topology,
            performance=how.performance,
        )
        data_bytes = round(how.data_mib * start * 2**20)
        made.append(SimJob(at, spec, run_s, how.iterations, model, data_bytes))
    return Workload(processors, made, how.costs(), trace_jobs=jobs, kills=kills)


class PrioWorkload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Generator of the workload of PRIO section 4.

    120 jobs; a third each small, medium and large (35, 81, 136 processors, power-of-2 jobs 32, 64,
    128; 8, 20, 32 s an iteration; walltimes 156, 240, 324 s); 60 % arbitrary, 30 % nearly square,
    10 % power of 2 of each size, in exact shares and random order; Poisson arrivals; 7 iterations.
    The same seed gives the same jobs in the same order at the same times, whichever of them are
    resizable or of which class (experiments 4.3 and 4.4).

    Parameters
    ----------
    jobs, processors : how many jobs; processors of the machine.
    resizable : share of resizable jobs, the same of each size and topology (4.3 varies it).
    platinum : share of jobs of the user "platinum", likewise; the others' user is "gold".
    user_priorities : whether the user's class is the job's user-assigned priority (4.4).
    mean_arrival_s : mean time between two submissions.
    iterations : iterations of each job.
    speedup : speedup model of all jobs.
    expand_step : processors that an arbitrary job adds in an expansion, as a share of its starting
        size. The paper does not give it; the default is ours.
    expand_most : largest size of a job, in starting sizes, if that is less than the machine has.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    jobs: int = 120
    processors: int = 400
    resizable: float = 1.0
    platinum: float = 0.5
    user_priorities: bool = False
    mean_arrival_s: float = 32.0
    iterations: int = 7
    speedup: Prio = Prio()
    expand_step: float = 0.25
    expand_most: float = inf

    def __post_init__(self) -> None:
        """Check the ranges."""
        share, positive = ">= 0 and <= 1", ">= 0 and finite"
        check_ranges(self, resizable=share, platinum=share, jobs=">= 0", iterations=">= 1")
        check_ranges(self, processors=">= 136")  # those of its large jobs
        check_ranges(self, mean_arrival_s=positive, expand_step=positive, expand_most=">= 1")

    def generate(self, rng: np.random.Generator) -> list[SimJob]:
        """Draw a workload; the same generator state gives the same jobs."""
        types = _types(self.jobs, rng)
        arrivals = np.cumsum(rng.exponential(self.mean_arrival_s, self.jobs))
        resizable = _evenly(types, self.resizable, rng)
        platinum = _evenly(types, self.platinum, rng)
        drawn = zip(arrivals.tolist(), types.tolist(), resizable, platinum, strict=True)
        return [self._job(at, t // 3, t % 3, bool(r), bool(p)) for at, t, r, p in drawn]

    def _job(self, at: float, job_class: int, kind: int, resizable: bool, platinum: bool) -> SimJob:
        processors = ((35, 81, 136), (32, 64, 128))[kind == 2][job_class]
        step = max(1, round(self.expand_step * processors))
        most = int(min(self.processors, self.expand_most * processors))
        topologies = Topology(step=step), Topology("nearly-square"), Topology("power-of-2")
        user = "platinum" if platinum else "gold"
        spec = JobSpec(
            processors,
            (156.0, 240.0, 324.0)[job_class],
            most if resizable else None,
            topologies[kind],
            name=("small", "medium", "large")[job_class],
            user=user,
            priority=CLASSES[user] if self.user_priorities else 0.0,
        )
        run_s = self.iterations * (8.0, 20.0, 32.0)[job_class]
        return SimJob(at, spec, run_s, self.iterations, self.speedup)


#: Cumulative shares of the types: small, medium and large, of each 60, 30 and 10 % by topology.
_BOUNDS = np.cumsum(np.outer([1, 1, 1], [6, 3, 1])) / 30


def _types(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Type of each job, 3 * size + topology, each as often as its share says, in random order."""
    bounds = np.round(_BOUNDS * count).astype(np.int64)
    return rng.permutation(np.searchsorted(bounds, np.arange(count), side="right"))


def _evenly(types: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose this share of the jobs at random, and of each type (to within one job)."""
    order = np.lexsort((rng.random(len(types)), types))
    counts = np.round(np.arange(len(types) + 1) * share)
    mask = np.zeros(len(types), dtype=np.bool_)
    mask[order] = np.diff(counts) > 0
    return mask
