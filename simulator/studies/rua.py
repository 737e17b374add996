"""Study of GUIM chapter 7: selections for shared nodes, and RUA-Backfilling.

F. Guim, "Job-guided scheduling strategies for multi-site HPC infrastructures", 7.5: a run is a
trace with drawn demands under a selection, or RUA. The report has tables 7.1 to 7.8, figures 7.8 to
7.12 and the claims of 7.6, each against the thesis' own tables and against our runs. A claim is
that a number is above 0: a difference of two strategies, or how far a ratio exceeds the one that
the text gives. Ours is taken seed by seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

import simulator as sim
from scheduler import pictures as drawing
from simulator.results.statistics import mean_interval
from simulator.studies.claims import (
    OPEN,
    Claim,
    Key,
    StudyResults,
    beside,
    by_sign,
    exactly,
    keyed,
    paper,
    plain,
    reported,
    titled,
)
from simulator.studies.sharing import centre, numbers, simulated
from simulator.study.study import Report, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats: TypeAlias = NDArray[np.float64]
HOUR_S = 3600.0
#: Strategy -> selection and further fields of the scenario. FF is that of chapter 6, whose numbers
#: tables 7.1 to 7.7 repeat; "LCT=1" is LessConsumeThreshold with a factor of 1.
STRATEGIES: Final[dict[str, dict[str, Any]]] = {
    "FF": {"selection": "equi-distribute"},
    "LC": {"selection": "less-consume"},
    "LCT=1": {"selection": "less-consume-threshold", "selection.factor": 1.0},
    "LCT=1.15": {"selection": "less-consume-threshold", "selection.factor": 1.15},
    "LCT=1.25": {"selection": "less-consume-threshold", "selection.factor": 1.25},
    "LCT=1.5": {"selection": "less-consume-threshold", "selection.factor": 1.5},
    "RUA": {},
}


def run(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Simulate one trace with one mix of demands under one strategy.

    Parameters
    ----------
    parameters : as of `simulator.studies.sharing.run`, with `strategy` (see `STRATEGIES`) in
        place of `selection`.

    Returns
    -------
    What that function returns, and cpus_p95: 95th percentile over the hours of the mean number of
    processors in use.

    Raises
    ------
    KeyError : the strategy is unknown.
    """
    strategy = parameters["strategy"]
    fields = dict(STRATEGIES[strategy])
    if strategy != "RUA":
        fields["backfill_order"] = "sjf"
    ran = simulated(parameters, "rua" if strategy == "RUA" else "easy", fields)
    used = processors_by_hour(ran)
    return {**numbers(ran), "cpus_p95": float(np.percentile(used, 95))}


def processors_by_hour(simulated: sim.Simulation) -> Floats:
    """Mean number of processors in use in each hour from the first start on, (hours,) float64.

    The last hour, which is not complete, is left out unless it is the only one.
    """
    jobs = simulated.jobs
    ran = ~np.isnan(jobs["end_s"])
    started, ended = jobs["start_s"][ran], jobs["end_s"][ran]
    processors = jobs["processors"][ran].astype(float)
    at = np.concatenate([started, ended])
    change = np.concatenate([processors, -processors])
    order = np.argsort(at, kind="stable")
    at, used = at[order], np.cumsum(change[order])
    area = np.concatenate([[0.0], np.cumsum(used[:-1] * np.diff(at))])
    hours = max(1, int((at[-1] - at[0]) // HOUR_S))
    edges = at[0] + HOUR_S * np.arange(hours + 1)
    used_by_hour: Floats = np.diff(np.interp(edges, at, area)) / HOUR_S
    return used_by_hour


PAPER: Final = paper("rua")
#: Our metric -> `number` of the thesis' table, its `title` and its `rows`.
TABLES: Final = PAPER.tables
#: (metric, centre, mix) -> numbers that the text gives of figure 7.12, by strategy.
TEXT: Final = keyed(PAPER.text)


class Statement(msgspec.Struct, frozen=True):
    """A sentence of the text about two strategies.

    Parameters
    ----------
    text : the sentence; ``{metric}`` stands for the title of the metric.
    metrics : for each of them it is a claim.
    more, less : strategies; `more` has the larger number.
    ratio : how many times it is as large, at least; 0: any difference.
    within : the difference is less than this share, in percent; 0: no such limit.
    only : (centre, mix) pairs that the text speaks of; empty: all.
    """

    text: str
    metrics: tuple[str, ...]
    more: str
    less: str
    ratio: float = 0.0
    within: float = 0.0
    only: tuple[tuple[str, str], ...] = ()

    def amount(self, more: float, less: float) -> float:
        """Number that is above 0 if the sentence is right."""
        if self.within:
            return self.within - abs(100 * (more / less - 1)) if less else float("-inf")
        return round(more - (self.ratio or 1.0) * less, 6)  # sums of one value differ by rounding


HIGH: Final = (("CTC", "high"), ("SDSC", "high"))
HIGH_AND_MEDIUM: Final = (*HIGH, ("CTC", "med"), ("SDSC", "med"))
BSLD: Final = ("bsld_p95", "bsld_mean")
WAIT: Final = ("wait_p95_s", "wait_mean_s")
PENALISED: Final = ("penalised_p95_pct", "penalised_mean_pct")
KILLED: Final = ("killed",)
CPUS: Final = ("cpus_p95",)
STATEMENTS: Final = (
    Statement("LC has a smaller {metric} than LCT=1 (7.6.1)", BSLD, "LCT=1", "LC"),
    Statement("LC has a larger {metric} than FF (7.6.1)", BSLD, "LC", "FF"),
    Statement("{metric} falls from LCT=1 to LCT=1.5 (7.6.1)", BSLD, "LCT=1", "LCT=1.5"),
    Statement("LCT=1 has a larger {metric} than LC (7.6.1)", WAIT, "LCT=1", "LC"),
    Statement("LC reduces {metric} against FF (7.6.1)", PENALISED, "FF", "LC"),
    Statement("LCT=1 reduces {metric} against FF (7.6.1)", PENALISED, "FF", "LCT=1"),
    Statement("LCT=1.5 reduces {metric} against FF (7.6.1)", PENALISED, "FF", "LCT=1.5"),
    Statement("{metric} grows from LCT=1 to LCT=1.5 (7.6.1)", PENALISED, "LCT=1.5", "LCT=1"),
    Statement("LC reduces {metric} against FF (7.6.1)", KILLED, "FF", "LC"),
    Statement(
        "LC reduces {metric} by a factor of 4 (7.6.1)", KILLED, "FF", "LC", 4.0,
        only=HIGH_AND_MEDIUM,
    ),
    Statement("LCT=1.15 halves {metric} (7.6.1)", KILLED, "FF", "LCT=1.15", 2.0),
    Statement("LCT=1.5 halves {metric} (7.6.1)", KILLED, "FF", "LCT=1.5", 2.0),
    Statement("{metric}: LC uses more than LCT=1 (7.6.1)", CPUS, "LC", "LCT=1"),
    Statement("{metric}: they grow from LCT=1 to LCT=1.5 (7.6.1)", CPUS, "LCT=1.5", "LCT=1"),
    Statement("RUA has a slightly larger {metric} than FF (7.6.2)", BSLD[:1], "RUA", "FF"),
    Statement(
        "{metric} of RUA and FF differ by less than 5 % (7.6.2)", BSLD[:1], "RUA", "FF", within=5.0
    ),
    Statement("RUA has a smaller {metric} than LC (7.6.2)", BSLD[:1], "LC", "RUA"),
    Statement("RUA has a smaller {metric} than LC (7.6.2)", WAIT[:1], "LC", "RUA"),
    Statement("RUA reduces {metric} against FF (7.6.2)", KILLED, "FF", "RUA"),
    Statement(
        "RUA reduces {metric} by a factor of 5 (7.6.2)", KILLED, "FF", "RUA", 5.0, only=HIGH[1:]
    ),
    Statement(
        "RUA reduces {metric} by a factor of 3 (7.6.2)", KILLED, "FF", "RUA", 3.0, only=HIGH[:1]
    ),
    Statement("RUA reduces {metric} against FF (7.6.2)", PENALISED[:1], "FF", "RUA"),
    Statement(
        "RUA halves {metric} (7.6.2)", PENALISED[:1], "FF", "RUA", 2.0, only=(("SDSC", "med"),)
    ),
    Statement("RUA reduces {metric} against LC (7.6.2)", PENALISED[:1], "LC", "RUA"),
    Statement("RUA reduces {metric} against LC (7.6.2)", KILLED, "LC", "RUA"),
)  # fmt: skip


def printed(metric: str, key: Key) -> float | None:
    """Number of the thesis' table for a trace, mix and strategy; None if it has none."""
    trace, mix, strategy = key
    row = TABLES[metric]["rows"].get(f"{centre(trace)} {mix}", ())
    return dict(zip(PAPER.columns, row, strict=False)).get(strategy)


def judge(results: StudyResults) -> list[Claim]:
    """Judge the sentences of GUIM 7.6 for each trace and mix that they speak of.

    The remark of a claim is the verdict on the thesis' own numbers.
    """
    return [
        _claim(results, statement, metric, trace, mix)
        for statement in STATEMENTS
        for metric in statement.metrics
        for trace in results.parts()
        for mix in results.parts(trace)
        if not statement.only or (centre(trace), mix) in statement.only
    ]


def _claim(results: StudyResults, statement: Statement, metric: str, trace: str, mix: str) -> Claim:
    words = statement.text.format(metric=TABLES[metric]["title"])
    with_rua = "RUA" in words  # figure 7.12 is lost; the text of 7.6.2 has some of its numbers
    text = TEXT.get((metric, centre(trace), mix), {}) if with_rua else {}

    def value(of: Callable[[str], list[float]]) -> list[float]:
        pairs = zip(of(statement.more), of(statement.less), strict=False)
        return [statement.amount(more, less) for more, less in pairs]

    def thesis(strategy: str) -> list[float]:
        number = text.get(strategy) if text else printed(metric, (trace, mix, strategy))
        return [] if number is None else [number]

    ours = mean_interval(value(lambda strategy: results.values((trace, mix, strategy), metric)))
    paper = next(iter(value(thesis)), None)
    return Claim(
        words,
        ours,
        None if paper is None else round(paper, 3),
        by_sign(ours),
        "GUIM figure 7.12" if with_rua else f"GUIM table {TABLES[metric]['number']}",
        f"{trace}, {mix}",
        f"tables: {by_sign(exactly(paper)) if paper else OPEN}",
    )


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
