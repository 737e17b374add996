"""Ratios to EASY in the REDIR study, week by week, and what redirection cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from reshape.errors import ReshapeError
from simulator.results.statistics import Interval, mean, mean_interval, paired_ratio
from simulator.study.study import Row
from simulator.traces.weeks import WEEK_S

MEAN, MAX = "mean_bounded_slowdown", "max_bounded_slowdown"
#: What a point of the grid is: alpha and theta.
Point: TypeAlias = tuple[float, int]


class Price(NamedTuple):
    """What redirection cost in one week.

    Parameters
    ----------
    redirected : share of the jobs.
    lost : what first lives held, as a share of what the principal group could give in the week.
    wait_s, easy_wait_s : mean wait with redirection, and under EASY.
    """

    redirected: float
    lost: float
    wait_s: float
    easy_wait_s: float


class TraceRatios(msgspec.Struct):
    """Ratios of one trace, with redirection over EASY on as many processors; below 1 is better.

    Parameters
    ----------
    name : of the trace, short.
    weeks : how many there are.
    ratios : metric -> point -> ratio of each week.
    prices : point -> price of each week.
    """

    name: str
    weeks: int
    ratios: dict[str, dict[Point, list[float]]]
    prices: dict[Point, list[Price]]

    def interval(self, metric: str, point: Point) -> Interval:
        """Mean ratio over the weeks."""
        return mean_interval(self.ratios[metric][point])

    def geometric(self, metric: str, point: Point) -> Interval:
        """Geometric mean ratio over the weeks, which single weeks do not outweigh."""
        values = self.ratios[metric][point]
        return paired_ratio(values, [1.0] * len(values), geometric=True)

    def best(self, metric: str, alpha: float | None = None) -> Point:
        """Point of the smallest mean ratio (of one alpha)."""
        points = [p for p in self.ratios[metric] if alpha is None or p[0] == alpha]
        return min(points, key=lambda point: (self.interval(metric, point).mean, point))

    @property
    def alphas(self) -> list[float]:
        """Sizes of the redirection group that were tried."""
        return sorted({alpha for alpha, _ in self.ratios[MEAN]})

    @property
    def thetas(self) -> list[int]:
        """Thresholds that were tried."""
        return sorted({theta for _, theta in self.ratios[MEAN]})


def ratios(name: str, rows: Sequence[Row]) -> TraceRatios:
    """Compare the runs of one trace, week by week.

    Raises
    ------
    ReshapeError : runs without redirection (theta null), or all others, are missing.
    """
    plain = {
        (row.parameters["week"], row.parameters["alpha"]): row.result
        for row in rows
        if row.parameters["theta"] is None
    }
    found = TraceRatios(name, len({week for week, _ in plain}), {MEAN: {}, MAX: {}}, {})
    for row in rows:
        week, alpha, theta = (row.parameters[key] for key in ("week", "alpha", "theta"))
        if theta is None or (week, alpha) not in plain:
            continue
        easy, point = plain[week, alpha], (alpha, theta)
        for metric, points in found.ratios.items():
            points.setdefault(point, []).append(row.result[metric] / easy[metric])
        found.prices.setdefault(point, []).append(_price(row, easy))
    if not found.prices:
        raise ReshapeError(
            f"{name}: redirection is compared with EASY; let theta be null and some number"
        )
    return found


def price(trace: TraceRatios, point: Point) -> dict[str, float | None]:
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
