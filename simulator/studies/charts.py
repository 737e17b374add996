"""Pictures of studies: a grid of panels, and panels of grouped bars.

A panel is a function that draws into axes. `bars` with its arguments is one
(`functools.partial(bars, labels=..., series=...)`); a study may have panels of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any, TypeAlias

from scheduler.pictures import INK, new_figure, reduce_frame
from simulator.results.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panel: TypeAlias = "Callable[[Axes], Any]"
#: Colours of series that have none of their own.
PALETTE = ("#8fb1b3", "#4a6fa5", "#2f3e55")


def chart(
    title: str,
    height: float,
    rows: Sequence[Sequence[Panel]],
    *,
    sharex: bool = False,
    sharey: bool | str = False,
    legend: Any = None,
) -> Figure:
    """Draw rows of panels.

    Parameters
    ----------
    height : inches.
    legend : below all panels: entries, or True for those of the first panel.
    """
    figure = new_figure(height, title)
    columns = max(map(len, rows))
    shared: dict[str, Any] = {"sharex": sharex, "sharey": sharey}
    grid = figure.subplots(len(rows), columns, squeeze=False, **shared)
    for line, panels in zip(grid, rows, strict=True):
        for axes in line[len(panels) :]:
            axes.set_visible(False)
        for axes, panel in zip(line, panels, strict=False):
            panel(axes)
            reduce_frame(axes)
    if legend:
        handles = grid[0, 0].get_legend_handles_labels()[0] if legend is True else legend
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=min(5, len(handles)),
            frameon=False,
        )
    return figure


def bars(
    axes: Axes,
    labels: Sequence[str],
    series: Mapping[str, Sequence[Interval]],
    paper: Mapping[str, Sequence[float | None]] | None = None,
    colours: Mapping[str, Any] | None = None,
    *,
    title: str = "",
    unit: str = "",
    limits: tuple[float, float] | None = None,
    legend: bool = False,
    numbers: str = "",
    bottom: float = 0,
    label_size: float = 10,
) -> None:
    """Draw groups of bars with their intervals, and the paper's values as diamonds.

    Parameters
    ----------
    labels, label_size : of the groups, and the size of their letters.
    series, paper : name of a series -> a value for each group.
    colours : of each series, or of each bar of a series; others have those of `PALETTE`.
    unit, limits : label and range of the axis of values.
    legend : below the axes, without the name of a single series.
    numbers : format of numbers above the bars; "": none.
    bottom : value at which the bars begin.
    """
    width, colours = 0.8 / max(1, len(series)), colours or {}
    for i, (name, values) in enumerate(series.items()):
        at = [group + (i - (len(series) - 1) / 2) * width for group in range(len(labels))]
        means = [value.mean for value in values]
        colour = colours.get(name, PALETTE[i % len(PALETTE)])
        heights = [mean - bottom for mean in means]
        drawn = axes.bar(at, heights, 0.92 * width, bottom=bottom, color=colour, label=name)
        if numbers:
            texts = ["" if isnan(mean) else f"{mean:{numbers}}" for mean in means]
            axes.bar_label(drawn, texts, padding=2, fontsize=9)
        lows = [value.mean - value.low for value in values]
        highs = [value.high - value.mean for value in values]
        if any(lows):
            axes.errorbar(at, means, [lows, highs], fmt="none", ecolor=INK, lw=1.1)
        marks = [(x, y) for x, y in zip(at, (paper or {}).get(name, ()), strict=False)]
        marks = [(x, y) for x, y in marks if y is not None]
        if marks:
            label = "paper" if name == next(iter(paper or {})) else None
            xs, ys = zip(*marks, strict=True)
            axes.scatter(xs, ys, marker="D", s=34, fc="white", ec=INK, zorder=3, label=label)
    axes.set_xticks(range(len(labels)), labels, fontsize=label_size)
    axes.axhline(bottom, color=INK, lw=0.8)
    axes.set_title(title, fontsize=10, color=INK)
    axes.set_ylabel(unit)
    if limits is not None:
        axes.set_ylim(*limits)
    if legend:
        _legend_below(axes, [*(series if len(series) > 1 else ()), "paper"])


def _legend_below(axes: Axes, names: Sequence[str]) -> None:
    """Draw a legend of these names below the axes, if they have any of them."""
    entries = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    handles = [entries[name] for name in entries if name in names]
    if handles:
        axes.legend(
            handles=handles,
            frameon=False,
            fontsize=9,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.07),
            ncols=len(handles),
        )


def log_ticks(axes: Axes, *names: str) -> None:
    """Make axes ("x", "y") logarithmic with plain numbers, below a decade at minor ticks too.

    Call it when everything is drawn.
    """
    from matplotlib.ticker import FuncFormatter, NullFormatter  # late: matplotlib is slow to load

    for name in names:
        axis = axes.xaxis if name == "x" else axes.yaxis
        (axes.set_xscale if name == "x" else axes.set_yscale)("log")
        low, high = axis.get_view_interval()
        plain = FuncFormatter(lambda value, _: f"{value:g}")
        axis.set_major_formatter(plain)
        axis.set_minor_formatter(plain if high < 20 * low else NullFormatter())
