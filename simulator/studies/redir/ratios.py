"""Ratios to EASY in the REDIR study, week by week, and the cost of redirection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from reshape.errors import ReshapeError
from simulator.results.statistics import Interval, mean, mean_interval, paired_ratio
from simulator.study.study import Row
from simulator.traces.weeks import WEEK_S

MEAN, MAX = "mean_bounded_slowdown", "max_bounded_slowdown"
#: A point of the grid: alpha and theta.
GridPoint: TypeAlias = tuple[float, int]


class Price(NamedTuple):
    """The cost of redirection in one week.

    Parameters
    ----------
    redirected : share of the jobs that were redirected.
    lost : processor-seconds of first runs, as a share of those of the principal group in a week.
    wait_s, easy_wait_s : mean wait with redirection, and under EASY.
    """

    redirected: float
    lost: float
    wait_s: float
    easy_wait_s: float


class TraceRatios(msgspec.Struct):
    """Ratios of one trace: redirection over EASY on as many processors; below 1 is better.

    Parameters
    ----------
    name : short name of the trace.
    weeks : number of weeks.
    ratios : metric -> point -> ratio of each week.
    prices : point -> price of each week.
    """

    name: str
    weeks: int
    ratios: dict[str, dict[GridPoint, list[float]]]
    prices: dict[GridPoint, list[Price]]

    def interval(self, metric: str, point: GridPoint) -> Interval:
        """Mean ratio over the weeks."""
        return mean_interval(self.ratios[metric][point])

    def geometric(self, metric: str, point: GridPoint) -> Interval:
        """Geometric mean ratio over the weeks, which outliers influence less."""
        values = self.ratios[metric][point]
        return paired_ratio(values, [1.0] * len(values), geometric=True)

    def best(
        self, metric: str, alpha: float | None = None, thetas: Sequence[int] | None = None
    ) -> GridPoint:
        """Point with the smallest mean ratio, of all or of one alpha and of some thresholds."""
        points = [p for p in self.ratios[metric] if alpha is None or p[0] == alpha]
        points = [p for p in points if thetas is None or p[1] in thetas]
        return min(points, key=lambda point: (self.interval(metric, point).mean, point))

    @property
    def alphas(self) -> list[float]:
        """Sizes of the redirection group of the grid."""
        return sorted({alpha for alpha, _ in self.ratios[MEAN]})

    @property
    def thetas(self) -> list[int]:
        """Thresholds of the grid."""
        return sorted({theta for _, theta in self.ratios[MEAN]})


def ratios(name: str, rows: Sequence[Row]) -> TraceRatios:
    """Compare the runs of one trace, week by week.

    Raises
    ------
    ReshapeError : the runs without redirection (theta null) or all runs with it are missing.
    """
    without = {
        (row.parameters["week"], row.parameters["alpha"]): row.result
        for row in rows
        if row.parameters["theta"] is None
    }
    compared = TraceRatios(name, len({week for week, _ in without}), {MEAN: {}, MAX: {}}, {})
    for row in rows:
        week, alpha, theta = (row.parameters[key] for key in ("week", "alpha", "theta"))
        if theta is None or (week, alpha) not in without:
            continue
        easy, point = without[week, alpha], (alpha, theta)
        for metric, points in compared.ratios.items():
            points.setdefault(point, []).append(row.result[metric] / easy[metric])
        compared.prices.setdefault(point, []).append(_price(row, easy))
    if not compared.prices:
        raise ReshapeError(
            f"{name}: redirection is compared with EASY; give theta null and at least one number"
        )
    return compared


def price(trace: TraceRatios, point: GridPoint) -> dict[str, float | None]:
    """Means over the weeks: shares redirected and lost, and the ratio of the mean waits."""
    weeks = trace.prices[point]
    waits, easy = mean([week.wait_s for week in weeks]), mean([week.easy_wait_s for week in weeks])
    return {
        "redirected": mean([week.redirected for week in weeks]),
        "lost": mean([week.lost for week in weeks]),
        "wait_ratio": waits / easy if easy else None,
    }


def _price(row: Row, easy: Mapping[str, Any]) -> Price:
    result, machine = row.result, row.parameters["processors"]
    return Price(
        result["redirected"] / result["jobs"],
        result["lost_processor_s"] / (machine * WEEK_S),
        result["mean_wait_s"],
        easy["mean_wait_s"],
    )
