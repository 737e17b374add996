"""Pictures of the study of prediction errors: figures 5.1 to 5.9 of GUIM with our numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from scheduler import pictures as drawing
from simulator.predictions.fake import QUALITATIVE
from simulator.studies.fmodels.results import Cell, ErrorResults
from simulator.studies.fmodels.runs import POLICIES

COLOURS = ("#1f6fb2", "#d98c2b", "#3f8f5b", "#8d6a9f")


def pictures(
    results: ErrorResults, figures: Mapping[str, tuple[str | None, Sequence[str]]]
) -> dict[str, bytes]:
    """Draw the figures for which there are runs, as PNG and SVG.

    Parameters
    ----------
    figures : number -> workload (None: all, a line for each) and categories (a line for each).
    """
    drawn: dict[str, bytes] = {}
    for number, (workload, categories) in figures.items():
        figure = _figure(results, number, workload, categories)
        if figure is not None:
            for form in drawing.FORMATS:
                drawn[f"figure{number}.{form}"] = drawing.encode(figure, form)
    return drawn


def _figure(
    results: ErrorResults, number: str, workload: str | None, categories: Sequence[str]
) -> Figure | None:
    """Draw a panel for each policy; None if nothing was run."""
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
    panels[0].legend(frameon=False, fontsize=9)
    return figure


def _line(
    axes: Axes, results: ErrorResults, cell: Cell, category: str, name: str, colour: str
) -> None:
    """Draw the means over the seeds, and the range of the seeds."""
    series = results.of(category)
    if series is None:
        return
    points = [(x, found) for x in results.xs(series) if (found := results.values(cell, series, x))]
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
