"""A trace with another offered load."""

from __future__ import annotations

from math import inf

import numpy as np

from reshape.errors import ReshapeError
from simulator.traces.swf import Trace
from simulator.traces.trace_jobs import TraceJobs


def offered_load(jobs: TraceJobs, processors: int) -> float | None:
    """Work of the jobs over the processor-seconds between the first and the last submission.

    None if all jobs are submitted at one time.
    """
    span = float(jobs.submitted[-1] - jobs.submitted[0])
    work = float((jobs.run * jobs.processors).sum())
    return work / (processors * span) if span else None


def scaled(trace: Trace, jobs: TraceJobs, processors: int, load: float) -> Trace:
    """Trace whose times between submissions are multiplied by one factor to reach a load.

    Submit times are rounded to whole seconds. The waits are unknown (-1): those of the log belong
    to the other load.

    Parameters
    ----------
    jobs : what the rules keep of the trace; their load counts.
    load : offered load to reach, > 0.

    Raises
    ------
    ValueError : the load is not above 0 and finite.
    ReshapeError : all jobs are submitted at one time.
    """
    if not 0 < load < inf:
        raise ValueError(f"the load must be > 0 and finite, got {load}")
    now = offered_load(jobs, processors)
    if not now:
        raise ReshapeError(f"{trace.path}: all jobs are submitted at one time; there is no load")
    submit = trace.columns["submit"].astype(np.float64)
    first = float(jobs.submitted[0])
    moved = np.round(first + (submit - first) * (now / load))
    columns = dict(trace.columns)
    columns["submit"] = np.where(submit < 0, submit, np.maximum(moved, 0)).astype(np.int64)
    columns["wait"] = np.full(len(trace), -1, np.int64)
    return Trace(trace.path, trace.header, columns, trace.oddities)
