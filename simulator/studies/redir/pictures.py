"""Pictures of the REDIR study, after the paper's figures: a row per trace, a column per alpha."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2

from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from scheduler.pictures import INK, encode_all, new_figure, reduce_frame
from simulator.results.statistics import mean
from simulator.studies.redir.ratios import MAX, MEAN, TraceRatios

MEAN_MARK = "#c0392b"
COLOURS = {MEAN: "#8fb8de", MAX: "#6b6f76"}
ROW = 3.2  # inches
MARKS = "(weeks; line: median, square: mean)"

#: Draws the ratios of one alpha.
Draw = Callable[[Axes, TraceRatios, float], None]


def pictures(traces: Sequence[TraceRatios]) -> dict[str, bytes]:
    """Draw both figures as PNG and SVG, by file name."""
    figures: dict[str, tuple[str, Draw]] = {
        "mean": (f"Mean bounded slowdown with redirection over EASY's {MARKS}", _violins),
        "both": (f"Mean and largest bounded slowdown with redirection over EASY's {MARKS}", _boxes),
    }
    drawn = {}
    for name, (title, draw) in figures.items():
        columns = max(len(trace.alphas) for trace in traces)
        figure = new_figure(0.8 + ROW * len(traces), title)
        grid = figure.subplots(len(traces), columns, squeeze=False, sharey="row")
        for line, trace in zip(grid, traces, strict=True):
            for axes in line[len(trace.alphas) :]:
                axes.set_visible(False)
            for axes, alpha in zip(line, trace.alphas, strict=False):
                draw(axes, trace, alpha)
                _frame(axes, trace, alpha)
            line[0].set_ylabel(f"{trace.name}\nratio to EASY")
        if name == "both":
            handles = [
                Patch(color=COLOURS[MEAN], label="mean over jobs"),
                Patch(color=COLOURS[MAX], label="largest"),
            ]
            figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
        drawn[f"redir-{name}"] = figure
    return encode_all(drawn)


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
    axes.axhline(0.0, color=INK, linewidth=0.8, linestyle="--", zorder=0)
    axes.set_title(rf"$\alpha$ = {alpha:g}", fontsize=10)
    axes.set_xticks(range(1, len(trace.thetas) + 1), [str(theta) for theta in trace.thetas])
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlabel(r"$\theta$")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda power, _: f"{2.0**power:g}"))
    reduce_frame(axes)
