"""Batches of jobs, and the intervals of ratios that follow from them.

A batch has the jobs that were submitted in one week, or in one day if the jobs of a run cover less
than eight weeks. The interval of a ratio of means follows from the jackknife over batches, which
gives the standard error of the logarithm (Miller 1974); that of a ratio of percentiles from the
bootstrap over batches (Kuensch 1989), in which both runs keep the same batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log, sqrt
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simulator.many_centres.schedule import CentresSchedule

#: Value, low and high of its interval; None if there are too few batches for one.
Estimate: TypeAlias = tuple[float, float | None, float | None]
Floats: TypeAlias = NDArray[np.float64]
DAY_S, WEEK_S = 86400.0, 7 * 86400.0
#: Least number of weeks for batches of weeks.
LEAST_WEEKS = 8
#: Bins of a histogram for each factor of ten, from 1 on.
BINS_A_DECADE = 100
#: Quantile of the normal distribution for intervals of 95 %, and number of bootstrap samples.
NORMAL, SAMPLES = 1.96, 1000


def batches(simulated: CentresSchedule) -> dict[str, Any]:
    """Sums and histograms over the jobs of each batch.

    Returns
    -------
    name -> sum for each batch; "histograms" -> name -> counts of the bins for each batch
    """
    ran, submitted = simulated.ran, simulated.schedule.jobs.submitted
    length_s = WEEK_S if submitted[-1] - submitted[0] >= LEAST_WEEKS * WEEK_S else DAY_S
    batch = ((submitted - submitted[0]) // length_s).astype(np.int64)[ran]
    limits = np.array(simulated.max_costs)[ran]
    columns = {
        "jobs": np.ones(len(batch)),
        "bounded_slowdown": simulated.bounded_slowdown[ran],
        "slowdown": simulated.slowdown[ran],
        "wait_s": simulated.schedule.wait[ran],
        "cost": simulated.cost[ran],
        "limited": np.isfinite(limits).astype(np.float64),
        "within_limit": (simulated.cost[ran] <= limits * (1 + 1e-12)) & np.isfinite(limits),
    }
    sums = {name: np.bincount(batch, column).tolist() for name, column in columns.items()}
    histograms = {
        name: _histogram(batch, columns[column])
        for name, column in (
            ("bounded_slowdown", "bounded_slowdown"),
            ("wait_s", "wait_s"),
            ("job_cost", "cost"),
        )
    }
    return {**sums, "histograms": histograms}


def ratio_of_means(
    first: Mapping[str, Any], second: Mapping[str, Any], metric: str
) -> Estimate | None:
    """Ratio of the means of a metric over the jobs of two runs, by their batches."""
    sums = [np.array([run[metric], run["jobs"]]) for run in (first, second)]
    if any(not (run_sums.sum(axis=1) > 0).all() for run_sums in sums):
        return None
    full = log(_mean(sums[0]) / _mean(sums[1]))
    left_out = []
    for batch in range(min(run_sums.shape[1] for run_sums in sums)):
        parts = [np.delete(run_sums, batch, axis=1) for run_sums in sums]
        if parts[0].shape[1] > 1 and all((part.sum(axis=1) > 0).all() for part in parts):
            left_out.append(log(_mean(parts[0]) / _mean(parts[1])))
    if len(left_out) < 2:
        return exp(full), None, None
    half = _half_width(left_out)
    return exp(full), exp(full - half), exp(full + half)


def share(sums: Mapping[str, Any], part: str, whole: str) -> Estimate | None:
    """Percentage of two sums over the jobs of a run, by its batches; None if the whole is 0."""
    values = np.array([sums[part], sums[whole]])
    if not values[1].sum() > 0:
        return None
    full = 100.0 * _mean(values)
    rest = [np.delete(values, batch, axis=1) for batch in range(values.shape[1])]
    left_out = [100.0 * _mean(part_sums) for part_sums in rest if part_sums[1].sum() > 0]
    if len(left_out) < 3:
        return full, None, None
    half = _half_width(left_out)
    return full, max(0.0, full - half), min(100.0, full + half)


def ratio_of_percentiles(
    first: Mapping[str, Any], second: Mapping[str, Any], name: str, value: float
) -> Estimate:
    """Ratio of the 95th percentiles of two runs, by the histograms of their batches.

    Parameters
    ----------
    value : the ratio itself, which the histograms have to 2.3 % only.
    """
    counts = [_matrix(run["histograms"][name]) for run in (first, second)]
    rows = min(len(bins) for bins in counts)
    if rows < 3:
        return value, None, None
    drawn = np.random.default_rng(0).multinomial(rows, np.full(rows, 1.0 / rows), SAMPLES)
    logs = [_log_percentile(drawn.astype(np.float64) @ bins[:rows]) for bins in counts]
    both = np.isfinite(logs[0]) & np.isfinite(logs[1])
    if not both.any():
        return value, None, None
    low, high = np.percentile(logs[0][both] - logs[1][both], (2.5, 97.5))
    return value, min(value, 10.0 ** float(low)), max(value, 10.0 ** float(high))


def _half_width(left_out: list[float]) -> float:
    """Half of the interval of 95 % from values that each leave one batch out."""
    n, spread = len(left_out), np.array(left_out) - np.mean(left_out)
    return NORMAL * sqrt((n - 1) / n * float((spread**2).sum()))


def _mean(sums: Floats) -> float:
    total = sums.sum(axis=1)
    return float(total[0] / total[1])


def _histogram(batch: NDArray[np.int64], values: Floats) -> list[list[int]]:
    """Count the values of each batch in bins of equal width on a logarithmic scale."""
    bins = (BINS_A_DECADE * np.log10(np.maximum(values, 1.0))).astype(np.int64)
    return [
        np.bincount(bins[batch == number]).tolist()
        for number in range(int(batch.max(initial=-1)) + 1)
    ]


def _matrix(histograms: list[list[int]]) -> Floats:
    """Histograms as rows of equal length, (batches, bins) float64."""
    matrix = np.zeros(
        (len(histograms), max((len(row_counts) for row_counts in histograms), default=0))
    )
    for row, counts in zip(matrix, histograms, strict=True):
        row[: len(counts)] = counts
    return matrix


def _log_percentile(counts: Floats) -> Floats:
    """Logarithm to base 10 of the 95th percentile of each row of bins, (rows,) float64.

    A row without values has nan.
    """
    passed = np.cumsum(counts, axis=1)
    wanted = 0.95 * passed[:, -1]
    index = np.argmax(passed >= wanted[:, None], axis=1)
    rows = np.arange(len(counts))
    inside = counts[rows, index]
    share_passed = (wanted - (passed[rows, index] - inside)) / np.maximum(inside, 1.0)
    return np.where(passed[:, -1] > 0, (index + share_passed) / BINS_A_DECADE, np.nan)
