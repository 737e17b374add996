"""The schedule of a trace: when each job started and ended, and the numbers it is compared by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan

import msgspec
import numpy as np
from numpy.typing import NDArray

from scheduler.model.procset import ProcSet
from simulator.engine.engine import Engine
from simulator.traces.normalise import TraceJobs
from simulator.traces.plain_lines import Column, whole
from simulator.traces.swf import Trace

Floats = NDArray[np.float64]


class Numbers(msgspec.Struct, frozen=True):
    """Numbers of a schedule; means are over the jobs that ended. Times in seconds.

    Parameters
    ----------
    jobs, unstarted, killed : that ended; that never could start; ended before their run was over
        (by the cut at the request, or by the policy).
    mean_bounded_slowdown, max_bounded_slowdown : max(1, (wait + run) / max(run, tau)). The wait of
        a redirected job lasts until its second start.
    utilization : processor-seconds held over those there were, first submission to last end.
    redirected, lost_processor_s : jobs that were redirected, and what their first lives held.
    """

    jobs: int
    unstarted: int
    killed: int
    mean_wait_s: float
    max_wait_s: float
    mean_turnaround_s: float
    mean_bounded_slowdown: float
    tau: float
    utilization: float
    makespan_s: float
    max_bounded_slowdown: float = nan
    redirected: int = 0
    lost_processor_s: float = 0.0


class Fragmentation(msgspec.Struct, frozen=True):
    """Processor-seconds lost to placement; NaN for a run of no duration (`.fragmentation`).

    Shares, from 0 to 1, of all processor-seconds there were.
    """

    external_fragmentation: float
    internal_fragmentation: float


class Schedule(msgspec.Struct, frozen=True):
    """What became of the jobs of a trace.

    Parameters
    ----------
    jobs : in the order of their submission.
    processors : of the machine.
    started, ended : (n,) float64, seconds; nan where a job could not run.
    killed : (n,) bool.
    allocated : processors of each job, by its place in `jobs` from 1, if they were told apart.
    redirected : (place in `jobs` from 1, start, end) of the runs that were ended to begin again.
    fragmentation : what was lost to places, if they were told apart.
    """

    jobs: TraceJobs
    processors: int
    started: Floats
    ended: Floats
    killed: NDArray[np.bool_]
    allocated: Mapping[int, ProcSet] | None = None
    redirected: Sequence[tuple[int, float, float]] = ()
    fragmentation: Fragmentation | None = None

    @classmethod
    def of(cls, engine: Engine, jobs: TraceJobs) -> Schedule:
        """Take over what an engine found that ran these jobs."""
        killed = jobs.cut.copy()
        killed[[number - 1 for number in engine.killed]] = True
        return cls(
            jobs,
            engine.core.machine.processors,
            np.array(engine.started),
            np.array(engine.ended),
            killed,
            engine.allocated,
            engine.redirected,
        )

    @property
    def wait(self) -> Floats:
        """From submission to start, (n,) float64, seconds."""
        return self.started - self.jobs.submitted

    def numbers(self, tau: float = 60.0) -> Numbers:
        """Sum up the schedule.

        Parameters
        ----------
        tau : run times below this count as that long in the bounded slowdown, seconds.
        """
        there = ~np.isnan(self.ended)
        if not there.any():
            return Numbers(0, len(there), 0, nan, nan, nan, nan, tau, nan, 0.0)
        wait, run = self.wait[there], (self.ended - self.started)[there]
        slowdown = np.maximum(1.0, (wait + run) / np.maximum(run, tau))
        makespan = float(self.ended[there].max() - self.jobs.submitted[there].min())
        sizes = self.jobs.processors
        lost = sum(int(sizes[job - 1]) * (end - start) for job, start, end in self.redirected)
        held = float((run * sizes[there]).sum()) + lost
        return Numbers(
            jobs=int(there.sum()),
            unstarted=int((~there).sum()),
            killed=int(self.killed[there].sum()),
            mean_wait_s=float(wait.mean()),
            max_wait_s=float(wait.max()),
            mean_turnaround_s=float((wait + run).mean()),
            mean_bounded_slowdown=float(slowdown.mean()),
            tau=tau,
            utilization=held / (self.processors * makespan) if makespan else nan,
            makespan_s=makespan,
            max_bounded_slowdown=float(slowdown.max()),
            redirected=len(self.redirected),
            lost_processor_s=lost,
        )

    def trace(self, original: Trace) -> Trace:
        """The trace with the waits of this schedule, its run times and processors.

        Jobs come in the order of submission; -1 is the wait of a job that could not run.
        """
        lines = self.jobs.lines
        columns: dict[str, Column] = {
            name: column[lines] for name, column in original.columns.items()
        }
        columns["wait"] = whole(np.where(np.isnan(self.wait), -1.0, self.wait))
        run = self.ended - self.started
        columns["run"] = whole(np.where(np.isnan(run), self.jobs.run, run))
        columns["processors"] = self.jobs.processors
        return Trace(original.path, original.header, columns, original.oddities)
