"""A workload of single jobs, resizable or rigid, ready to run."""

from __future__ import annotations

import msgspec

from simulator.engine.costs import ResizeCost
from simulator.engine.jobs import JobList, SimJob
from simulator.traces.trace_jobs import TraceJobs


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

    def submissions(self) -> JobList:
        """The jobs as an engine takes them, in the order of submission."""
        return JobList(self.jobs, self.trace_jobs)
