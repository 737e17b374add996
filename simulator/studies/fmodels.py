"""The study of prediction errors, GUIM chapter 5, and its results by workload, policy and errors.

F. Guim, "Job-guided scheduling strategies for multi-site HPC infrastructures", 5.5 to 5.8. A run is
a trace whose predictions have errors of one kind. No job is killed at its request: a missed
prediction is extended (5.3). The report has figures 5.1 to 5.9 as tables and pictures, and the
claims of `papers/fmodels.yaml`. A ratio for several combinations of workload and policy is their
geometric mean with an interval over the combinations; for one it is over the seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from math import log, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np

import simulator as sim
from reshape.errors import ConfigError
from scheduler.pictures import INK, encode_all
from scheduler.predictions.predictor import DeadlineManager, DeadlineManagers
from simulator.results.statistics import Interval, geometric_mean, mean, mean_interval
from simulator.studies.charts import chart, log_ticks
from simulator.studies.claims import (
    NOT_RUN,
    Claim,
    StudyResults,
    crossed,
    declared,
    paper,
    plus_minus,
    quotients,
    reported,
)
from simulator.study.study import Parameters, Report, Row, choice, trace_path
from simulator.traces import swf
from simulator.traces.normalise import NEEDED, Rules, machine_size, normalise
from simulator.traces.trace_jobs import TraceJobs
from simulator.workload_models.fake_predictions import (
    QUALITATIVE,
    FakePredictor,
    GivenEstimates,
    job_bounds,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    size = parameters["processors"].get(name)
    trace, jobs = _jobs(str(trace_path(parameters, name)), size, parameters["jobs"])
    processors = machine_size(trace) if size is None else int(size)
    predicted = _predictions(parameters, jobs)
    deadline = DeadlineManager(kind=parameters["deadlines"])
    estimates = GivenEstimates(predicted.tolist(), DeadlineManagers(deadline, deadline))
    slowdown = sim.simulate(
        sim.Jobs(trace).with_rules(overrun=RULES.overrun).first(len(jobs)),
        processors=processors,
        estimates=estimates,
        **choice(parameters, "policy", POLICIES),
    ).jobs["bounded_slowdown"]
    return {
        "bsld_p95": float(np.percentile(slowdown, 95)),
        "bsld_mean": float(slowdown.mean()),
        "under_one_minute_pct": 100 * float((jobs.run < 60).mean()),
    }


def workload(trace: str) -> str:
    """Name of the workload of a trace."""
    return next((name for start, name in PAPER.workloads.items() if trace.startswith(start)), trace)


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
    printed = PAPER.bounds.get(workload(parameters["trace"]), computed)  # tables 5.1 to 5.3
    bounds = choice(parameters, "bounds", {"printed": printed, "computed": computed})
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


class ErrorResults(StudyResults):
    """Results of all runs by cell, kind of errors and error or percentage.

    Attributes
    ----------
    workloads : that were run, in the order of the rows.
    cells : combinations of workload and policy that were run.
    series : kinds of errors that were run: a category, such as "equal", or "equal, wide".
    seeds : largest number of seeds of a point.
    short_jobs_pct : workload -> percentage of jobs of less than a minute.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__(rows, _key)
        self.short_jobs_pct = {
            workload(row.parameters["trace"]): float(row.result["under_one_minute_pct"])
            for row in rows
        }
        self.workloads = self.parts()
        self.cells = [Cell(w, p) for w in self.workloads for p in POLICIES if p in self.parts(w)]
        self.series = list(dict.fromkeys(key[2] for key in self))
        self.seeds = max(map(len, self.rows.values()), default=0)

    def of(self, category: str) -> str | None:
        """Kind of errors of a category, with narrow deviations if both were run."""
        return next((kind for kind in (category, category + WIDE) if kind in self.series), None)

    def xs(self, series: str | None) -> list[float]:
        """Errors or percentages of a kind, ascending."""
        return sorted({at for *_, of, at in self if of == series})

    def p95(self, cell: Cell, series: str | None, at: float) -> list[float]:
        """P95 of the bounded slowdown at a point, by seed; empty if it was not run."""
        return self.values((*cell, series, at), P95)

    def curve(self, cell: Cell, series: str | None) -> tuple[list[float], list[float]]:
        """Errors or percentages that were run, and the mean over the seeds of the P95 at each."""
        values = {x: self.p95(cell, series, x) for x in self.xs(series)}
        return [x for x in values if values[x]], [mean(each) for each in values.values() if each]

    def ratios(self, cell: Cell, category: str, at: float, reference: float = 5) -> list[float]:
        """P95 at one error over that at another, by seed."""
        series = self.of(category)
        return quotients(self.p95(cell, series, at), self.p95(cell, series, reference))


def _key(parameters: Parameters) -> tuple[str, str, str, float]:
    """Workload, policy, kind of errors, and error or percentage."""
    category = parameters["category"]
    at = parameters["percentage" if category in QUALITATIVE else "error"]
    series = category + WIDE * (parameters.get("deviations") == "wide")
    return workload(parameters["trace"]), parameters["policy"], series, float(at)


def geometric(groups: Iterable[Sequence[float]]) -> Interval:
    """Geometric mean over groups of ratios, each with its own geometric mean.

    The interval is over the groups, or over the ratios of a single group; nan without ratios.
    """
    ratios = [group for group in groups if len(group)]
    if not ratios:
        return NOT_RUN
    single = len(ratios) == 1
    return geometric_mean(ratios[0] if single else [geometric_mean(each).mean for each in ratios])


def claims(results: ErrorResults) -> list[Claim]:
    """All claims; those whose points were not run are open."""

    def cells(which: str) -> list[Cell]:
        """Return those of "all", a workload, "not" a workload, or a workload and a policy."""
        if which == "all":
            return results.cells
        if which.startswith("not "):
            return [cell for cell in results.cells if cell.workload != which[4:]]
        names = which.split(" or ")
        return [c for c in results.cells if c.workload in names or " ".join(c) in names]

    def growth(category: str, at: float, reference: float = 5, which: str = "all") -> Interval:
        return geometric(results.ratios(c, category, at, reference) for c in cells(which))

    def extreme(pick: Any, category: str, *at: str) -> Interval:
        """Ratio to 5 % of the combination in which it is least or largest, over its seeds."""
        ratios = [
            by_seed
            for x in map(float, at or results.xs(results.of(category)))
            for cell in results.cells
            if (by_seed := results.ratios(cell, category, x))
        ]
        means = (geometric([by_seed]) for by_seed in ratios)
        extreme: Interval = pick(means, key=lambda interval: interval.mean, default=NOT_RUN)
        return extreme

    def quotient(above: str, at: float, reference: float, below: str, at_below: float) -> Interval:
        """Growth with one category over growth from 5 % on with another."""
        return geometric(
            quotients(results.ratios(c, above, at, reference), results.ratios(c, below, at_below))
            for c in results.cells
        )

    def over_cells(measure: Callable[[list[float], list[float]], float], category: str) -> Interval:
        curves = [results.curve(cell, results.of(category)) for cell in results.cells]
        return mean_interval([value for c in curves if (value := measure(*c)) == value])

    measures: dict[str, Callable[..., Interval]] = {
        "growth": growth,
        "least": partial(extreme, min),
        "largest": partial(extreme, max),
        "quotient": quotient,
        "rank_correlation": partial(over_cells, _spearman),
        "exponential_advantage": partial(over_cells, _exponential_advantage),
        "over_others": partial(_over_others, results),
        "short_jobs": partial(_short_jobs, results),
        "similarity": partial(_similarity, results),
    }
    return declared(PAPER.claims, measures)


def _over_others(results: ErrorResults, workload: str, category: str) -> Interval:
    """P95 of a workload over the highest of the others, by policy and error."""
    series, cells = results.of(category), results.cells
    ratios = []
    for cell in [cell for cell in cells if cell.workload == workload]:
        others = [c for c in cells if c.policy == cell.policy and c.workload != workload]
        for at in results.xs(series) if others else ():
            own = results.p95(cell, series, at)
            highest = map(max, zip(*(results.p95(c, series, at) for c in others), strict=False))
            ratios.append(quotients(own, list(highest)))
    return geometric(ratios)


def _short_jobs(results: ErrorResults, which: str) -> Interval:
    """Mean, least and largest share of short jobs of a workload, or of all but one."""
    name = which.removeprefix("not ")
    shares = [s for w, s in results.short_jobs_pct.items() if (w == name) == (which == name)]
    return Interval(mean(shares), min(shares, default=nan), max(shares, default=nan), 1)


def _similarity(results: ErrorResults) -> Interval:
    """Rank correlation of the P95 under a policy and under EASY, over all kinds of errors."""
    correlations = []
    for workload in results.workloads:
        for policy in ("SJBF", "LXWF"):
            pairs = [
                (a, b)
                for series in results.series
                for x in results.xs(series)
                if (a := mean(results.p95(Cell(workload, "EASY"), series, x))) == a
                and (b := mean(results.p95(Cell(workload, policy), series, x))) == b
            ]
            correlations.append(_spearman([a for a, _ in pairs], [b for _, b in pairs]))
    return mean_interval([each for each in correlations if each == each])


def _exponential_advantage(xs: Sequence[float], ys: Sequence[float]) -> float:
    """How much nearer a line through the logarithms is; nan for fewer than three points."""
    if len(xs) < 3 or len(set(ys)) < 2:
        return nan
    logs = [log(y) for y in ys]
    return float(np.corrcoef(xs, logs)[0, 1] ** 2 - np.corrcoef(xs, ys)[0, 1] ** 2)


def _spearman(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Spearman's rank correlation; nan for fewer than three points or a constant."""
    if len(xs) < 3 or len(set(xs)) < 2 or len(set(ys)) < 2:
        return nan
    from scipy.stats import spearmanr  # late: it makes commands slow to start

    return float(spearmanr(xs, ys).statistic)


COLOURS: Final = ("#1f6fb2", "#d98c2b", "#3f8f5b", "#8d6a9f")
#: Number of a figure -> workload (None: all) and categories.
FIGURES: Final[dict[str, tuple[str | None, list[str]]]] = PAPER.figures


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables and pictures of the figures, of the other categories, and the claims."""
    results = ErrorResults(rows)
    shown = {name for _, names in FIGURES.values() for name in names}
    categories = dict.fromkeys(kind.removesuffix(WIDE) for kind in results.series)
    others = tuple(category for category in categories if category not in shown)
    unknown = [w for w in results.workloads if all(w != of for of, _ in FIGURES.values())]
    tables = [
        *((f"Figure {number}, {of or 'all workloads'}", of, own)
          for number, (of, own) in FIGURES.items()),
        ("Other categories, which the thesis does not show", None, others),
        *((f"Workload {w}", w, tuple(sorted(shown))) for w in unknown),
    ]  # fmt: skip
    title = "95th percentile of the bounded slowdown, by error or share of converted jobs (%)"
    parts = [title, *(lines(results, *table) for table in tables)]
    points = results.data(("workload", "policy", "series", "at"), (P95, MEAN))
    data = {"seeds": results.seeds, "points": points}
    return reported(parts, data, claims(results), {} if out is None else pictures(results))


def lines(
    results: ErrorResults, title: str, workload: str | None, categories: Sequence[str]
) -> str:
    """Table of a figure: a line for each combination and kind of errors; "" if none was run."""
    kinds = [
        kind for name in categories for kind in results.series if kind.removesuffix(WIDE) == name
    ]

    def cell(key: tuple[str, str, str], x: float) -> str:
        values = results.p95(Cell(*key[:2]), key[2], x)
        return plus_minus(mean_interval(values)) if values else ""

    cells = [each for each in results.cells if workload in (None, each.workload)]
    rows = [(*each, kind) for kind in kinds for each in cells]
    xs = {f"{x:g}": x for x in sorted({x for kind in kinds for x in results.xs(kind)})}
    return crossed(title, ["WORKLOAD", "POLICY", "CATEGORY"], rows, xs, cell)


def pictures(results: ErrorResults) -> dict[str, bytes]:
    """Draw the figures for which there are runs, as PNG and SVG."""
    drawn = {number: _figure(results, number, *shown) for number, shown in FIGURES.items()}
    return encode_all({f"figure{n}": figure for n, figure in drawn.items() if figure is not None})


def _figure(
    results: ErrorResults, number: str, workload: str | None, categories: Sequence[str]
) -> Figure | None:
    """Draw a panel for each policy, with a line for each workload or category; None: not run."""
    lines = {  # name of a line -> workload and category
        (of if workload is None else category): (of, category)
        for category in categories
        for of in results.workloads
        if workload in (None, of) and results.of(category) is not None
    }
    policies = [p for p in POLICIES if any(cell.policy == p for cell in results.cells)]
    if not lines:
        return None

    def panel(axes: Axes, policy: str) -> None:
        for colour, (name, (of, category)) in zip(COLOURS, lines.items(), strict=False):
            _line(axes, results, Cell(of, policy), category, name, colour)
        axes.set_title(policy, fontsize=11, color=INK)
        qualitative = categories[0] in QUALITATIVE
        axes.set_xlabel("converted jobs, %" if qualitative else "error, %")
        log_ticks(axes, *("y" if qualitative else "xy"))
        if policy == policies[0]:
            axes.set_ylabel("bounded slowdown, P95")
            axes.legend(loc="best", frameon=False, fontsize=9)

    title = f"P95 of the bounded slowdown, {workload or 'all jobs with errors'} (figure {number})"
    return chart(title, 4.2, [[partial(panel, policy=policy) for policy in policies]], sharey=True)


def _line(
    axes: Axes, results: ErrorResults, cell: Cell, category: str, name: str, colour: str
) -> None:
    """Draw the means over the seeds, and the range of the seeds."""
    xs, means = results.curve(cell, results.of(category))
    values = [results.p95(cell, results.of(category), x) for x in xs]
    axes.plot(xs, means, color=colour, marker="o", markersize=4, label=name)
    lowest, largest = ([pick(each) for each in values] for pick in (min, max))
    axes.fill_between(xs, lowest, largest, color=colour, alpha=0.2, linewidth=0)
