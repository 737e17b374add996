"""Predictors that learn from run times in clusters of jobs: statistical estimators, and a line."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import StatisticsError, fmean, linear_regression, median, pstdev
from typing import Literal, TypeAlias

import msgspec

from scheduler.model.job import Job
from scheduler.predictions.predictor import (
    LEAST_S,
    LONGEST_S,
    DeadlineManagers,
    Predictor,
    run_time_s,
)

#: Jobs whose history is shared: all jobs, those of a user, or those of a group.
Cluster: TypeAlias = Literal["none", "user", "group"]
#: (variable, run time in s) of the latest ended jobs of a cluster.
Runs: TypeAlias = deque[tuple[float, float]]


class HistoryPredictor(Predictor):
    """Predictor that returns the user's estimate until it has enough history."""

    def forecast(self, job: Job) -> float | None:
        """Return the run time to expect, s; None without enough history."""
        raise NotImplementedError

    def predict(self, job: Job) -> float:
        """Return the forecast, at least 1 s, or the user's estimate if there is none."""
        forecast_s = self.forecast(job)
        return job.spec.walltime_s if forecast_s is None else limited_s(forecast_s)


class ByCluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of estimates from the latest ended jobs of the cluster of a job.

    Parameters
    ----------
    cluster : "none", "user" or "group".
    window : latest ended jobs of a cluster that are kept.
    least_jobs : ended jobs of a cluster from which on there are predictions; until then the user's
        estimate is the prediction.
    deadlines : managers of missed predictions.

    Raises
    ------
    ValueError : `least_jobs` is below 1 or above `window`.
    """

    cluster: Cluster = "user"
    window: int = 200
    least_jobs: int = 2
    deadlines: DeadlineManagers = DeadlineManagers()

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 1 <= self.least_jobs <= self.window:
            raise ValueError(
                f"least_jobs must be >= 1 and <= window {self.window}, got {self.least_jobs}"
            )

    def predictor(self) -> ClusterPredictor:
        """Create a predictor that has not learned yet."""
        return ClusterPredictor(self)

    def cluster_of(self, job: Job) -> str:
        """Return the name of the cluster of a job; unknown users and groups form one cluster."""
        if self.cluster == "none":
            return ""
        return job.spec.user if self.cluster == "user" else job.spec.group

    def variable_of(self, job: Job) -> float:
        """Return the variable that is kept with the run time of a job."""
        return 0.0

    def forecast(self, job: Job, runs: Runs) -> float:
        """Return the run time to expect of a job by the runs of its cluster, s."""
        raise NotImplementedError

    def quantiles(self, job: Job, runs: Runs, probabilities: Sequence[float]) -> list[float]:
        """Return quantiles of the run time to expect, s."""
        raise NotImplementedError


class ClusterPredictor(HistoryPredictor):
    """Predictor that keeps the latest ended jobs of each cluster."""

    def __init__(self, parameters: ByCluster) -> None:
        self._parameters, self.deadlines = parameters, parameters.deadlines
        self._runs: dict[str, Runs] = {}

    def forecast(self, job: Job) -> float | None:
        """Return the forecast by the job's cluster, s; None without enough history."""
        runs = self._runs_of(job)
        return None if runs is None else self._parameters.forecast(job, runs)

    def quantiles(self, job: Job, probabilities: Sequence[float]) -> list[float] | None:
        """Return quantiles by the job's cluster, s; None without enough history."""
        runs = self._runs_of(job)
        return None if runs is None else self._parameters.quantiles(job, runs, probabilities)

    def _runs_of(self, job: Job) -> Runs | None:
        """History of a job's cluster; None if there are too few jobs."""
        runs = self._runs.get(self._parameters.cluster_of(job))
        return None if runs is None or len(runs) < self._parameters.least_jobs else runs

    def ended(self, job: Job) -> None:
        """Add the run time of a job to its cluster."""
        run_s, own = run_time_s(job), self._parameters
        if run_s is not None:
            runs = self._runs.setdefault(own.cluster_of(job), deque(maxlen=own.window))
            runs.append((own.variable_of(job), run_s))

    def learned(self) -> dict[str, list[tuple[float, float]]]:
        """Return the variables and run times by cluster."""
        return {cluster: list(runs) for cluster, runs in self._runs.items()}

    def relearn(self, learned: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        """Take over what `learned` returned."""
        window = self._parameters.window
        for cluster, runs in learned.items():
            self._runs[cluster] = deque(((x, run_s) for x, run_s in runs), maxlen=window)


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


class Statistical(ByCluster, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Estimates by the mean or the median of the run times of a cluster (GUIM 4.4.2).

    Parameters
    ----------
    estimator : "mean" or "median".
    spreads : how many standard deviations are added to the mean, or interquartile ranges to the
        median; >= 0.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    estimator: Literal["mean", "median"] = "mean"
    spreads: float = 0.0

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        if not 0 <= self.spreads < float("inf"):
            raise ValueError(f"spreads must be >= 0 and finite, got {self.spreads}")

    def forecast(self, job: Job, runs: Runs) -> float:
        """Return the estimator for the job's cluster, s."""
        times = [run_s for _, run_s in runs]
        if self.estimator == "mean":
            return fmean(times) + (self.spreads * pstdev(times) if self.spreads else 0.0)
        middle = median(times)
        if not self.spreads:
            return middle
        times.sort()
        return middle + self.spreads * (quantile(times, 0.75) - quantile(times, 0.25))

    def quantiles(self, job: Job, runs: Runs, probabilities: Sequence[float]) -> list[float]:
        """Return quantiles of the run times of the job's cluster, s."""
        times = sorted(run_s for _, run_s in runs)
        return [quantile(times, p) for p in probabilities]


class Regression(ByCluster, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Estimates by the least-squares line through the run times of a cluster (GUIM 4.4.2).

    If the variable is constant, it is the mean.

    Parameters
    ----------
    variable : "processors", or "memory" (requested for each processor).
    """

    variable: Literal["processors", "memory"] = "processors"

    def variable_of(self, job: Job) -> float:
        """Return the processors or the memory of a job."""
        return float(job.spec.processors) if self.variable == "processors" else memory(job)

    def forecast(self, job: Job, runs: Runs) -> float:
        """Return the value of the line for the job, s."""
        intercept, slope = _line(runs)
        return intercept + slope * self.variable_of(job)

    def quantiles(self, job: Job, runs: Runs, probabilities: Sequence[float]) -> list[float]:
        """Return the forecast plus quantiles of the residuals, s."""
        intercept, slope = _line(runs)
        middle_s = intercept + slope * self.variable_of(job)
        residuals = sorted(run_s - (intercept + slope * x) for x, run_s in runs)
        return [max(LEAST_S, limited_s(middle_s + quantile(residuals, p))) for p in probabilities]


def _line(runs: Runs) -> tuple[float, float]:
    """Intercept (s) and slope of the line through runs."""
    xs, times = [x for x, _ in runs], [run_s for _, run_s in runs]
    try:
        slope, intercept = linear_regression(xs, times)
    except StatisticsError:  # one job, or a constant variable
        return fmean(times), 0.0
    return intercept, slope


def memory(job: Job) -> float:
    """Requested memory of a job: its label, or the resource of that name; 0 if not known."""
    return float(job.spec.memory_kib or job.spec.resources.get("memory", 0))
