"""Predictions from statistical estimators and from a line through the history of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import StatisticsError, fmean, linear_regression, median, pstdev
from typing import Literal

from scheduler.model.job import Job
from scheduler.predictions.deadlines import LEAST_S
from scheduler.predictions.history import ClusterParameters, ClusterPredictor, limited_s, quantile
from scheduler.predictions.predictor import Predictor


class Statistical(ClusterParameters, frozen=True, forbid_unknown_fields=True, kw_only=True):
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

    def predictor(self) -> Predictor:
        """Create a predictor that has not learned yet."""
        return StatisticalPredictor(self)


class StatisticalPredictor(ClusterPredictor):
    """Predictor by an estimator of the run times of a cluster."""

    def __init__(self, parameters: Statistical) -> None:
        super().__init__(parameters)
        self._estimator, self._spreads = parameters.estimator, parameters.spreads

    def forecast(self, job: Job) -> float | None:
        """Return the estimator for the job's cluster, s; None without enough history."""
        runs = self.known_runs(job)
        if runs is None:
            return None
        times = [run_s for _, run_s in runs]
        if self._estimator == "mean":
            return fmean(times) + (self._spreads * pstdev(times) if self._spreads else 0.0)
        middle = median(times)
        if not self._spreads:
            return middle
        times.sort()
        return middle + self._spreads * (quantile(times, 0.75) - quantile(times, 0.25))

    def quantiles(self, job: Job, probabilities: Sequence[float]) -> list[float] | None:
        """Return quantiles of the run times of the job's cluster, s."""
        runs = self.known_runs(job)
        if runs is None:
            return None
        times = sorted(run_s for _, run_s in runs)
        return [quantile(times, p) for p in probabilities]


class Regression(ClusterParameters, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Estimates by a straight line through the run times of a cluster (GUIM 4.4.2).

    Parameters
    ----------
    variable : "processors", or "memory" (requested for each processor).
    """

    variable: Literal["processors", "memory"] = "processors"

    def predictor(self) -> Predictor:
        """Create a predictor that has not learned yet."""
        return RegressionPredictor(self)


class RegressionPredictor(ClusterPredictor):
    """Predictor by the least-squares line over one variable; the mean if that is constant."""

    def __init__(self, parameters: Regression) -> None:
        super().__init__(parameters)
        self._variable = parameters.variable

    def variable(self, job: Job) -> float:
        """Return the processors or the memory of a job."""
        return float(job.spec.processors) if self._variable == "processors" else memory(job)

    def forecast(self, job: Job) -> float | None:
        """Return the value of the line for the job, s; None without enough history."""
        line = self._line(job)
        return None if line is None else line[0] + line[1] * self.variable(job)

    def quantiles(self, job: Job, probabilities: Sequence[float]) -> list[float] | None:
        """Return the forecast plus quantiles of the residuals, s."""
        line, runs = self._line(job), self.known_runs(job)
        if line is None or runs is None:
            return None
        intercept, slope = line
        middle_s = intercept + slope * self.variable(job)
        residuals = sorted(run_s - (intercept + slope * x) for x, run_s in runs)
        return [max(LEAST_S, limited_s(middle_s + quantile(residuals, p))) for p in probabilities]

    def _line(self, job: Job) -> tuple[float, float] | None:
        """Return intercept (s) and slope of the line of the job's cluster."""
        runs = self.known_runs(job)
        if runs is None:
            return None
        xs, times = [x for x, _ in runs], [run_s for _, run_s in runs]
        try:
            slope, intercept = linear_regression(xs, times)
        except StatisticsError:  # one job, or a constant variable
            return fmean(times), 0.0
        return intercept, slope


def memory(job: Job) -> float:
    """Requested memory of a job: its label, or the resource of that name; 0 if not known."""
    return float(job.spec.memory_kib or job.spec.resources.get("memory", 0))
