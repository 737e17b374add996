"""The metrics by which schedules are compared: one definition for every kind of run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import nan
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
#: Sizes of a job over time: (time in seconds, processors from then on); 0 between two runs.
Sizes: TypeAlias = Sequence[tuple[float, int]]
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


def bounded_slowdown(wait_s: Floats, run_s: Floats, tau_s: float) -> Floats:
    """(wait + run time) / run time, at least 1; run times below `tau_s` count as `tau_s`."""
    return np.maximum(1.0, (wait_s + run_s) / np.maximum(run_s, tau_s))


def utilization(held_s: float, processors: int, makespan_s: float) -> float:
    """Processor-seconds that jobs held over those installed; nan for a makespan of 0."""
    return held_s / (processors * makespan_s) if makespan_s else nan


def _steps(sizes: Sizes) -> list[int]:
    """Changes of size, in processors; a redirection (size 0 in between) is none."""
    numbers = [size for _, size in sizes]
    return [new - old for old, new in pairwise(numbers) if old and new]


def metrics_of(
    submitted: Floats,
    started: Floats,
    ended: Floats,
    *,
    processors: int,
    held_s: float,
    tau: float,
    unstarted: int,
    killed: int,
    redirected: int = 0,
    lost_processor_s: float = 0.0,
    sizes: Iterable[Sizes] = (),
) -> Metrics:
    """Compute the metrics of a run.

    Parameters
    ----------
    submitted, started, ended : (n,) float64, seconds, of the jobs that ended.
    processors : of the machine.
    held_s : processor-seconds that jobs held.
    tau : run times below this bound count as the bound in the bounded slowdown, seconds.
    unstarted, killed, redirected, lost_processor_s : as in `Metrics`.
    sizes : of jobs that were resized or redirected, over time.
    """
    if not len(ended):
        return Metrics(0, unstarted, 0, nan, nan, nan, nan, tau, nan, 0.0)
    steps = [step for each in sizes for step in _steps(each)]
    wait, run = started - submitted, ended - started
    turnaround = wait + run
    slowdown = bounded_slowdown(wait, run, tau)
    makespan = float(ended.max() - submitted.min())
    return Metrics(
        jobs=len(ended),
        unstarted=unstarted,
        killed=killed,
        mean_wait_s=float(wait.mean()),
        max_wait_s=float(wait.max()),
        mean_turnaround_s=float(turnaround.mean()),
        mean_bounded_slowdown=float(slowdown.mean()),
        tau=tau,
        utilization=utilization(held_s, processors, makespan),
        makespan_s=makespan,
        max_bounded_slowdown=float(slowdown.max()),
        redirected=redirected,
        lost_processor_s=lost_processor_s,
        # Added one by one in the order of the ends; `mean` adds by pairs.
        mean_execution_s=float(np.cumsum(run[np.argsort(ended, kind="stable")])[-1]) / len(run),
        expansions=sum(step > 0 for step in steps),
        contractions=sum(step < 0 for step in steps),
    )
