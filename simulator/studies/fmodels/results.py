"""Results of the study of prediction errors, by workload, policy and kind of errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import exp, log, nan
from typing import Any, NamedTuple

from simulator.predictions.fake import QUALITATIVE
from simulator.results.statistics import Interval, mean, mean_interval
from simulator.studies.fmodels.runs import POLICIES, workload
from simulator.studies.results import Key, StudyResults, plain
from simulator.study.study import Parameters, Row

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
    """Results of all runs by cell, kind of errors and error or percentage.

    Attributes
    ----------
    cells : combinations of workload and policy that were run, in the order of the rows.
    series : kinds of errors that were run.
    short_jobs_pct : workload -> percentage of jobs of less than a minute.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._results = StudyResults(rows, _key)
        self.short_jobs_pct = {
            workload(row.parameters["trace"]): float(row.result["under_one_minute_pct"])
            for row in rows
        }
        known = self._results.parts()
        names = list(dict.fromkeys(cell.workload for cell in known))
        self.cells = [Cell(w, p) for w in names for p in POLICIES if Cell(w, p) in known]
        self.series = list(dict.fromkeys(series for _, series, _ in self._results))

    @property
    def workloads(self) -> list[str]:
        """Workloads that were run."""
        return list(dict.fromkeys(cell.workload for cell in self.cells))

    @property
    def seeds(self) -> int:
        """Largest number of seeds of a point."""
        return max(map(len, self._results.rows.values()), default=0)

    def of(self, category: str) -> ErrorKind | None:
        """Kind of errors of a category, with narrow deviations if both were run."""
        kinds = [series for series in self.series if series.category == category]
        return min(kinds, default=None)

    def xs(self, series: ErrorKind) -> list[float]:
        """Errors or percentages of a kind, ascending."""
        return sorted({at for _, of, at in self._results if of == series})

    def values(
        self, cell: Cell, series: ErrorKind | None, at: float, metric: str = P95
    ) -> list[float]:
        """A metric at a point, in the order of the seeds; empty if it was not run."""
        return self._results.values((cell, series, at), metric)

    def mean(self, cell: Cell, series: ErrorKind | None, at: float) -> float:
        """Mean over the seeds of the P95 at a point; nan if it was not run."""
        return mean(self.values(cell, series, at))

    def ratios(self, cell: Cell, category: str, at: float, reference: float = 5) -> list[float]:
        """P95 at one error over that at another, by seed."""
        series = self.of(category)
        return quotients(self.values(cell, series, at), self.values(cell, series, reference))

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
        for cell, series, at in self._results:
            name = "percentage" if series.category in QUALITATIVE else "error"
            point = {"workload": cell.workload, "policy": cell.policy, "category": series.category}
            if series.deviations:
                point["deviations"] = series.deviations
            intervals = {m: self._results.interval((cell, series, at), m) for m in (P95, MEAN)}
            yield point | {name: at} | {m: plain(interval) for m, interval in intervals.items()}


def _key(parameters: Parameters) -> Key:
    """Cell, kind of errors, and error or percentage."""
    category = parameters["category"]
    at = parameters["percentage" if category in QUALITATIVE else "error"]
    cell = Cell(workload(parameters["trace"]), parameters["policy"])
    return cell, ErrorKind(category, parameters.get("deviations") or ""), float(at)


def quotients(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Ratios of paired values; values without a partner are left out."""
    return [a / b for a, b in zip(above, below, strict=False)]


def geometric(groups: Iterable[Sequence[float]]) -> Interval:
    """Geometric mean over groups of ratios, each with its own geometric mean.

    The interval is over the groups, or over the ratios of a single group; nan without ratios.
    """
    logs = [[log(ratio) for ratio in group] for group in groups if len(group)]
    if not logs:
        return Interval(nan, nan, nan, 0)
    logarithms = mean_interval(logs[0] if len(logs) == 1 else [mean(group) for group in logs])
    return Interval(exp(logarithms.mean), exp(logarithms.low), exp(logarithms.high), logarithms.n)
