"""Study of REDIR: redirection against EASY with the same processors, on busy weeks.

Faure, Lucarelli, Richard and Trystram, Online scheduling with redirection for parallel jobs, IPDPSW
2020, sections IV and V, figures 1 and 2. The principal group keeps the machine's processors, the
redirection group has alpha times as many in addition; EASY has the processors of both. Run times
serve as walltimes. The report has ratios to EASY week by week, and the cost of redirection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from math import log2, nextafter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

import simulator as sim
from reshape.errors import ReshapeError
from scheduler.pictures import INK, encode_all
from simulator.results.statistics import Interval, geometric_mean, mean, mean_interval, median
from simulator.studies.charts import Panel, chart
from simulator.studies.claims import (
    Claim,
    StudyResults,
    by_range,
    by_sign,
    mean_difference,
    paper,
    quotients,
    reported,
    titled,
    with_limits,
)
from simulator.study.study import Report, Row, shown, trace_path
from simulator.traces import swf
from simulator.traces.derived import WEEK_S, choose, cut
from simulator.traces.normalise import NEEDED
from simulator.traces.swf import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Numbers of a run that the study keeps.
KEPT = (
    "jobs", "mean_bounded_slowdown", "max_bounded_slowdown", "mean_wait_s", "utilization",
    "redirected", "lost_processor_s",
)  # fmt: skip


def run(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate one week with redirection, or without it if theta is None.

    Parameters
    ----------
    parameters : `trace`, `processors` (of its machine), `weeks`, `utilization` and `draw` (the
        choice of the weeks, see `simulator.traces.derived`), `week` (from 1), `theta`, `alpha`,
        `conflict`, `filter`, `counts`, `tau` (seconds).
    """
    path = trace_path(parameters, parameters["trace"])
    processors: int = parameters["processors"]
    utilization, number = parameters["utilization"], parameters["week"]
    weeks = _weeks(path, processors, parameters["weeks"], utilization, parameters["draw"])
    if not 1 <= number <= len(weeks):
        raise ReshapeError(
            f"{path.name} has {len(weeks)} weeks with a utilization of at least {utilization:g},"
            f" week {number} does not exist; lower the utilization or the number of weeks"
        )
    number, week = weeks[number - 1]
    names = ("theta", "alpha", "conflict", "filter", "counts")
    experiment = sim.Experiment(
        sim.Jobs(week).with_rules(exact=True, overrun="extend"),
        processors=processors,
        scenario={"name": "easy", "redirection": {n: parameters[n] or 0 for n in names}},
        tau_s=parameters["tau"],
    )
    if parameters["theta"] is None:
        redirection = experiment.chosen.redirection
        assert redirection is not None
        processors += redirection.group_size(processors)
        experiment = experiment.replace(processors=processors, scenario="easy")
    metrics = experiment.run().metrics
    return {"number": number} | {name: metrics[name] for name in KEPT}


@lru_cache(maxsize=2)
def _weeks(
    path: Path, processors: int, count: int, utilization: float, draw: int
) -> list[tuple[int, Trace]]:
    """Weeks of a trace with their numbers; the runs of one process share them."""
    trace = swf.read(path, fields={*NEEDED, "wait"})
    weeks = choose(trace, processors, count, utilization, draw)
    return [(week.number, cut(trace, week)) for week in weeks]


MEAN, MAX = "mean_bounded_slowdown", "max_bounded_slowdown"
#: A point of the grid: alpha and theta.
GridPoint: TypeAlias = tuple[float, int]


class TraceRatios(msgspec.Struct):
    """Ratios of one trace: redirection over EASY on as many processors; below 1 is better.

    Parameters
    ----------
    name : short name of the trace.
    weeks : number of weeks.
    ratios : metric -> point -> ratio of each week.
    prices : point -> cost of redirection over the weeks: `redirected`, the share of the jobs that
        were; `lost`, processor-seconds of first runs, as a share of those of the principal group;
        `wait_ratio`, the mean wait over that under EASY, None if no job waits there.
    """

    name: str
    weeks: int
    ratios: dict[str, dict[GridPoint, list[float]]]
    prices: dict[GridPoint, dict[str, float | None]]

    def interval(self, metric: str, point: GridPoint) -> Interval:
        """Mean ratio over the weeks."""
        return mean_interval(self.ratios[metric][point])

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
    runs = StudyResults(rows, lambda p: (p["alpha"], p["theta"]), "week")
    points = [(a, theta) for a, theta in runs if theta is not None and (a, None) in runs.rows]
    if not points:
        raise ReshapeError(
            f"{name}: redirection is compared with EASY; give theta null and at least one number"
        )
    over_easy = {
        metric: {
            point: quotients(runs.values(point, metric), runs.values((point[0], None), metric))
            for point in points
        }
        for metric in (MEAN, MAX)
    }
    weeks = len({row.parameters["week"] for row in rows if row.parameters["theta"] is None})
    return TraceRatios(name, weeks, over_easy, {point: _price(runs, point) for point in points})


def _price(runs: StudyResults, point: GridPoint) -> dict[str, float | None]:
    """Cost of redirection over the weeks; see `TraceRatios`."""
    capacity_s = runs.rows[point][0].parameters["processors"] * WEEK_S
    wait_s, easy_s = (mean(runs.values(key, "mean_wait_s")) for key in (point, (point[0], None)))
    return {
        "redirected": mean(quotients(runs.values(point, "redirected"), runs.values(point, "jobs"))),
        "lost": mean([lost_s / capacity_s for lost_s in runs.values(point, "lost_processor_s")]),
        "wait_ratio": wait_s / easy_s if easy_s else None,
    }


#: What the paper says of each trace, by a part of its name.
PAPER: Mapping[str, Mapping[str, Any]] = paper("redir").traces


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Ratios to EASY, the paper's claims and pictures.

    Raises
    ------
    ReshapeError : there are no runs to compare.
    """
    by_trace = StudyResults(rows, lambda p: p["trace"].removesuffix(".gz").removesuffix(".swf"))
    traces = [ratios(name, part) for name, part in by_trace.rows.items()]
    claims = [claim for trace in traces for claim in judged(trace)]
    parts = [text for trace in traces for text in tables(trace)]
    data = {"traces": [_as_data(trace) for trace in traces]}
    return reported(parts, data, claims, pictures(traces), "The paper's claims")


def tables(trace: TraceRatios) -> list[str]:
    """Mean ratio with its interval, and the median, by theta (rows) and alpha (columns)."""
    texts = []
    for metric, words in ((MEAN, "mean"), (MAX, "largest")):
        lines = []
        for theta in trace.thetas:
            line = [str(theta)]
            for alpha in trace.alphas:
                values = trace.ratios[metric].get((alpha, theta), [])
                line += [shown(mean_interval(values)), f"{median(values):.3f}"]
            lines.append(line)
        head = ["THETA"]
        head += [word for alpha in trace.alphas for word in (f"ALPHA {alpha:g}", "MEDIAN")]
        title = (
            f"{trace.name}: ratio of the {words} bounded slowdown to EASY's on as many processors,"
            f" mean of {trace.weeks} weeks"
        )
        texts.append(titled(title, head, lines, 0))
    return [*texts, _price_text(trace)]


def _price_text(trace: TraceRatios) -> str:
    alpha, theta = point = trace.best(MEAN)
    cost = trace.prices[point]
    ratio = cost["wait_ratio"]
    times = "" if ratio is None else f"; the mean wait of all jobs is {ratio:.2f} times EASY's"
    return (
        f"{trace.name}: the price at alpha {alpha:g}, theta {theta}: {cost['redirected']:.2%} of"
        f" the jobs are redirected, and their first runs held {cost['lost']:.1%} of the capacity of"
        f" the principal group{times}"
    )


def judged(trace: TraceRatios) -> list[Claim]:
    """Judge the paper's claims about a trace; none if the paper does not use it."""
    values = next((values for name, values in PAPER.items() if name in trace.name), None)
    if values is None:
        return []
    alpha, theta = best = trace.best(MEAN)
    text = f"mean BSLD, best parameters (alpha {alpha:g}, theta {theta})"
    claims = [
        _ratio_claim(trace, MEAN, best, values["best"], text, "REDIR figure 1"),
        *_theta_claims(trace, *values["thetas"]),
    ]
    both = values.get("both", {})
    point = both.get("alpha"), both.get("theta")
    if point in trace.ratios[MEAN]:
        for metric, name in ((MEAN, "mean"), (MAX, "largest")):
            text = f"{name} BSLD at alpha {point[0]:g}, theta {point[1]}"
            claims.append(_ratio_claim(trace, metric, point, both["ratio"], text, "REDIR figure 2"))
    return claims


def _ratio_claim(
    trace: TraceRatios, metric: str, point: GridPoint, claimed: float, text: str, part: str
) -> Claim:
    """Judge the claim that a metric at a point is below EASY's."""
    ours = trace.interval(metric, point)
    geometric = f"geometric mean {with_limits(geometric_mean(trace.ratios[metric][point]))}"
    verdict = by_range(ours, high=nextafter(1, 0))
    return Claim(f"{text}: ratio to EASY", ours, claimed, verdict, part, trace.name, geometric)


def _theta_claims(trace: TraceRatios, low: int, high: int) -> Iterator[Claim]:
    """Judge for each alpha that the best threshold lies in a range."""
    inside = [theta for theta in trace.thetas if low <= theta <= high]
    outside = [theta for theta in trace.thetas if theta not in inside]
    for alpha in trace.alphas if inside and outside else ():
        one, other = (trace.best(MEAN, alpha, part) for part in (inside, outside))
        ours = mean_difference(trace.ratios[MEAN][other], trace.ratios[MEAN][one])
        text = f"best theta in {low} to {high}, alpha {alpha:g}: ratio outside minus inside"
        best = f"best: {trace.best(MEAN, alpha)[1]}"
        yield Claim(text, ours, None, by_sign(ours), "REDIR figure 1", trace.name, best)


def _as_data(trace: TraceRatios) -> dict[str, Any]:
    points = [
        {"alpha": point[0], "theta": point[1]}
        | trace.prices[point]
        | {
            name: msgspec.to_builtins(trace.interval(metric, point))
            | {"median": median(trace.ratios[metric][point])}
            | {"geometric": msgspec.to_builtins(geometric_mean(trace.ratios[metric][point]))}
            for name, metric in (("mean_ratio", MEAN), ("max_ratio", MAX))
        }
        for point in trace.ratios[MEAN]
    ]
    return {"trace": trace.name, "weeks": trace.weeks, "points": points}


MEAN_MARK = "#c0392b"
COLOURS = {MEAN: "#8fb8de", MAX: "#6b6f76"}
ROW = 3.2  # inches
MARKS = "(weeks; line: median, square: mean)"

#: Draws the ratios of one alpha.
Draw: TypeAlias = "Callable[[Axes, TraceRatios, float], None]"


def pictures(traces: Sequence[TraceRatios]) -> dict[str, bytes]:
    """Draw both figures as PNG and SVG, by file name."""
    from matplotlib.patches import Patch  # late: matplotlib is slow to load

    def panel(axes: Axes, trace: TraceRatios, alpha: float, draw: Draw) -> None:
        draw(axes, trace, alpha)
        _frame(axes, trace, alpha)

    def rows(draw: Draw) -> list[list[Panel]]:
        return [
            [partial(panel, trace=trace, alpha=alpha, draw=draw) for alpha in trace.alphas]
            for trace in traces
        ]

    height = 0.8 + ROW * len(traces)
    names = {MEAN: "mean over jobs", MAX: "largest"}
    entries = [Patch(color=COLOURS[metric], label=name) for metric, name in names.items()]
    means = f"Mean bounded slowdown with redirection over EASY's {MARKS}"
    both = f"Mean and largest bounded slowdown with redirection over EASY's {MARKS}"
    figures = {
        "redir-mean": chart(means, height, rows(_violins), sharey="row"),
        "redir-both": chart(both, height, rows(_boxes), sharey="row", legend=entries),
    }
    return encode_all(figures)


def _violins(axes: Axes, trace: TraceRatios, alpha: float) -> None:
    """Draw the distribution over the weeks, with a box, the median, and the mean as a square."""
    logs = _logs(trace, MEAN, alpha)
    broad = [(i, values) for i, values in enumerate(logs, 1) if len({*values}) > 2]
    if broad:
        parts = axes.violinplot(
            [values for _, values in broad],
            [i for i, _ in broad],
            widths=0.85,
            showextrema=False,
        )
        for body in parts["bodies"]:  # type: ignore[attr-defined]
            body.set(facecolor=COLOURS[MEAN], alpha=0.6)
    _box(axes, logs, list(range(1, len(logs) + 1)), 0.25, "white")
    for i, theta in enumerate(trace.thetas, 1):
        _mean_mark(axes, i, trace.ratios[MEAN].get((alpha, theta), []))


def _boxes(axes: Axes, trace: TraceRatios, alpha: float) -> None:
    """Draw boxes of both metrics side by side, the means as squares."""
    for metric, shift in ((MEAN, -0.2), (MAX, 0.2)):
        logs = _logs(trace, metric, alpha)
        positions = [i + shift for i in range(1, len(logs) + 1)]
        _box(axes, logs, positions, 0.34, COLOURS[metric])
        for position, theta in zip(positions, trace.thetas, strict=True):
            _mean_mark(axes, position, trace.ratios[metric].get((alpha, theta), []))


def _logs(trace: TraceRatios, metric: str, alpha: float) -> list[list[float]]:
    """Base-2 logarithms of the ratios, by theta."""
    points = trace.ratios[metric]
    return [[log2(ratio) for ratio in points.get((alpha, theta), [])] for theta in trace.thetas]


def _box(
    axes: Axes, logs: list[list[float]], positions: Sequence[float], width: float, colour: str
) -> None:
    axes.boxplot(
        logs,
        positions=positions,
        widths=width,
        patch_artist=True,
        manage_ticks=False,
        boxprops={"facecolor": colour, "edgecolor": INK, "linewidth": 0.7},
        whiskerprops={"color": INK, "linewidth": 0.7},
        capprops={"color": INK, "linewidth": 0.7},
        medianprops={"color": INK, "linewidth": 1.6},
        flierprops={"marker": ".", "markersize": 3, "markeredgecolor": INK},
    )


def _mean_mark(axes: Axes, position: float, ratios: list[float]) -> None:
    if ratios:
        axes.plot(position, log2(mean(ratios)), "s", color=MEAN_MARK, markersize=3.5, zorder=5)


def _frame(axes: Axes, trace: TraceRatios, alpha: float) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.axhline(0.0, color=INK, linewidth=0.8, linestyle="--", zorder=0)
    axes.set_title(rf"$\alpha$ = {alpha:g}", fontsize=10)
    axes.set_xticks(range(1, len(trace.thetas) + 1), [str(theta) for theta in trace.thetas])
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlabel(r"$\theta$")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda power, _: f"{2.0**power:g}"))
    if alpha == trace.alphas[0]:
        axes.set_ylabel(f"{trace.name}\nratio to EASY")
