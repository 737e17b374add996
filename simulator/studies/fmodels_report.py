"""Figures 5.1 to 5.9 of GUIM as tables and pictures, and verdicts on the sentences of 5.7, 5.8.

Most claims are about a ratio of two 95th percentiles of the bounded slowdown, such as the one at
errors of 10 000 % to the one at 5 %. A ratio for several combinations of workload and policy is
their geometric mean with an interval over the combinations; for one combination the interval is
over the seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, log, nan
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from simulator.results.statistics import Interval, mean, mean_interval
from simulator.studies.claims import (
    NOT_RUN,
    Claim,
    below_one,
    by_range,
    by_sign,
    of_part,
    plus_minus,
    reported,
    titled,
)
from simulator.studies.fmodels import (
    POLICIES,
    WIDE,
    Cell,
    ErrorResults,
    geometric,
    quotients,
)
from simulator.study.study import Report, Row
from simulator.workload_models.fake_predictions import QUALITATIVE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: A ratio between 1 / `NO_EFFECT` and `NO_EFFECT` is no relevant effect; our choice.
NO_EFFECT = 1.5
#: Categories of which the thesis shows no figures, as they had no effect.
WITHOUT_FIGURES = (
    "high-processors", "low-processors", "high-area", "low-area", "more-executed",
    "low-processors-and-short",
)  # fmt: skip
LARGEST = 10000


def claims(results: ErrorResults) -> list[Claim]:
    """All claims; those whose points were not run are open."""
    return [
        *of_part("GUIM figure 5.1", _pure_equal(results)),
        *of_part("GUIM figures 5.2 to 5.5", _equal(results)),
        *of_part("GUIM figures 5.2 to 5.5", _short_and_large(results)),
        *of_part("GUIM 5.7, without figures", _resources(results)),
        *of_part("GUIM figures 5.6 to 5.9", _qualitative(results)),
    ]


def _pure_equal(results: ErrorResults) -> Iterator[Claim]:
    correlations = [_rank_correlation(results, cell, "pure-equal") for cell in results.cells]
    correlation = mean_interval([c for c in correlations if c == c])
    verdict = by_range(correlation, -0.5, 0.5)
    text = "pure equal: P95 follows no pattern (rank correlation with the error near 0)"
    yield Claim(text, correlation, None, verdict, id="5.7.1-pattern")
    kth = [
        [
            value / max(others)
            for value, *others in zip(
                results.values(cell, results.of("pure-equal"), at),
                *(
                    results.values(Cell(other, cell.policy), results.of("pure-equal"), at)
                    for other in results.workloads
                    if other != "KTH"
                ),
                strict=False,
            )
            if others
        ]
        for cell in _cells(results, "KTH")
        for at in _xs(results, "pure-equal")
    ]
    text = "pure equal: KTH has the highest P95 (ratio to the highest of the others)"
    yield _above(text, geometric(kth), None, "5.7.1-kth")
    for name, low, high, paper in (("KTH", 35, 45, "40"), ("others", 10, 20, "10 to 20")):
        shares = [s for w, s in results.short_jobs_pct.items() if (w == "KTH") == (name == "KTH")]
        share = Interval(mean(shares), min(shares, default=nan), max(shares, default=nan), 1)
        verdict = by_range(share, low, high)
        text = f"jobs of less than a minute, %, {name} (least and largest share)"
        yield Claim(text, share, paper, verdict, id=f"5.7.1-short-{name}")
    text = "pure equal: errors of 10 000 % have no clear effect (ratio to 5 %)"
    yield _unchanged(text, results.growth("pure-equal", LARGEST), "5.7.1-all-jobs")
    for policy, before, after in (("SJBF", 2.0, 1.0), ("LXWF", 2.5, 1.4)):
        ours = results.growth("pure-equal", 1000, cells=[Cell("SDSC-Par-96", policy)])
        text = f"pure equal, SDSC-Par-96, {policy}: 1000 % is better than 5 % (ratio)"
        yield _below(text, ours, after / before, f"5.7.1-sdsc-{policy}")


def _equal(results: ErrorResults) -> Iterator[Claim]:
    ours = results.growth("equal", 1000, cells=[Cell("KTH", "SJBF")])
    text = "equal, KTH, SJBF: 1000 % is better than 5 % (ratio)"
    yield _below(text, ours, round(2 / 3, 2), "5.7.1-equal-kth")
    for error in (200, 400):
        text = f"equal: {error} % can be better than 5 % (least ratio of all combinations)"
        ours = _extreme(results, "equal", error, least=True)
        yield _below(text, ours, None, f"5.7.1-equal-{error}")
    least = [_extreme(results, "equal", error, least=True) for error in _xs(results, "equal")]
    ours = min(least, key=lambda interval: interval.mean, default=NOT_RUN)
    text = "equal: in some situations P95 improves by an order of magnitude (least ratio to 5 %)"
    yield Claim(text, ours, 0.1, by_range(ours, 0, 0.1), id="5.7.1-equal-magnitude")
    text = "equal: errors above 5000 % make it worse (ratio of 10 000 % to 5 %)"
    yield _above(text, results.growth("equal", LARGEST), None, "5.8-equal-largest")
    sdsc = results.growth("equal", 1000, 200, _cells(results, "SDSC-Par-96"))
    text = "equal, SDSC-Par-96: P95 grows from 200 % to 1000 % (ratio)"
    yield _above(text, sdsc, 2.5, "5.7.1-equal-sdsc")


def _short_and_large(results: ErrorResults) -> Iterator[Claim]:
    text = "large exact: P95 grows more than with equal (ratio of the ratios, 10 000 % to 5 %)"
    yield _above(text, _quotient(results, "large", "equal"), None, "5.7.1-large-equal")
    text = "errors in short jobs matter more than those in large ones (large over short exact)"
    yield _above(text, _quotient(results, "large", "short"), None, "5.7.1-short-over-large")
    text = "large exact, CTC: P95 grows with the error (ratio of 10 000 % to 5 %)"
    ctc = _cells(results, "CTC")
    yield _above(text, results.growth("large", LARGEST, cells=ctc), None, "5.7.1-large-ctc")
    text = "large exact, CTC: from 100 % to 10 000 % (ratio)"
    yield _above(text, results.growth("large", LARGEST, 100, ctc), 4.0, "5.7.1-large-ctc-100")
    others = [cell for cell in results.cells if cell.workload != "CTC"]
    text = "large exact, other workloads: the same pattern (ratio of 10 000 % to 5 %)"
    yield _above(text, results.growth("large", LARGEST, cells=others), None, "5.7.1-large-others")
    text = "short exact: no clear effect of errors in the other jobs (ratio of 10 000 % to 5 %)"
    yield _unchanged(text, results.growth("short", LARGEST), "5.7.1-short")
    text = "errors in short jobs: P95 increases up to 400 % (large exact, ratio to 5 %)"
    yield _above(text, results.growth("large", 400), None, "5.8-steady")
    text = "errors in short jobs: it increases more above 400 % (ratio of the two ratios)"
    steeper = [
        quotients(results.ratios(cell, "large", LARGEST, 400), results.ratios(cell, "large", 400))
        for cell in results.cells
    ]
    yield _above(text, geometric(steeper), None, "5.8-exponential")
    text = "errors that only shorten have no important effect (the model draws no such errors)"
    yield Claim(text, NOT_RUN, id="5.8-negative")


def _resources(results: ErrorResults) -> Iterator[Claim]:
    for category in WITHOUT_FIGURES:
        name, cells = category.replace("-", " "), results.cells
        if category == "more-executed":  # the other traces have no numbers of applications
            name, cells = f"{name} (CTC, LANL)", _cells(results, "CTC") + _cells(results, "LANL")
        text = f"{name} exact: no relevant impact (ratio of 10 000 % to 5 %)"
        yield _unchanged(text, results.growth(category, LARGEST, cells=cells), f"5.7-{category}")
    text = "the policies have similar patterns (rank correlation between their P95)"
    correlations = [
        correlation
        for workload in results.workloads
        for policy in ("SJBF", "LXWF")
        if (correlation := _similarity(results, workload, policy)) == correlation
    ]
    similarity = mean_interval(correlations)
    yield Claim(text, similarity, None, by_sign(similarity), id="5.7-policies")


def _qualitative(results: ErrorResults) -> Iterator[Claim]:
    most = 90
    for category in ("short2large", "large2short"):
        text = f"{category}: P95 at least doubles (ratio of {most} % to 5 % of the jobs)"
        ours = results.growth(category, most)
        yield Claim(text, ours, 2.0, by_range(ours, 2), id=f"5.7.2-{category}")
    ctc = _cells(results, "CTC")
    ours = results.growth("short2large", 80, cells=ctc)
    text = "short2large, CTC: from 2 at 5 % to 20 at 80 %, 'by 4 times' (ratio of at least 4)"
    yield Claim(text, ours, 10.0, by_range(ours, 4), id="5.7.2-ctc")
    for at, factor, ident in ((50, 7.0, "half"), (most, 10.0, "worst")):
        ours = _extreme(results, "both", at, least=False)
        text = f"both: {at} % of the jobs multiply P95 by up to {factor:g} (largest ratio to 5 %)"
        yield Claim(text, ours, factor, by_range(ours, factor), id=f"5.7.2-{ident}")
    for category in ("short2large", "large2short"):
        text = f"both is worse than {category} alone (ratio of the ratios, {most} % to 5 %)"
        ratio = _quotient(results, "both", category, most)
        yield _above(text, ratio, None, f"5.7.2-both-{category}")
    for category in ("short2large", "large2short", "both"):
        advantages = [_exponential_advantage(results, cell, category) for cell in results.cells]
        advantage = mean_interval([a for a in advantages if a == a])
        text = f"{category}: exponential tendency (R² of a line through log P95, minus through P95)"
        yield Claim(text, advantage, None, by_sign(advantage), id=f"5.8-{category}")


def _above(text: str, ratio: Interval, paper: float | None, ident: str) -> Claim:
    """Claim that a ratio is above 1."""
    return Claim(text, ratio, paper, by_range(ratio, np.nextafter(1, 2), inf), id=ident)


def _below(text: str, ratio: Interval, paper: float | None, ident: str) -> Claim:
    """Claim that a ratio is below 1."""
    return Claim(text, ratio, paper, below_one(ratio), id=ident)


def _unchanged(text: str, ratio: Interval, ident: str) -> Claim:
    """Claim that a ratio is near 1."""
    return Claim(text, ratio, 1.0, by_range(ratio, 1 / NO_EFFECT, NO_EFFECT), id=ident)


def _quotient(results: ErrorResults, above: str, below: str, at: float = LARGEST) -> Interval:
    """Growth from 5 % to `at` with one category over that with another."""
    return geometric(
        quotients(results.ratios(cell, above, at), results.ratios(cell, below, at))
        for cell in results.cells
    )


def _cells(results: ErrorResults, workload: str) -> list[Cell]:
    return [cell for cell in results.cells if cell.workload == workload]


def _xs(results: ErrorResults, category: str) -> list[float]:
    series = results.of(category)
    return [] if series is None else results.xs(series)


def _extreme(results: ErrorResults, category: str, at: float, *, least: bool) -> Interval:
    """Ratio to 5 % of the combination in which it is least or largest; interval over its seeds."""
    ratios = [results.ratios(cell, category, at) for cell in results.cells]
    means = [geometric([by_seed]) for by_seed in ratios if by_seed]
    if not means:
        return NOT_RUN
    pick = min if least else max
    return pick(means, key=lambda interval: interval.mean)


def _curve(results: ErrorResults, cell: Cell, category: str) -> tuple[list[float], list[float]]:
    """Errors or percentages, and the P95 at each, of the points that were run."""
    series, xs = results.of(category), _xs(results, category)
    points = [(x, y) for x in xs if (y := results.mean(cell, series, x)) == y]
    return [x for x, _ in points], [y for _, y in points]


def _rank_correlation(results: ErrorResults, cell: Cell, category: str) -> float:
    return _spearman(*_curve(results, cell, category))


def _similarity(results: ErrorResults, workload: str, policy: str) -> float:
    """Rank correlation of the P95 under a policy and under EASY, over all kinds of errors."""
    pairs = [
        (a, b)
        for series in results.series
        for x in results.xs(series)
        if (a := results.mean(Cell(workload, "EASY"), series, x)) == a
        and (b := results.mean(Cell(workload, policy), series, x)) == b
    ]
    return _spearman([a for a, _ in pairs], [b for _, b in pairs])


def _exponential_advantage(results: ErrorResults, cell: Cell, category: str) -> float:
    xs, ys = _curve(results, cell, category)
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
FIGURES: Final[dict[str, tuple[str | None, tuple[str, ...]]]] = {
    "5.1": (None, ("pure-equal",)),
    "5.2": ("SDSC-Par-96", ("equal", "large", "short")),
    "5.3": ("CTC", ("equal", "large", "short")),
    "5.4": ("KTH", ("equal", "large", "short")),
    "5.5": ("LANL", ("equal", "large", "short")),
    "5.6": ("CTC", QUALITATIVE),
    "5.7": ("LANL", QUALITATIVE),
    "5.8": ("KTH", QUALITATIVE),
    "5.9": ("SDSC-Par-96", QUALITATIVE),
}


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
    data = {"seeds": results.seeds, "points": [*results.data()]}
    return reported(parts, data, claims(results), {} if out is None else pictures(results))


def lines(
    results: ErrorResults, title: str, workload: str | None, categories: Sequence[str]
) -> str:
    """Table of a figure: a line for each combination and kind of errors; "" if none was run."""
    kinds = [
        kind for name in categories for kind in results.series if kind.removesuffix(WIDE) == name
    ]
    xs = sorted({x for kind in kinds for x in results.xs(kind)})
    rows = [
        [*cell, kind, *(plus_minus(mean_interval(v)) if v else "" for v in values)]
        for kind in kinds
        for cell in results.cells
        if workload in (None, cell.workload)
        for values in [[results.values(cell, kind, x) for x in xs]]
    ]
    headings = ["WORKLOAD", "POLICY", "CATEGORY", *(f"{x:g}" for x in xs)]
    return titled(title, headings, rows, 3)


def pictures(results: ErrorResults) -> dict[str, bytes]:
    """Draw the figures for which there are runs, as PNG and SVG."""
    from scheduler.pictures import encode_all  # late: loads matplotlib

    drawn = {number: _figure(results, number, *shown) for number, shown in FIGURES.items()}
    return encode_all({f"figure{n}": figure for n, figure in drawn.items() if figure is not None})


def _figure(
    results: ErrorResults, number: str, workload: str | None, categories: Sequence[str]
) -> Figure | None:
    """Draw a panel for each policy; None if nothing was run.

    Parameters
    ----------
    workload : None: all, a line for each.
    categories : a line for each.
    """
    from matplotlib.ticker import FuncFormatter, NullFormatter

    from scheduler import pictures as drawing

    lines = {  # name of a line -> workload and category
        (of if workload is None else category): (of, category)
        for category in categories
        for of in results.workloads
        if workload in (None, of) and results.of(category) is not None
    }
    policies = [p for p in POLICIES if any(cell.policy == p for cell in results.cells)]
    if not lines:
        return None
    title = f"P95 of the bounded slowdown, {workload or 'all jobs with errors'} (figure {number})"
    figure = drawing.new_figure(4.2, title)
    panels = figure.subplots(1, len(policies), sharey=True, squeeze=False)[0]
    for axes, policy in zip(panels, policies, strict=True):
        for colour, (name, (of, category)) in zip(COLOURS, lines.items(), strict=False):
            _line(axes, results, Cell(of, policy), category, name, colour)
        axes.set_title(policy, fontsize=11, color=drawing.INK)
        qualitative = categories[0] in QUALITATIVE
        axes.set_xlabel("converted jobs, %" if qualitative else "error, %")
        if not qualitative:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(_number))
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(_number))
        low, high = axes.get_ylim()
        axes.yaxis.set_minor_formatter(
            FuncFormatter(_number) if high < 20 * low else NullFormatter()
        )
        drawing.reduce_frame(axes)
    panels[0].set_ylabel("bounded slowdown, P95")
    panels[0].legend(loc="best", frameon=False, fontsize=9)
    return figure


def _line(
    axes: Axes, results: ErrorResults, cell: Cell, category: str, name: str, colour: str
) -> None:
    """Draw the means over the seeds, and the range of the seeds."""
    series = results.of(category)
    if series is None:
        return
    points = [
        (x, values) for x in results.xs(series) if (values := results.values(cell, series, x))
    ]
    xs = [x for x, _ in points]
    axes.plot(
        xs, [sum(v) / len(v) for _, v in points], color=colour, marker="o", markersize=4, label=name
    )
    axes.fill_between(
        xs,
        [min(v) for _, v in points],
        [max(v) for _, v in points],
        color=colour,
        alpha=0.2,
        linewidth=0,
    )


def _number(value: float, _: object) -> str:
    return f"{value:g}"
