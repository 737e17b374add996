"""Tables 7.1 to 7.8 and figures 7.8 to 7.12 of GUIM with our numbers, and the claims of 7.6."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from scheduler import pictures as drawing
from simulator.studies.results import StudyResults, beside, plain, reported, titled
from simulator.studies.rua.claims import TABLES, judge, printed
from simulator.studies.sharing.report import centre
from simulator.study.study import Report, Row


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables with the thesis' numbers in brackets, the claims, and the figures."""
    results = StudyResults(rows, lambda p: (p["name"], p["mix"], p["strategy"]))
    tables = [_table(results, metric) for metric in TABLES]
    return reported(tables, {"tables": _data(results)}, judge(results), pictures(results))


def _table(results: StudyResults, metric: str) -> str:
    columns = list(dict.fromkeys(strategy for _, _, strategy in results))
    form = ".0f" if metric in ("wait_p95_s", "wait_mean_s", "killed", "cpus_p95") else ".1f"
    lines = []
    for trace in results.parts():
        for mix in results.parts(trace):
            keys = [(trace, mix, strategy) for strategy in columns]
            cells = (
                beside(results.interval(key, metric), printed(metric, key), form) for key in keys
            )
            lines.append([trace, mix, *cells])
    title = f"Table {TABLES[metric]['number']}: {TABLES[metric]['title']}; the thesis' in brackets"
    return titled(title, ["TRACE", "MIX", *columns], lines, 2)


def _data(results: StudyResults) -> list[dict[str, Any]]:
    """Means with their intervals, and the thesis' numbers, for JSON."""
    return [
        {"trace": key[0], "mix": key[1], "strategy": key[2]}
        | {
            metric: plain(results.interval(key, metric)) | {"paper": printed(metric, key)}
            for metric in TABLES
        }
        for key in results
    ]


COLOURS = {"low": "#7fb6d9", "med": "#d98c2b", "high": "#b0413e"}
BARS = {"FF": "#8a8f96", "LC": "#d98c2b", "RUA": "#1f6fb2"}
#: Figure for each centre, and what its horizontal axis shows.
SCATTERS = {
    ("CTC", "penalised_p95_pct"): "figure7-8",
    ("SDSC", "penalised_p95_pct"): "figure7-9",
    ("CTC", "killed"): "figure7-10",
    ("SDSC", "killed"): "figure7-11",
}
RUA_METRICS = ("bsld_p95", "wait_p95_s", "penalised_p95_pct", "killed")


def pictures(results: StudyResults) -> dict[str, bytes]:
    """Draw the figures for which there are runs, as PNG and SVG."""
    figures: dict[str, Figure] = {}
    for (of, metric), name in SCATTERS.items():
        traces = [trace for trace in results.parts() if centre(trace) == of]
        if traces:
            figures[name] = _scatter(results, traces, metric)
    if any(strategy == "RUA" for _, _, strategy in results):
        figures["figure7-12"] = _bars(results)
    return drawing.encode_all(figures)


def _scatter(results: StudyResults, traces: Sequence[str], metric: str) -> Figure:
    """Draw figures 7.8 to 7.11: slowdown against a further metric, one panel for each trace."""
    title = TABLES[metric]["title"]
    figure = drawing.new_figure(4.6, f"Bounded slowdown and {title}")
    panels = figure.subplots(1, len(traces), squeeze=False)[0]
    for axes, trace in zip(panels, traces, strict=True):
        for mix in results.parts(trace):
            strategies = results.parts(trace, mix)
            keys = [(trace, mix, strategy) for strategy in strategies]
            x = [results.interval(key, metric).mean for key in keys]
            y = [results.interval(key, "bsld_p95").mean for key in keys]
            axes.plot(x, y, "o", color=COLOURS[mix], label=mix)
            for strategy, at in zip(strategies, zip(x, y, strict=True), strict=True):
                offset = (4, 3)
                axes.annotate(strategy, at, xytext=offset, textcoords="offset points", fontsize=7)
        axes.set_title(trace, fontsize=10)
        axes.set_xlabel(title)
        axes.set_ylabel("bounded slowdown, P95")
        axes.legend(loc="best", frameon=False)
        drawing.reduce_frame(axes)
    return figure


def _bars(results: StudyResults) -> Figure:
    """Draw figure 7.12: RUA-Backfilling beside first fit and LessConsume."""
    figure = drawing.new_figure(7.5, "RUA-Backfilling, shortest job first with FF and with LC")
    groups = [(trace, mix) for trace in results.parts() for mix in results.parts(trace)]
    width = 0.8 / len(BARS)
    for axes, metric in zip(figure.subplots(2, 2).flat, RUA_METRICS, strict=True):
        for i, (strategy, colour) in enumerate(BARS.items()):
            heights = [results.interval((*group, strategy), metric).mean for group in groups]
            x = [at + (i - 1) * width for at in range(len(groups))]
            axes.bar(x, heights, width * 0.92, color=colour, label=strategy)
        axes.set_xticks(range(len(groups)), [f"{t}\n{mix}" for t, mix in groups], fontsize=7)
        axes.set_title(TABLES[metric]["title"], fontsize=10)
        drawing.reduce_frame(axes)
    figure.axes[0].legend(loc="best", frameon=False)
    return figure
