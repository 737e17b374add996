"""A workload of single jobs, resizable or rigid, ready to run."""

from __future__ import annotations

import msgspec
import numpy as np

from simulator.engine.costs import ResizeCost
from simulator.engine.jobs import SimJob
from simulator.traces.normalise import TraceJobs


class Workload(msgspec.Struct, frozen=True):
    """A workload of single jobs.

    Parameters
    ----------
    processors : of the machine, if the workload names them.
    jobs : in any order.
    cost : cost of a resize.
    start_s, end_s : from the order to start a job until it computes, and from its last iteration
        until its processes are gone, seconds.
    trace_jobs : jobs of the trace from which the workload was made, in the order of `jobs`.
    kills : whether jobs are killed at their walltimes; not if the rules of cleaning have decided
        about runs longer than requested.
    """

    processors: int | None
    jobs: list[SimJob]
    cost: ResizeCost = ResizeCost()
    start_s: float = 0.0
    end_s: float = 0.0
    trace_jobs: TraceJobs | None = None
    kills: bool = True

    def columns(self) -> TraceJobs:
        """Columns of the jobs in the order of submission; run times are those of rigid jobs."""
        if self.trace_jobs is not None:
            return self.trace_jobs
        jobs = sorted(self.jobs, key=lambda job: job.at)
        count = len(jobs)
        names = sorted({job.spec.user for job in jobs})
        users = {name: number for number, name in enumerate(names)}
        partitions = {job.spec.partition: None for job in jobs if job.spec.partition}
        places = {name: place for place, name in enumerate(partitions)}
        return TraceJobs(
            lines=np.arange(count),
            numbers=np.arange(1, count + 1),
            submitted=np.array([job.at for job in jobs], float),
            run=np.array([job.run_s for job in jobs], float),
            estimate=np.array([job.spec.walltime_s for job in jobs], float),
            processors=np.array([job.spec.processors for job in jobs], np.int64),
            users=np.array([users[job.spec.user] for job in jobs], np.int64),
            priorities=np.array([job.spec.priority for job in jobs], float),
            cut=np.zeros(count, bool),
            partition=np.array([places[job.spec.partition] for job in jobs if places], np.int64),
            partitions=tuple(partitions),
        )
