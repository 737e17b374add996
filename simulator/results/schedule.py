"""The schedule of a run, live, simulated or replayed, and everything that is measured in it.

A schedule has start, end and processors of every job. Each measure is computed here and nowhere
else: waits, bounded slowdowns, held processors over time, utilisation, and what neighbours add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import nan
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ConfigError
from scheduler.model.network import Network
from scheduler.model.orders import Reserve
from scheduler.model.procset import ProcSet
from scheduler.pictures import Series
from simulator.results.placement import dispersal, mean_dispersal
from simulator.traces.normalise import CleaningReport
from simulator.traces.swf import Column, Trace, whole
from simulator.traces.trace_jobs import TraceJobs

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
#: Sizes of a job over time: (time in seconds, processors from then on); 0 between two runs.
Sizes: TypeAlias = Sequence[tuple[float, int]]
#: The same with the processors themselves.
Places: TypeAlias = Sequence[tuple[float, ProcSet]]
#: Metrics of jobs that can be resized; a run of rigid jobs does not report them.
OF_RESIZABLE = ("mean_execution_s", "expansions", "contractions")


class Metrics(msgspec.Struct, frozen=True):
    """Numbers of a run. Means are over the jobs that ended, nan if none did; times in seconds.

    In JSON, a number that does not exist is null.

    Parameters
    ----------
    jobs, unstarted, killed : jobs that ended; that could not start; that ended before their run was
        over (cut at the request, or killed by the core).
    mean_wait_s, max_wait_s : from submission to start, of a redirected job to its second start.
    mean_turnaround_s : from submission to end; PRIO calls it completion time.
    mean_bounded_slowdown, max_bounded_slowdown : max(1, (wait + run) / max(run, tau)).
    tau : bound of the bounded slowdown, seconds.
    utilization : processor-seconds that jobs held over those installed, first submission to last
        end; nan for a makespan of 0.
    makespan_s : from the first submission to the last end.
    redirected, lost_processor_s : jobs that were redirected, and what their first runs held.
    mean_execution_s : from start to end.
    expansions, contractions : changes of size.
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
    mean_execution_s: float = nan
    expansions: int = 0
    contractions: int = 0


class Window(msgspec.Struct, frozen=True):
    """Submissions that count; warm-up and cool-down are what the metrics leave out.

    A simulation begins on an empty machine and ends with a queue that only becomes shorter. Neither
    is the state that a study is about. Jobs that are submitted before or after the window run, and
    keep processors from the others, but count in no mean.

    Parameters
    ----------
    warm_up_s : time from the first submission to the start of the window, s.
    cool_down_s : time from its end to the last submission, s.
    """

    warm_up_s: float = 0.0
    cool_down_s: float = 0.0

    def limits(self, submitted: Floats) -> tuple[float, float]:
        """Start and end of the window, s."""
        return float(submitted.min()) + self.warm_up_s, float(submitted.max()) - self.cool_down_s

    def inside(self, submitted: Floats) -> Bools:
        """Whether each job counts, (n,) bool.

        Raises
        ------
        ConfigError : the window is empty, or no job is submitted in it.
        """
        begin, end = self.limits(submitted)
        inside = (submitted >= begin) & (submitted <= end)
        if not (begin < end and inside.any()):
            span = float(submitted.max()) - float(submitted.min())
            raise ConfigError(
                "warm-up and cool-down leave out all jobs, which are submitted within"
                f" {span:g} s; make them shorter",
                field="warm_up_s" if self.warm_up_s else "cool_down_s",
            )
        return inside


class HeldSpans(NamedTuple):
    """Spans of time in which a job held a number of processors; (m,) each.

    Parameters
    ----------
    job : int64, index of the job.
    begin, end : float64, seconds.
    processors : int64.
    """

    job: NDArray[np.int64]
    begin: Floats
    end: Floats
    processors: NDArray[np.int64]


def bounded_slowdown(wait_s: Floats, run_s: Floats, tau_s: float) -> Floats:
    """(wait + run time) / run time, at least 1; run times below `tau_s` count as `tau_s`."""
    return np.maximum(1.0, (wait_s + run_s) / np.maximum(run_s, tau_s))


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
    redirected : (place in `jobs` from 1, start, end) of the runs that were ended to start again.
    sizes : sizes over time of each job that ran, by its place from 1, of a resizable workload or
        one with redirected jobs.
    held : what each single job held over time, by its place from 1, with those of a group that
        joins from the order to expand on, before they count in `sizes` and `places`: numbers of
        processors, or the processors themselves if they were kept.
    held_s : processor-seconds that jobs held; None: those of `processors`.
    fragmentation : see `fragmentation_of`, if individual processors were allocated.
    dispersal : (n, 2) float64, see `dispersal_in`, if it was measured.
    shares_nodes : whether jobs shared nodes, so that neighbours may have prolonged them.
    computed : (n, 2) float64, seconds that each job computed without neighbours, and what they
        added; nan of jobs that were killed or could not run. For resizable workloads on shared
        nodes.
    first_estimates : (n,) float64, estimate of each job at its submission, seconds; nan where a job
        could not run. The request, unless the scenario predicts run times.
    report : on the cleaning of the trace, if it was cleaned for this run.
    advance : advance reservations.
    places : processors of each job over time, by its place from 1, of a resizable workload, if they
        were kept.
    """

    jobs: TraceJobs
    processors: int
    started: Floats
    ended: Floats
    killed: Bools
    allocated: Mapping[int, ProcSet] | None = None
    redirected: Sequence[tuple[int, float, float]] = ()
    sizes: Mapping[int, Sizes] | None = None
    held: Mapping[int, Sizes | Places] | None = None
    held_s: float | None = None
    fragmentation: Mapping[str, float] | None = None
    dispersal: Floats | None = None
    shares_nodes: bool = False
    computed: Floats | None = None
    first_estimates: Floats | None = None
    report: CleaningReport | None = None
    advance: tuple[Reserve, ...] = ()
    places: Mapping[int, Places] | None = None

    # Of each job.

    @property
    def ran(self) -> Bools:
        """Whether each job ran, (n,) bool."""
        return ~np.isnan(self.ended)

    @property
    def unstarted(self) -> Bools:
        """Whether each job could not start, (n,) bool; not arrays, which have 0 processors."""
        return ~self.ran & (self.jobs.processors > 0)

    @property
    def wait(self) -> Floats:
        """From submission to start, (n,) float64, seconds."""
        return self.started - self.jobs.submitted

    @property
    def run_s(self) -> Floats:
        """From the last start to the end, (n,) float64, seconds."""
        return self.ended - self.started

    def bounded_slowdown(self, tau: float) -> Floats:
        """Bounded slowdown of each job, (n,) float64; run times below `tau` seconds count as it."""
        return bounded_slowdown(self.wait, self.run_s, tau)

    @property
    def penalised_s(self) -> Floats:
        """Penalised run time of each job that was not killed, (n,) float64, seconds; others nan."""
        if self.computed is not None:
            return self.computed[:, 1]
        added = self.run_s - self.jobs.run
        return np.where(self.killed, nan, np.maximum(added, 0.0))

    @property
    def penalised_pct(self) -> Floats:
        """Percentage of the final run time that is penalised (GUIM 3.2, variable 7), (n,) float64.

        The final run time is the nominal plus the penalised one, for a resizable job on the sizes
        that it had and without the pauses of resizes. A killed job has no final run time: its value
        is nan, so that means and percentiles leave it out.
        """
        added = self.penalised_s
        nominal = self.jobs.run if self.computed is None else self.computed[:, 0]
        return 100 * added / np.maximum(nominal + added, np.finfo(float).tiny)

    # What jobs held, and when.

    def size_spans(self) -> HeldSpans:
        """How many processors each job held, in the order of the jobs.

        These spans add up to the utilization. Of a schedule that was read from a jobs.csv they lack
        the groups that join.
        """
        record = self.sizes if self.held is None else self.held
        if record is None:
            ran = np.flatnonzero(self.ran)
            return HeldSpans(ran, self.started[ran], self.ended[ran], self.jobs.processors[ran])
        spans = [
            (*span, held if isinstance(held, int) else len(held))
            for *span, held in self._spans(record)
        ]
        table = np.array(spans, np.float64).reshape(-1, 4).T
        return HeldSpans(table[0].astype(np.int64), table[1], table[2], table[3].astype(np.int64))

    def place_spans(self, *, joining: bool = False) -> list[tuple[int, float, float, ProcSet]]:
        """Job (its index), begin and end (s) of each span of time in which it held the processors.

        Individual processors must have been allocated.

        Parameters
        ----------
        joining : with those of groups that join, if they are known; else those on which it
            computes.
        """
        assert self.allocated is not None
        record = self.held if joining and self.held else self.places
        if record is not None:
            return self._spans(record)
        started, ended = self.started.tolist(), self.ended.tolist()
        ran = np.flatnonzero(self.ran).tolist()
        return [(job, started[job], ended[job], self.allocated[job + 1]) for job in ran]

    def _spans(self, record: Mapping[int, Sizes | Places]) -> list[tuple[int, float, float, Any]]:
        """Job (its index), begin and end (s) of each span of a record, and what it held in it."""
        return [
            (job, begin, then, held)
            for job, end in enumerate(self.ended.tolist())
            for (begin, held), (then, _) in pairwise([*record.get(job + 1, ()), (end, 0)])
            if held  # it holds nothing between two runs, if it was redirected
        ]

    @property
    def least_processors(self) -> int:
        """Least number of processors of a machine that ran these jobs.

        Without allocations it is the size of the largest job, a lower bound.
        """
        if self.allocated is None:
            return int(self.size_spans().processors.max())
        return 1 + max(held.intervals[-1][1] for *_, held in self.place_spans())

    def _lost_s(self, runs: Sequence[tuple[int, float, float]]) -> float:
        """Processor-seconds of runs that were ended to start again."""
        sizes = self.jobs.processors
        return sum(int(sizes[job - 1]) * (end - start) for job, start, end in runs)

    @property
    def all_held_s(self) -> float:
        """Processor-seconds that all jobs held together."""
        if self.held_s is not None:
            return self.held_s
        ran = self.ran
        held_s = (self.ended[ran] - self.started[ran]) * self.jobs.processors[ran]
        return float(held_s.sum()) + self._lost_s(self.redirected)

    @property
    def job_held_s(self) -> Floats:
        """Processor-seconds that each job held, (n,) float64."""
        held, held_s = self.size_spans(), np.zeros(len(self.jobs))
        np.add.at(held_s, held.job, (held.end - held.begin) * held.processors)
        return held_s

    def _held_between(self, begin: float, end: float) -> float:
        """Processor-seconds that jobs hold in a span of time."""
        held = self.size_spans()
        inside = np.minimum(held.end, end) - np.maximum(held.begin, begin)
        return float((np.maximum(inside, 0.0) * held.processors).sum())

    def in_use(self, chosen: Bools | None = None) -> Series:
        """Processors held by jobs over time, or in some of the spans of `size_spans`."""
        held = self.size_spans()
        spans = held.begin, held.end, held.processors.astype(np.float64)
        return Series.of(*(spans if chosen is None else (column[chosen] for column in spans)))

    def waiting(self, *, processors: bool = False) -> Series:
        """Number of waiting jobs over time, or of processors that they request, if they ran."""
        ran, amounts = self.ran, np.ones(len(self.jobs))
        if processors:
            amounts = self.jobs.processors.astype(np.float64)
        return Series.of(self.jobs.submitted[ran], self.started[ran], amounts[ran])

    # Of all jobs together.

    def metrics(self, tau: float = 60.0, window: Window | None = None) -> Metrics:
        """Compute the metrics of the schedule, or of the jobs that are submitted in a window.

        The utilisation of a window is that from its start to its end: of the processor-seconds
        installed, those that jobs held, whenever these were submitted.

        Parameters
        ----------
        tau : run times below this bound count as the bound in the bounded slowdown, seconds.

        Raises
        ------
        ConfigError : see `Window.inside`.
        """
        submitted, used = self.jobs.submitted, nan
        inside = np.ones(len(submitted), np.bool_)
        if window is not None:
            inside = window.inside(submitted)
            begin, end = window.limits(submitted)
            used = self._held_between(begin, end) / (self.processors * (end - begin))
        counted, unstarted = inside & self.ran, int((inside & self.unstarted).sum())
        if not counted.any():
            return Metrics(0, unstarted, 0, nan, nan, nan, nan, tau, used, 0.0)
        wait, run, ended = self.wait[counted], self.run_s[counted], self.ended[counted]
        turnaround, slowdown = wait + run, self.bounded_slowdown(tau)[counted]
        makespan = float(ended.max() - submitted[counted].min())
        if window is None and makespan:
            used = self.all_held_s / (self.processors * makespan)
        redirected = [first for first in self.redirected if inside[first[0] - 1]]
        steps = self._steps(inside)
        return Metrics(
            jobs=len(ended),
            unstarted=unstarted,
            killed=int(self.killed[counted].sum()),
            mean_wait_s=float(wait.mean()),
            max_wait_s=float(wait.max()),
            mean_turnaround_s=float(turnaround.mean()),
            mean_bounded_slowdown=float(slowdown.mean()),
            tau=tau,
            utilization=used,
            makespan_s=makespan,
            max_bounded_slowdown=float(slowdown.max()),
            redirected=len(redirected),
            lost_processor_s=self._lost_s(redirected),
            # Added one by one in the order of the ends; `mean` adds by pairs.
            mean_execution_s=float(np.cumsum(run[np.argsort(ended, kind="stable")])[-1]) / len(run),
            expansions=sum(step > 0 for step in steps),
            contractions=sum(step < 0 for step in steps),
        )

    def _steps(self, jobs: Bools) -> list[int]:
        """Changes of size of some jobs, in processors; a redirection (size 0 between) is none."""
        return [
            new - old
            for job, sizes in (self.sizes or {}).items()
            if jobs[job - 1]
            for (_, old), (_, new) in pairwise(sizes)
            if old and new
        ]

    @property
    def penalties(self) -> dict[str, float]:
        """Penalised run time of the jobs that ran to their ends (GUIM 4.2, 6.4); nan without any.

        Returns
        -------
        `mean_penalised_s`, what neighbours added to a run time, seconds; `mean_penalised_pct` and
        `p95_penalised_pct`, the same as a percentage of the job's final run time. Empty if no nodes
        were shared.
        """
        if not self.shares_nodes:
            return {}
        added, share = self.penalised_s, self.penalised_pct
        over = ~np.isnan(added)
        some = over.any()
        return {
            "mean_penalised_s": float(added[over].mean()) if some else nan,
            "mean_penalised_pct": float(share[over].mean()) if some else nan,
            "p95_penalised_pct": float(np.percentile(share[over], 95)) if some else nan,
        }

    def fragmentation_of(self, lost_s: float, requested: NDArray[np.int64]) -> dict[str, float]:
        """Compute the fragmentation.

        Parameters
        ----------
        lost_s : processor-seconds counted by `ExternalLoss`.
        requested : (n,) int64, processors that the jobs requested.

        Returns
        -------
        `external_fragmentation` and `internal_fragmentation`: processor-seconds lost to placement,
        as shares from 0 to 1 of those installed; nan for a makespan of 0.
        """
        ran, all_s, beyond = self.ran, 0.0, 0.0
        if ran.any():
            makespan = float(self.ended[ran].max() - self.jobs.submitted[ran].min())
            all_s = self.processors * makespan
            extra = (self.jobs.processors - requested)[ran]
            beyond = float((self.run_s[ran] * extra).sum())
        return {
            "external_fragmentation": lost_s / all_s if all_s else nan,
            "internal_fragmentation": beyond / all_s if all_s else nan,
        }

    def dispersal_in(self, network: Network) -> Floats:
        """Measure how far apart the processors of each job are in a network.

        Returns
        -------
        (n, 2) float64: mean distance of two processors, links (0 for one processor), and extent,
        the longest side of the smallest box around the nodes, or the level of the lowest switch
        above them; means over time if the processors change, nan where a job did not run
        """
        ends, allocated = enumerate(self.ended.tolist(), 1), self.allocated or {}
        if self.places is not None:
            pairs = [mean_dispersal(network, self.places.get(n, ()), end) for n, end in ends]
        else:
            held = (allocated.get(number) for number, _ in ends)
            pairs = [(nan, nan) if each is None else dispersal(network, each) for each in held]
        return np.array(pairs, np.float64).reshape(-1, 2)

    @property
    def mean_dispersal(self) -> dict[str, float]:
        """Means of both numbers of `dispersal` over the jobs that ran; empty if not measured."""
        if self.dispersal is None:
            return {}
        ran = self.dispersal[~np.isnan(self.dispersal[:, 1])]
        means = [float(column.mean()) if len(ran) else nan for column in ran.T]
        return dict(zip(("mean_distance", "mean_extent"), means, strict=True))

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
