"""Traces made resizable: the run of a job is cut into iterations, a model gives its speedup.

The jobs of a trace have one size and one run time; a job that keeps its size runs exactly as long
as it did.
"""

from __future__ import annotations

from math import ceil

import msgspec
import numpy as np

from reshape.speedup import Model
from reshape.topology import Topology
from scheduler.config.partitions import PartitionLimits
from simulator.engine.costs import ResizeCost
from simulator.engine.jobs import SimJob
from simulator.traces.trace_jobs import TraceJobs
from simulator.workload_models.workload import Workload


class Resizability(msgspec.Struct, frozen=True):
    """How jobs of a trace are made resizable.

    Parameters
    ----------
    resizable : share of the jobs, from 0 to 1, drawn by `seed`.
    speedup : of every resizable job.
    iterations : of every resizable job, with a resize point between any two.
    expand_most : largest size of jobs that state none, in multiples of the processors requested.
    expand_least : smallest size of jobs that state none, as a share of the processors requested;
        1: no job starts on fewer processors, or contracts below those on which it starts.
    expand_step : distance of its sizes, as a share of the processors requested.
    data_mib : data that moves at a resize, MiB for each processor requested.
    cost : cost of a resize.
    performance : performance model that the scheduler uses for resizable jobs; "": none.
    """

    resizable: float
    speedup: Model
    iterations: int = 10
    expand_most: float = 4.0
    expand_least: float = 1.0
    expand_step: float = 0.25
    data_mib: float = 0.0
    cost: ResizeCost = ResizeCost()
    seed: int = 0
    performance: str = ""


def of_trace(
    jobs: TraceJobs,
    processors: int,
    how: Resizability,
    *,
    kills: bool = False,
    limits: PartitionLimits | None = None,
) -> Workload:
    """Make a share of the jobs of a trace resizable, none above the size of the machine.

    Parameters
    ----------
    limits : of the partitions of the machine; None: there are none.
    kills : see `Workload`.
    """
    rng = np.random.default_rng(how.seed)
    chosen = rng.permutation(len(jobs)) < round(how.resizable * len(jobs))
    made = []
    for at, spec, run_s, is_chosen in zip(
        jobs.submit_times(), jobs.specs(), jobs.run_times(), chosen.tolist(), strict=True
    ):
        start = spec.processors
        there = processors if limits is None else limits.largest(spec.partition)
        most = min(there, spec.max_processors or int(how.expand_most * start))
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
        made.append(SimJob(at, spec, run_s, how.iterations, how.speedup, data_bytes))
    return Workload(processors, made, how.cost, trace_jobs=jobs, kills=kills)
