"""Runs of GUIM, chapter 5, and their results by workload, policy and kind of errors.

F. Guim, "Job-guided scheduling strategies for multi-site HPC infrastructures", 5.5 and 5.6. A run
is a trace whose predictions have errors of one kind. No job is killed at its request: a missed
prediction is extended (5.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import exp, log, nan
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

import simulator as sim
from reshape.errors import ConfigError
from scheduler.predictions.predictor import DeadlineManager, DeadlineManagers
from simulator.results.statistics import Interval, mean, mean_interval
from simulator.studies.claims import Key, StudyResults, paper, plain
from simulator.study.study import Parameters, Row, trace_path
from simulator.traces import swf
from simulator.traces.normalise import NEEDED, Rules, machine_size, normalise
from simulator.traces.trace_jobs import TraceJobs
from simulator.workload_models.fake_predictions import (
    QUALITATIVE,
    Bounds,
    FakePredictor,
    GivenEstimates,
    job_bounds,
)

#: EASY in the order of arrival; with backfilling of the shortest prediction first (SJBF); and with
#: the queue in the order of expansion factor and wait (LXWF, Chiang et al. 2002).
POLICIES: Final[dict[str, dict[str, str]]] = {
    "EASY": {},
    "SJBF": {"backfill_order": "sjf"},
    "LXWF": {"queue_order": "lxwf"},
}
RULES: Final = Rules(overrun="keep")
PAPER: Final = paper("fmodels")


def run(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Simulate one workload with one kind of errors under one policy.

    Parameters
    ----------
    parameters : seed; trace; processors, by the name of the trace (that of its header otherwise);
        jobs, the number of the first ones, or null; policy, one of `POLICIES`; category, with
        `error` in % and `deviations` ("narrow" or "wide"), or with `percentage`; bounds, "printed"
        (of the workloads of the thesis) or "computed" from the simulated jobs; deadlines, "gradual"
        or "exponential".

    Returns
    -------
    bsld_p95 and bsld_mean, bounded slowdowns; under_one_minute_pct, the percentage of jobs that run
    less than 60 s.

    Raises
    ------
    ConfigError : a parameter is unknown.
    """
    name = parameters["trace"]
    known = parameters["processors"].get(name)
    trace, jobs = _jobs(str(trace_path(parameters, name)), known, parameters["jobs"])
    processors = machine_size(trace) if known is None else int(known)
    predicted = _predictions(parameters, jobs)
    deadline = DeadlineManager(kind=parameters["deadlines"])
    estimates = GivenEstimates(predicted.tolist(), DeadlineManagers(deadline, deadline))
    slowdown = sim.simulate(
        sim.Jobs(trace).with_rules(overrun=RULES.overrun).first(len(jobs)),
        processors=processors,
        estimates=estimates,
        **_choice(parameters, "policy", POLICIES),
    ).jobs["bounded_slowdown"]
    return {
        "bsld_p95": float(np.percentile(slowdown, 95)),
        "bsld_mean": float(slowdown.mean()),
        "under_one_minute_pct": 100 * float((jobs.run < 60).mean()),
    }


def workload(trace: str) -> str:
    """Name of the workload of a trace."""
    return next((name for start, name in PAPER.workloads.items() if trace.startswith(start)), trace)


def printed_bounds(workload: str) -> dict[str, Bounds] | None:
    """Bounds of tables 5.1 to 5.3; None of a workload that is not there."""
    bounds = PAPER.bounds.get(workload)
    return bounds and {name: Bounds(*limits) for name, limits in bounds.items()}


def deviation_of(error: float, group: str) -> float:
    """Standard deviation that 5.6.1 pairs with an error; that of the next smaller printed error.

    Raises
    ------
    KeyError : the group is neither "narrow" nor "wide".
    """
    return _of_next_smaller(error, PAPER.errors, PAPER.deviations[group])


def deviation_of_percentage(percentage: float) -> float:
    """Standard deviation of a percentage; that of the next smaller printed percentage."""
    return _of_next_smaller(percentage, PAPER.percentages, PAPER.percentage_deviations)


def _of_next_smaller(at: float, printed: Sequence[float], values: Sequence[float]) -> float:
    return values[max((i for i, each in enumerate(printed) if each <= at), default=0)]


def _predictions(parameters: Mapping[str, Any], jobs: TraceJobs) -> np.ndarray[Any, Any]:
    """Predictions of the jobs, (n,) float64, s."""
    sizes = jobs.processors.astype(np.float64)
    computed = job_bounds(jobs.run, sizes)
    printed = printed_bounds(workload(parameters["trace"])) or computed
    bounds = _choice(parameters, "bounds", {"printed": printed, "computed": computed})
    executables = jobs.labels.get("executable", np.full(len(jobs), -1))
    fake = FakePredictor(jobs.run, sizes, executables, bounds, int(parameters["seed"]))
    category = parameters["category"]
    try:
        if category in QUALITATIVE:
            share = float(parameters["percentage"])
            return fake.qualitative(category, share, deviation_of_percentage(share))
        error = float(parameters["error"])
        deviation = deviation_of(error, parameters["deviations"])
        return fake.quantitative(category, error, deviation)
    except ValueError as error:
        raise ConfigError(str(error), field="category") from None


def _choice(parameters: Mapping[str, Any], field: str, offered: Mapping[str, Any]) -> Any:
    value = parameters[field]
    if value not in offered:
        raise ConfigError(f"must be one of {', '.join(offered)}, got {value!r}", field=field)
    return offered[value]


@lru_cache(maxsize=8)
def _jobs(path: str, processors: int | None, first: int | None) -> tuple[swf.Trace, TraceJobs]:
    """Trace, without labels for speed, and its jobs with their executables."""
    read = swf.read(path, fields=(*NEEDED, "executable"))
    jobs, _ = normalise(read, processors or machine_size(read), RULES, labels=True)
    columns = {name: column for name, column in read.columns.items() if name != "executable"}
    jobs = jobs if first is None else jobs.first(first)
    return msgspec.structs.replace(read, columns=columns), jobs


P95, MEAN = "bsld_p95", "bsld_mean"
WIDE = ", wide"


class Cell(NamedTuple):
    """A combination of workload and policy."""

    workload: str
    policy: str


class ErrorResults:
    """Results of all runs by cell, kind of errors and error or percentage.

    Attributes
    ----------
    cells : combinations of workload and policy that were run, in the order of the rows.
    series : kinds of errors that were run: a category, such as "equal", or "equal, wide".
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

    def of(self, category: str) -> str | None:
        """Kind of errors of a category, with narrow deviations if both were run."""
        return next((kind for kind in (category, category + WIDE) if kind in self.series), None)

    def xs(self, series: str) -> list[float]:
        """Errors or percentages of a kind, ascending."""
        return sorted({at for _, of, at in self._results if of == series})

    def values(self, cell: Cell, series: str | None, at: float, metric: str = P95) -> list[float]:
        """A metric at a point, in the order of the seeds; empty if it was not run."""
        return self._results.values((cell, series, at), metric)

    def mean(self, cell: Cell, series: str | None, at: float) -> float:
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
            name, category = "percentage", series.removesuffix(WIDE)
            point = {"workload": cell.workload, "policy": cell.policy, "category": category}
            if category not in QUALITATIVE:
                name, point["deviations"] = "error", "narrow" if series == category else "wide"
            intervals = {m: self._results.interval((cell, series, at), m) for m in (P95, MEAN)}
            yield point | {name: at} | {m: plain(interval) for m, interval in intervals.items()}


def _key(parameters: Parameters) -> Key:
    """Cell, kind of errors, and error or percentage."""
    category = parameters["category"]
    at = parameters["percentage" if category in QUALITATIVE else "error"]
    cell = Cell(workload(parameters["trace"]), parameters["policy"])
    return cell, category + WIDE * (parameters.get("deviations") == "wide"), float(at)


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
