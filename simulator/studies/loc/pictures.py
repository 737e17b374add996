"""Pictures of the LOC study: figures 2 to 5 with our numbers."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from scheduler import pictures as drawing
from simulator.studies.loc.curves import NAMES, TOTAL, WAIT, Curve, Curves

ANYWHERE, CONTIGUOUS = "#8a8f96", "#1f6fb2"
BARS = {"fcfs": "#d98c2b", "easy": "#1f6fb2", "easy-place": "#7fb6d9"}


def pictures(curves: Curves) -> dict[str, bytes]:
    """Draw the figures for which there are runs, as PNG and SVG."""
    figures = {"figure2": _costs(curves)}
    first = next(iter(curves), ("", ""))[0]
    own = {policy: curve for (label, policy), curve in curves.items() if label == first}
    others = [(key, c) for key, c in curves.items() if key[0] != first and len(c.points) > 1]
    titled = [(f"{first}, {NAMES.get(p, p)}", curve) for p, curve in own.items()]
    if any(len(curve.points) > 1 for curve in own.values()):
        title = f"{first}: mean total time"
        figures["figure3"] = _lines(titled, TOTAL, f"{title}, contiguous or not")
        title = f"{first}: mean waiting time"
        figures["figure4"] = _lines(titled, WAIT, f"{title}, contiguous or not")
    if others:
        titled = [(f"{label}, {NAMES.get(p, p)}", curve) for (label, p), curve in others]
        title = "Mean total time, contiguous or not"
        figures["figure5"] = _lines(titled, TOTAL, title, logarithmic=True)
    return drawing.encode_all(figures)


def _costs(curves: Curves) -> Figure:
    """Draw figure 2: waiting times at speed-up 0, relative to the non-contiguous selection."""
    figure = drawing.new_figure(4.2, "Waiting time with contiguous allocations, no speed-up")
    axes = figure.subplots()
    labels = list(dict.fromkeys(label for label, _ in curves))
    policies = [p for p in NAMES if any(policy == p for _, policy in curves)]
    width = 0.8 / max(1, len(policies))
    for i, policy in enumerate(policies):
        costs = [
            (labels.index(label) + (i - (len(policies) - 1) / 2) * width, curve.cost())
            for (label, of), curve in curves.items()
            if of == policy
        ]
        bars = [(x, cost) for x, cost in costs if cost is not None]
        drawn = axes.bar(
            [x for x, _ in bars],
            [cost - 1 for _, cost in bars],
            width * 0.92,
            bottom=1,
            color=BARS[policy],
            label=NAMES[policy],
        )
        axes.bar_label(drawn, [f"{cost:.3g}" for _, cost in bars], padding=2, fontsize=9)
    axes.set_yscale("log")
    axes.margins(y=0.12)
    axes.axhline(1, color=drawing.INK, linewidth=0.8)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_ylabel("wait relative to non-contiguous")
    axes.yaxis.set_major_formatter(FuncFormatter(_decimal))
    if policies:
        axes.legend(loc="best", frameon=False)
    drawing.reduce_frame(axes)
    return figure


def _lines(
    titled: Sequence[tuple[str, Curve]], column: str, title: str, *, logarithmic: bool = False
) -> Figure:
    """Draw figures 3 to 5: a time over the speed-up, one panel per trace and policy."""
    figure = drawing.new_figure(4.6, title)
    panels = figure.subplots(1, len(titled), squeeze=False)[0]
    for axes, (name, curve) in zip(panels, titled, strict=True):
        _panel(axes, curve, column)
        axes.set_title(name, fontsize=11, color=drawing.INK)
        if logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(FuncFormatter(_decimal))
            low, high = axes.get_ylim()
            if high < 20 * low:  # less than about a decade: label the minor ticks too
                axes.yaxis.set_minor_formatter(FuncFormatter(_decimal))
            else:
                axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(bottom=0)
    panels[0].set_ylabel("minutes")
    panels[0].legend(loc="best", frameon=False)
    return figure


def _panel(axes: Axes, curve: Curve, column: str) -> None:
    speedups = list(curve.points)
    axes.plot(
        speedups,
        [curve.points[s][column] for s in speedups],
        color=CONTIGUOUS,
        marker="o",
        markersize=4,
        label="contiguous",
    )
    axes.axhline(curve.flat[column], color=ANYWHERE, linewidth=2, label="not contiguous")
    threshold = curve.threshold()
    if column == TOTAL and threshold is not None and threshold > 0:
        axes.axvline(threshold, color=drawing.INK, linewidth=0.8, linestyle=":")
        axes.annotate(
            f"pays from {threshold:.2f}",
            (threshold, 1),
            xycoords=("data", "axes fraction"),
            xytext=(4, -12),
            textcoords="offset points",
            fontsize=9,
        )
    axes.set_xlabel("speed-up of contiguous jobs")
    drawing.reduce_frame(axes)


def _decimal(value: float, _: object) -> str:
    return f"{value:g}"
