"""The schedule of a simulation: start, end and processors of every job, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from scheduler.model.orders import Reserve
from scheduler.model.procset import ProcSet
from simulator.results.dispersal import Dispersal
from simulator.results.metrics import Metrics, Sizes, metrics_of
from simulator.traces.normalise import CleaningReport
from simulator.traces.plain_lines import Column, whole
from simulator.traces.swf import Trace
from simulator.traces.trace_jobs import TraceJobs

Floats: TypeAlias = NDArray[np.float64]
#: Processors of a job over time: (time in seconds, processors from then on).
Places: TypeAlias = Sequence[tuple[float, ProcSet]]


class Fragmentation(msgspec.Struct, frozen=True):
    """Processor-seconds lost to placement, as shares from 0 to 1 of those installed.

    nan for a makespan of 0; see `simulator.results.fragmentation`.
    """

    external_fragmentation: float
    internal_fragmentation: float


class Penalties(msgspec.Struct, frozen=True):
    """Penalised run time of the jobs that ran to their ends; nan if there are none.

    Parameters
    ----------
    mean_penalised_s : what neighbours added to a run time, seconds.
    mean_penalised_pct, p95_penalised_pct : the same as a percentage of the job's final run time.
    """

    mean_penalised_s: float
    mean_penalised_pct: float
    p95_penalised_pct: float


class Schedule(msgspec.Struct, frozen=True):
    """What became of the jobs of a workload.

    Parameters
    ----------
    jobs : in the order of their submission.
    processors : of the machine.
    started, ended : (n,) float64, seconds; nan where a job could not run.
    killed : (n,) bool.
    allocated : processors with which each job started, by its place in `jobs` from 1, if they were
        kept.
    places : processors of each job over time, by its place from 1, of a resizable workload, if they
        were kept.
    redirected : (place in `jobs` from 1, start, end) of the runs that were ended to start again.
    sizes : sizes over time of each job that ran, by its place from 1, of a resizable workload or
        one with redirected jobs.
    held : number of processors that each single job held over time, by its place from 1: those of
        a group that joins from the order to expand on, before they count in `sizes` and `places`.
    held_places : the same with the processors themselves, if they were kept.
    held_s : processor-seconds that jobs held; None: those of `processors`.
    fragmentation : if individual processors were allocated.
    dispersal : of the jobs in the network, if it was measured.
    penalties : if nodes were shared.
    computed : (n, 2) float64, seconds that each job computed without neighbours, and what they
        added; nan of jobs that were killed or could not run. For resizable workloads on shared
        nodes.
    first_estimates : (n,) float64, estimate of each job at its submission, seconds; nan where a job
        could not run. The request, unless the scenario predicts run times.
    advance : advance reservations.
    report : on the cleaning of the trace, if it was cleaned for this run.
    """

    jobs: TraceJobs
    processors: int
    started: Floats
    ended: Floats
    killed: NDArray[np.bool_]
    allocated: Mapping[int, ProcSet] | None = None
    redirected: Sequence[tuple[int, float, float]] = ()
    sizes: Mapping[int, Sizes] | None = None
    held: Mapping[int, Sizes] | None = None
    held_places: Mapping[int, Places] | None = None
    held_s: float | None = None
    fragmentation: Fragmentation | None = None
    dispersal: Dispersal | None = None
    penalties: Penalties | None = None
    computed: Floats | None = None
    first_estimates: Floats | None = None
    report: CleaningReport | None = None
    advance: tuple[Reserve, ...] = ()
    places: Mapping[int, Places] | None = None

    @property
    def ran(self) -> NDArray[np.bool_]:
        """Whether each job ran, (n,) bool."""
        return ~np.isnan(self.ended)

    @property
    def wait(self) -> Floats:
        """From submission to start, (n,) float64, seconds."""
        return self.started - self.jobs.submitted

    @property
    def run_s(self) -> Floats:
        """From the last start to the end, (n,) float64, seconds."""
        return self.ended - self.started

    @property
    def lost_processor_s(self) -> float:
        """Processor-seconds of the runs that were ended to start again."""
        sizes = self.jobs.processors
        return sum(int(sizes[job - 1]) * (end - start) for job, start, end in self.redirected)

    @property
    def all_held_s(self) -> float:
        """Processor-seconds that all jobs held together."""
        if self.held_s is not None:
            return self.held_s
        ran = self.ran
        held_s = (self.ended[ran] - self.started[ran]) * self.jobs.processors[ran]
        return float(held_s.sum()) + self.lost_processor_s

    def metrics(self, tau: float = 60.0) -> Metrics:
        """Compute the metrics of the schedule.

        Parameters
        ----------
        tau : run times below this bound count as the bound in the bounded slowdown, seconds.
        """
        ran = self.ran
        return metrics_of(
            self.jobs.submitted[ran],
            self.started[ran],
            self.ended[ran],
            processors=self.processors,
            held_s=self.all_held_s,
            tau=tau,
            unstarted=int((~ran).sum()),
            killed=int(self.killed[ran].sum()),
            redirected=len(self.redirected),
            lost_processor_s=self.lost_processor_s,
            sizes=(self.sizes or {}).values(),
        )

    def trace(self, original: Trace) -> Trace:
        """The trace with the waits of this schedule, its run times and processors.

        Jobs come in the order of submission; -1 is the wait of a job that could not run.
        """
        columns: dict[str, Column] = {
            name: column[self.jobs.lines] for name, column in original.columns.items()
        }
        columns["submit"] = whole(self.jobs.submitted)
        columns["wait"] = whole(np.where(np.isnan(self.wait), -1.0, self.wait))
        run_s = self.run_s
        columns["run"] = whole(np.where(np.isnan(run_s), self.jobs.run, run_s))
        columns["processors"] = self.jobs.processors
        in_order = np.argsort(self.jobs.submitted, kind="stable")  # feedback may change it
        columns = {name: column[in_order] for name, column in columns.items()}
        return Trace(original.path, original.header, columns, original.oddities)
