"""Accuracy of predictors over a trace, played in the order of time."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from scheduler.model.job import Job
from scheduler.pictures import INK, WAITING, new_figure, reduce_frame
from scheduler.predictions.predictor import Predictor
from simulator.traces.trace_jobs import TraceJobs

Floats: TypeAlias = NDArray[np.float64]


class Accuracy(msgspec.Struct, frozen=True):
    """Errors of a predictor over a trace; the error of a job is prediction minus run time.

    Parameters
    ----------
    jobs : number of jobs that were predicted.
    median_error_s, iqr_error_s, p95_error_s : median, interquartile range and 95th percentile of
        the absolute errors, s.
    under_pct, over_pct : percentage of jobs predicted shorter, and longer, than they ran.
    coverage_pct : percentage of jobs whose run time is between the quantiles of 5 % and 95 %, of
        those with quantiles; None if there are none.
    """

    jobs: int
    median_error_s: float
    iqr_error_s: float
    p95_error_s: float
    under_pct: float
    over_pct: float
    coverage_pct: float | None


class PlayedTrace(NamedTuple):
    """Predictions for the jobs of a trace, in the order of submission.

    Parameters
    ----------
    run_s, predicted_s : (n,) float64.
    quantiles_s : (n, 2) float64, of 5 % and 95 %; nan where the predictor has none.
    """

    run_s: Floats
    predicted_s: Floats
    quantiles_s: Floats

    @property
    def errors_s(self) -> Floats:
        """Prediction minus run time, (n,) float64, s."""
        return self.predicted_s - self.run_s

    def accuracy(self) -> Accuracy:
        """Summary of the errors. Precondition: there are jobs."""
        errors = self.errors_s
        sizes = np.abs(errors)
        low, middle, high, p95 = np.percentile(sizes, (25, 50, 75, 95)).tolist()
        known = ~np.isnan(self.quantiles_s).any(axis=1)
        below, above = self.quantiles_s[known].T
        inside = (below <= self.run_s[known]) & (self.run_s[known] <= above)
        return Accuracy(
            jobs=len(errors),
            median_error_s=middle,
            iqr_error_s=high - low,
            p95_error_s=p95,
            under_pct=100 * float((errors < 0).mean()),
            over_pct=100 * float((errors > 0).mean()),
            coverage_pct=100 * float(inside.mean()) if known.any() else None,
        )


def play(predictor: Predictor, jobs: TraceJobs, waits_s: Floats) -> PlayedTrace:
    """Predict the run time of each job at its submission.

    The predictor learns a run time when the job ends, which is its submission plus its wait plus
    its run time. An end at the time of a submission comes first.

    Parameters
    ----------
    predictor : a new one.
    waits_s : (n,) float64, waiting time of each job, s.
    """
    run_times, specs = jobs.run_times(), jobs.specs()
    predicted = np.zeros(len(jobs))
    quantiles = np.full((len(jobs), 2), np.nan)
    changes: list[tuple[float, int, bool, Job]] = []  # (time, job number, whether it ends, job)
    for i, (at, wait_s) in enumerate(zip(jobs.submit_times(), waits_s.tolist(), strict=True)):
        while changes and changes[0][0] <= at:
            _change(predictor, changes, run_times)
        job = Job(i + 1, specs[i], at)
        predictor.submitted(job)
        predicted[i] = predictor.predict(job)
        interval = predictor.quantiles(job, predictor.INTERVAL)
        if interval is not None:
            quantiles[i] = interval
        heappush(changes, (at + wait_s, job.id, False, job))
    return PlayedTrace(np.array(run_times), predicted, quantiles)


def _change(
    predictor: Predictor, changes: list[tuple[float, int, bool, Job]], run_times: list[float]
) -> None:
    """Let the predictor note the next start or end."""
    at, number, ends, job = heappop(changes)
    if ends:
        job.ended_at = at
        predictor.ended(job)
        return
    job.started_at = at
    predictor.started(job)
    heappush(changes, (at + run_times[number - 1], number, True, job))


#: Number of spans of jobs over which medians are drawn.
SPANS = 50


def draw_errors(played: Mapping[str, PlayedTrace], about: str) -> Figure:
    """Draw the absolute error of each job on a logarithmic axis, and medians over spans of jobs.

    Parameters
    ----------
    played : name of the predictor -> predictions. Errors below 1 s are drawn at 1 s.
    """
    figure = new_figure(1 + 1.8 * len(played), f"Error of the predicted run time: {about}")
    rows = figure.subplots(len(played), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (name, each) in zip(rows, played.items(), strict=True):
        sizes = np.maximum(np.abs(each.errors_s), 1.0)
        numbers = np.arange(1, len(sizes) + 1)
        axes.scatter(numbers, sizes, s=3, color=WAITING, alpha=0.6, linewidths=0, rasterized=True)
        spans = [span for span in np.array_split(np.arange(len(sizes)), SPANS) if len(span)]
        middles = [float(numbers[span].mean()) for span in spans]
        axes.plot(middles, [float(np.median(sizes[span])) for span in spans], color=INK)
        axes.set_yscale("log")
        axes.set_ylabel(f"{name}\n|error|, s")
        reduce_frame(axes)
    rows[-1].set_xlabel("job, in the order of submission; the line is the median")
    return figure
