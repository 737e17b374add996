"""Results of the study of prediction errors, by workload, policy and kind of errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import exp, log, nan
from typing import Any, NamedTuple

from simulator.predictions.fake import QUALITATIVE
from simulator.results.statistics import Interval, mean, mean_interval
from simulator.studies.fmodels.runs import POLICIES, workload
from simulator.study.study import Row

P95, MEAN = "bsld_p95", "bsld_mean"


class Cell(NamedTuple):
    """A combination of workload and policy."""

    workload: str
    policy: str


class ErrorKind(NamedTuple):
    """A kind of errors; `deviations` is "" for qualitative ones."""

    category: str
    deviations: str


class ErrorResults:
    """Results of all runs.

    Parameters
    ----------
    rows : runs; those of one point are kept in the order of their seeds.

    Attributes
    ----------
    cells : combinations of workload and policy that were run, in the order of the rows.
    series : kinds of errors that were run.
    short_jobs_pct : workload -> percentage of jobs of less than a minute.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows: dict[tuple[Cell, ErrorKind, float], list[Row]] = {}
        self.short_jobs_pct: dict[str, float] = {}
        for row in sorted(rows, key=lambda row: int(row.parameters["seed"])):
            p = row.parameters
            cell = Cell(workload(p["trace"]), p["policy"])
            series = ErrorKind(p["category"], p.get("deviations") or "")
            at = float(p["percentage" if p["category"] in QUALITATIVE else "error"])
            self._rows.setdefault((cell, series, at), []).append(row)
            self.short_jobs_pct[cell.workload] = float(row.result["under_one_minute_pct"])
        names = list(dict.fromkeys(cell.workload for cell, _, _ in self._rows))
        known = {cell for cell, _, _ in self._rows}
        self.cells = [Cell(w, p) for w in names for p in POLICIES if Cell(w, p) in known]
        self.series = list(dict.fromkeys(series for _, series, _ in self._rows))

    @property
    def workloads(self) -> list[str]:
        """Workloads that were run."""
        return list(dict.fromkeys(cell.workload for cell in self.cells))

    @property
    def seeds(self) -> int:
        """Largest number of seeds of a point."""
        return max((len(rows) for rows in self._rows.values()), default=0)

    def of(self, category: str) -> ErrorKind | None:
        """Kind of errors of a category, with narrow deviations if both were run."""
        found = [series for series in self.series if series.category == category]
        return min(found, default=None)

    def xs(self, series: ErrorKind) -> list[float]:
        """Errors or percentages of a kind, ascending."""
        return sorted({at for _, of, at in self._rows if of == series})

    def values(
        self, cell: Cell, series: ErrorKind | None, at: float, metric: str = P95
    ) -> list[float]:
        """A metric at a point, in the order of the seeds; empty if it was not run."""
        if series is None:
            return []
        return [float(row.result[metric]) for row in self._rows.get((cell, series, at), ())]

    def mean(self, cell: Cell, series: ErrorKind | None, at: float) -> float:
        """Mean over the seeds of the P95 at a point; nan if it was not run."""
        return mean(self.values(cell, series, at))

    def ratios(self, cell: Cell, category: str, at: float, reference: float = 5) -> list[float]:
        """P95 at one error over that at another, by seed."""
        series = self.of(category)
        pairs = zip(
            self.values(cell, series, at), self.values(cell, series, reference), strict=False
        )
        return [above / below for above, below in pairs]

    def growth(
        self, category: str, at: float, reference: float = 5, cells: Iterable[Cell] | None = None
    ) -> Interval:
        """Geometric mean of the ratios of `ratios`, with its interval.

        The interval is over the cells, each the mean over its seeds; of one cell it is over the
        seeds.
        """
        chosen = self.cells if cells is None else list(cells)
        return geometric(self.ratios(cell, category, at, reference) for cell in chosen)

    def data(self) -> Iterator[dict[str, Any]]:
        """All points with means over the seeds, for JSON."""
        for (cell, series, at), rows in self._rows.items():
            name = "percentage" if series.category in QUALITATIVE else "error"
            point = {"workload": cell.workload, "policy": cell.policy, "category": series.category}
            if series.deviations:
                point["deviations"] = series.deviations
            found = {m: [float(row.result[m]) for row in rows] for m in (P95, MEAN)}
            numbers = {m: plain(mean_interval(values)) for m, values in found.items()}
            yield point | {name: at} | numbers


def geometric(groups: Iterable[Sequence[float]]) -> Interval:
    """Geometric mean over groups of ratios, each with its own geometric mean.

    The interval is over the groups, or over the ratios of a single group; nan without ratios.
    """
    logs = [[log(ratio) for ratio in group] for group in groups if len(group)]
    if not logs:
        return Interval(nan, nan, nan, 0)
    found = mean_interval(logs[0] if len(logs) == 1 else [mean(each) for each in logs])
    return Interval(exp(found.mean), exp(found.low), exp(found.high), found.n)


def plain(interval: Interval) -> dict[str, float | None]:
    """Mean and limits for JSON."""
    values = {"mean": interval.mean, "low": interval.low, "high": interval.high}
    return {name: value if value == value else None for name, value in values.items()}
