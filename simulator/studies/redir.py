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

import simulator as sim
from reshape.errors import ReshapeError
from scheduler.pictures import INK, encode_all
from simulator.results.statistics import geometric_mean, mean, mean_interval, median
from simulator.studies.charts import Panel, chart
from simulator.studies.claims import (
    Claim,
    Key,
    StudyResults,
    by_range,
    by_sign,
    paper,
    reported,
    titled,
    with_limits,
)
from simulator.study.study import Parameters, Report, Row, shown, trace_path
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
#: Key of the results: trace, alpha and theta.
Point: TypeAlias = tuple[str, float, int]


def _point(parameters: Parameters) -> Key:
    name = parameters["trace"].removesuffix(".gz").removesuffix(".swf")
    return name, parameters["alpha"], parameters["theta"]


def compared(rows: Sequence[Row]) -> StudyResults:
    """Runs with redirection over EASY on as many processors, week by week.

    Returns
    -------
    results by trace, alpha and theta: `MEAN` and `MAX`, the ratios of both, below 1 is better;
    `redirected`, the share of the jobs that were; `lost`, processor-seconds of first runs, as a
    share of those of the principal group; `wait_s` and `easy_wait_s`, the mean waits

    Raises
    ------
    ReshapeError : the runs of a trace without redirection (theta null), or all with it, are
        missing.
    """
    runs = StudyResults(rows, _point, "week")
    made = [
        Row(row.parameters, _over_easy(row, easy))
        for (trace, alpha, theta), own in runs.rows.items()
        if theta is not None
        for row, easy in zip(own, runs.rows.get((trace, alpha, None), ()), strict=False)
    ]
    results = StudyResults(made, _point, "week")
    for trace in runs.parts():
        if trace not in results.parts():
            raise ReshapeError(
                f"{trace}: redirection is compared with EASY; give theta null and at least one"
                " number"
            )
    return results


def _over_easy(row: Row, easy: Row) -> dict[str, float]:
    """Numbers of a run beside those of EASY; see `compared`."""
    ours, capacity_s = row.result, row.parameters["processors"] * WEEK_S
    return {
        MEAN: ours[MEAN] / easy.result[MEAN],
        MAX: ours[MAX] / easy.result[MAX],
        "redirected": ours["redirected"] / ours["jobs"],
        "lost": ours["lost_processor_s"] / capacity_s,
        "wait_s": ours["mean_wait_s"],
        "easy_wait_s": easy.result["mean_wait_s"],
    }


def thetas_of(results: StudyResults, trace: str) -> list[int]:
    """Thresholds of the grid."""
    return sorted({theta for name, _, theta in results if name == trace})


def best(
    results: StudyResults,
    trace: str,
    alpha: float | None = None,
    thetas: Sequence[int] | None = None,
) -> Point:
    """Point with the smallest mean ratio, of all or of one alpha and of some thresholds."""
    points = (key for key in results if key[0] == trace and alpha in (None, key[1]))
    points = (key for key in points if thetas is None or key[2] in thetas)
    point: Point = min(points, key=lambda key: (results.interval(key, MEAN).mean, key))
    return point


def _price(results: StudyResults, point: Point) -> dict[str, float | None]:
    """Cost of redirection over the weeks; the ratio is None if no job waits under EASY."""
    means = {
        name: mean(results.values(point, name))
        for name in ("redirected", "lost", "wait_s", "easy_wait_s")
    }
    wait_s, easy_s = means.pop("wait_s"), means.pop("easy_wait_s")
    return {**means, "wait_ratio": wait_s / easy_s if easy_s else None}


#: What the paper says of each trace, by a part of its name.
PAPER: Mapping[str, Mapping[str, Any]] = paper("redir").traces


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Ratios to EASY, the paper's claims and pictures.

    Raises
    ------
    ReshapeError : there are no runs to compare.
    """
    results = compared(rows)
    traces = results.parts()
    claims = [claim for trace in traces for claim in judged(results, trace)]
    parts = [text for trace in traces for text in tables(results, trace)]
    names = ("trace", "alpha", "theta")
    data = {"points": results.data(names, (MEAN, MAX), lambda point: _price(results, point))}
    return reported(parts, data, claims, pictures(results), "The paper's claims")


def _weeks_of(results: StudyResults, trace: str) -> int:
    """Number of weeks of a trace."""
    return max(len(runs) for key, runs in results.rows.items() if key[0] == trace)


def tables(results: StudyResults, trace: str) -> list[str]:
    """Mean ratio with its interval, and the median, by theta (rows) and alpha (columns)."""
    texts, alphas = [], sorted(results.parts(trace))
    for metric, words in ((MEAN, "mean"), (MAX, "largest")):
        lines = []
        for theta in thetas_of(results, trace):
            line = [str(theta)]
            for alpha in alphas:
                values = results.values((trace, alpha, theta), metric)
                line += [shown(mean_interval(values)), f"{median(values):.3f}"]
            lines.append(line)
        head = ["THETA"]
        head += [word for alpha in alphas for word in (f"ALPHA {alpha:g}", "MEDIAN")]
        title = (
            f"{trace}: ratio of the {words} bounded slowdown to EASY's on as many processors,"
            f" mean of {_weeks_of(results, trace)} weeks"
        )
        texts.append(titled(title, head, lines, 0))
    return [*texts, _price_text(results, trace)]


def _price_text(results: StudyResults, trace: str) -> str:
    _, alpha, theta = point = best(results, trace)
    cost = _price(results, point)
    ratio = cost["wait_ratio"]
    times = "" if ratio is None else f"; the mean wait of all jobs is {ratio:.2f} times EASY's"
    return (
        f"{trace}: the price at alpha {alpha:g}, theta {theta}: {cost['redirected']:.2%} of"
        f" the jobs are redirected, and their first runs held {cost['lost']:.1%} of the capacity of"
        f" the principal group{times}"
    )


def judged(results: StudyResults, trace: str) -> list[Claim]:
    """Judge the paper's claims about a trace; none if the paper does not use it."""
    values = next((values for name, values in PAPER.items() if name in trace), None)
    if values is None:
        return []
    _, alpha, theta = point = best(results, trace)
    text = f"mean BSLD, best parameters (alpha {alpha:g}, theta {theta})"
    claims = [
        _ratio_claim(results, MEAN, point, values["best"], text, "REDIR figure 1"),
        *_theta_claims(results, trace, *values["thetas"]),
    ]
    both = values.get("both", {})
    point = trace, both.get("alpha"), both.get("theta")
    if point in results.rows:
        for metric, name in ((MEAN, "mean"), (MAX, "largest")):
            text = f"{name} BSLD at alpha {point[1]:g}, theta {point[2]}"
            claim = _ratio_claim(results, metric, point, both["ratio"], text, "REDIR figure 2")
            claims.append(claim)
    return claims


def _ratio_claim(
    results: StudyResults, metric: str, point: Point, claimed: float, text: str, part: str
) -> Claim:
    """Judge the claim that a metric at a point is below EASY's."""
    ours = results.interval(point, metric)
    geometric = f"geometric mean {with_limits(geometric_mean(results.values(point, metric)))}"
    verdict = by_range(ours, high=nextafter(1, 0))
    return Claim(f"{text}: ratio to EASY", ours, claimed, verdict, part, point[0], geometric)


def _theta_claims(results: StudyResults, trace: str, low: int, high: int) -> Iterator[Claim]:
    """Judge for each alpha that the best threshold lies in a range."""
    thetas = thetas_of(results, trace)
    inside = [theta for theta in thetas if low <= theta <= high]
    outside = [theta for theta in thetas if theta not in inside]
    for alpha in sorted(results.parts(trace)) if inside and outside else ():
        one, other = (best(results, trace, alpha, part) for part in (inside, outside))
        ours = results.difference(MEAN, other, one)
        text = f"best theta in {low} to {high}, alpha {alpha:g}: ratio outside minus inside"
        remark = f"best: {best(results, trace, alpha)[2]}"
        yield Claim(text, ours, None, by_sign(ours), "REDIR figure 1", trace, remark)


MEAN_MARK = "#c0392b"
COLOURS = {MEAN: "#8fb8de", MAX: "#6b6f76"}
ROW = 3.2  # inches
MARKS = "(weeks; line: median, square: mean)"

#: Draws the ratios of one alpha: by theta, a mapping of the metrics to the ratios of the weeks.
Draw: TypeAlias = "Callable[[Axes, list[dict[str, list[float]]]], None]"


def pictures(results: StudyResults) -> dict[str, bytes]:
    """Draw both figures as PNG and SVG, by file name."""
    from matplotlib.patches import Patch  # late: matplotlib is slow to load

    def panel(axes: Axes, trace: str, alpha: float, draw: Draw) -> None:
        thetas = thetas_of(results, trace)
        points = [(trace, alpha, theta) for theta in thetas]
        draw(axes, [{m: results.values(point, m) for m in (MEAN, MAX)} for point in points])
        _frame(axes, alpha, thetas)
        if alpha == min(results.parts(trace)):
            axes.set_ylabel(f"{trace}\nratio to EASY")

    def rows(draw: Draw) -> list[list[Panel]]:
        return [
            [
                partial(panel, trace=trace, alpha=alpha, draw=draw)
                for alpha in sorted(results.parts(trace))
            ]
            for trace in results.parts()
        ]

    height = 0.8 + ROW * len(results.parts())
    names = {MEAN: "mean over jobs", MAX: "largest"}
    entries = [Patch(color=COLOURS[metric], label=name) for metric, name in names.items()]
    means = f"Mean bounded slowdown with redirection over EASY's {MARKS}"
    both = f"Mean and largest bounded slowdown with redirection over EASY's {MARKS}"
    figures = {
        "redir-mean": chart(means, height, rows(_violins), sharey="row"),
        "redir-both": chart(both, height, rows(_boxes), sharey="row", legend=entries),
    }
    return encode_all(figures)


def _violins(axes: Axes, by_theta: list[dict[str, list[float]]]) -> None:
    """Draw the distribution over the weeks, with a box, the median, and the mean as a square."""
    logs = [[log2(ratio) for ratio in ratios[MEAN]] for ratios in by_theta]
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
    for i, ratios in enumerate(by_theta, 1):
        _mean_mark(axes, i, ratios[MEAN])


def _boxes(axes: Axes, by_theta: list[dict[str, list[float]]]) -> None:
    """Draw boxes of both metrics side by side, the means as squares."""
    for metric, shift in ((MEAN, -0.2), (MAX, 0.2)):
        logs = [[log2(ratio) for ratio in ratios[metric]] for ratios in by_theta]
        positions = [i + shift for i in range(1, len(logs) + 1)]
        _box(axes, logs, positions, 0.34, COLOURS[metric])
        for position, ratios in zip(positions, by_theta, strict=True):
            _mean_mark(axes, position, ratios[metric])


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


def _frame(axes: Axes, alpha: float, thetas: Sequence[int]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.axhline(0.0, color=INK, linewidth=0.8, linestyle="--", zorder=0)
    axes.set_title(rf"$\alpha$ = {alpha:g}", fontsize=10)
    axes.set_xticks(range(1, len(thetas) + 1), [str(theta) for theta in thetas])
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlabel(r"$\theta$")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda power, _: f"{2.0**power:g}"))
