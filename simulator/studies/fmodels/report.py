"""Figures 5.1 to 5.9 of GUIM as tables and pictures, and verdicts on its sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scheduler.text.tables import Table, render
from simulator.predictions.fake import QUALITATIVE
from simulator.results.statistics import mean_interval
from simulator.studies.claims import plus_minus
from simulator.studies.fmodels.claims import claims
from simulator.studies.fmodels.results import Cell, ErrorKind, ErrorResults
from simulator.studies.fmodels.runs import POLICIES
from simulator.studies.results import reported
from simulator.study.study import Report, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    tables = [
        (f"Figure {number}, {workload or 'all workloads'}", lines(results, workload, categories))
        for number, (workload, categories) in FIGURES.items()
    ]
    others = tuple(dict.fromkeys(s.category for s in results.series if s.category not in shown))
    tables.append(
        ("Other categories, which the thesis does not show", lines(results, None, others))
    )
    unknown = [w for w in results.workloads if all(w != of for of, _ in FIGURES.values())]
    tables += [(f"Workload {w}", lines(results, w, tuple(sorted(shown)))) for w in unknown]
    title = "95th percentile of the bounded slowdown, by error or share of converted jobs (%)"
    parts = [title, *(f"{title}\n{table}" for title, table in tables if table)]
    data = {"seeds": results.seeds, "points": [*results.data()]}
    return reported(parts, data, claims(results), {} if out is None else pictures(results))


def lines(results: ErrorResults, workload: str | None, categories: Sequence[str]) -> str:
    """Table of a figure: a line for each combination and kind of errors; "" if none was run."""
    kinds = [series for name in categories for series in results.series if series.category == name]
    if not kinds:
        return ""
    xs = sorted({x for series in kinds for x in results.xs(series)})
    rows = [
        [*cell, _kind(series), *(_cell(results, cell, series, x) for x in xs)]
        for series in kinds
        for cell in results.cells
        if workload in (None, cell.workload)
    ]
    headings = ["WORKLOAD", "POLICY", "CATEGORY", *(f"{x:g}" for x in xs)]
    return render(Table(headings, rows, left=frozenset(headings[:3]))) if rows else ""


def _kind(series: ErrorKind) -> str:
    wide = series.deviations == "wide"
    return f"{series.category}, wide" if wide else series.category


def _cell(results: ErrorResults, cell: Cell, series: ErrorKind, x: float) -> str:
    values = results.values(cell, series, x)
    return plus_minus(mean_interval(values)) if values else ""


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
