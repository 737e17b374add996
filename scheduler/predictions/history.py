"""Statistical estimators over the run times in clusters of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from statistics import fmean, median, pstdev
from typing import Literal

import msgspec

from reshape.errors import check_ranges
from scheduler.model.job import Job
from scheduler.predictions.predictor import (
    LEAST_S,
    LONGEST_S,
    Cluster,
    DeadlineManagers,
    LatestRuns,
    Predictor,
)


class HistoryPredictor(Predictor):
    """Predictor that returns the user's estimate until it has enough history."""

    def forecast(self, job: Job) -> float | None:
        """Return the run time to expect, s; None without enough history."""
        raise NotImplementedError

    def predict(self, job: Job) -> float:
        """Return the forecast, at least 1 s, or the user's estimate if there is none."""
        forecast_s = self.forecast(job)
        return job.spec.walltime_s if forecast_s is None else limited_s(forecast_s)


class Statistical(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Estimates by the mean or the median of the run times of a cluster (GUIM 4.4.2).

    Parameters
    ----------
    cluster : "none", "user" or "group".
    window : latest ended jobs of a cluster that are kept.
    least_jobs : ended jobs of a cluster from which on there are predictions; until then the user's
        estimate is the prediction.
    deadlines : managers of missed predictions.
    estimator : "mean" or "median".
    spreads : how many standard deviations are added to the mean, or interquartile ranges to the
        median; >= 0.

    Raises
    ------
    ValueError : `least_jobs` is below 1 or above `window`; `window` or `spreads` is out of range.
    """

    cluster: Cluster = "user"
    window: int = 200
    least_jobs: int = 2
    deadlines: DeadlineManagers = DeadlineManagers()
    estimator: Literal["mean", "median"] = "mean"
    spreads: float = 0.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 1 <= self.least_jobs <= self.window:
            raise ValueError(
                f"least_jobs must be >= 1 and <= window {self.window}, got {self.least_jobs}"
            )
        check_ranges(self, window="<= 1e9", spreads=">= 0 and finite")

    def predictor(self) -> ClusterPredictor:
        """Create a predictor that has not learned yet."""
        return ClusterPredictor(self)


class ClusterPredictor(LatestRuns, HistoryPredictor):
    """Predictor by the run times of the latest ended jobs of each cluster."""

    def __init__(self, parameters: Statistical) -> None:
        super().__init__(parameters.window, parameters.cluster)
        self._parameters, self.deadlines = parameters, parameters.deadlines

    def forecast(self, job: Job) -> float | None:
        """Return the estimator for the job's cluster, s; None without enough history."""
        own, times = self._parameters, self._times(job)
        if times is None:
            return None
        if own.estimator == "mean":
            return fmean(times) + (own.spreads * pstdev(times) if own.spreads else 0.0)
        middle = median(times)
        if not own.spreads:
            return middle
        return middle + own.spreads * (quantile(times, 0.75) - quantile(times, 0.25))

    def quantiles(self, job: Job, probabilities: Sequence[float]) -> list[float] | None:
        """Return quantiles of the run times of the job's cluster, s."""
        times = self._times(job)
        return None if times is None else [quantile(times, p) for p in probabilities]

    def _times(self, job: Job) -> list[float] | None:
        """Run times of a job's cluster, ascending, s; None if there are too few jobs."""
        times = sorted(self.runs_of(job))
        return None if len(times) < self._parameters.least_jobs else times


def limited_s(predicted_s: float) -> float:
    """Limit a prediction to the range from 1 s to `LONGEST_S`; NaN becomes `LONGEST_S`."""
    if not isfinite(predicted_s):
        return LONGEST_S
    return min(max(predicted_s, LEAST_S), LONGEST_S)


def quantile(ascending: Sequence[float], probability: float) -> float:
    """Quantile of sorted values, linear between them (definition 7 of Hyndman and Fan 1996)."""
    position = probability * (len(ascending) - 1)
    below = int(position)
    low, high = ascending[below], ascending[min(below + 1, len(ascending) - 1)]
    return min(low + (position - below) * (high - low), high)
