"""Studies of GUIM chapters 6 and 7: nodes that jobs share.

F. Guim, "Job-guided scheduling strategies for multi-site HPC infrastructures", 6.3 and 7.5: a run
is a trace with drawn demands: the first 10 000 jobs, nodes of four processors and 6000 MB/s,
shortest job backfilled first. The reports have the tables beside ours, and claims, each that a
number is above 0: a difference, or how far a ratio exceeds the one that the text gives. Ours is
taken seed by seed.

`report` is that of chapter 6: tables 6.1 to 6.4, sentences of 6.4. `report_strategies` is that of
chapter 7, selections for shared nodes and RUA-Backfilling: tables 7.1 to 7.8, figures 7.8 to 7.12,
sentences of 7.6 against the thesis' own tables and our runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from math import inf, log
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

import simulator as sim
from scheduler.pictures import encode_all
from simulator.results.statistics import Interval, mean, mean_interval
from simulator.studies.charts import bars, chart
from simulator.studies.claims import (
    OPEN,
    Claim,
    Key,
    StudyResults,
    beside,
    by_sign,
    crossed,
    declared,
    exactly,
    keyed,
    paper,
    plain,
    reported,
)
from simulator.study.study import Report, Row, trace_path
from simulator.traces import swf
from simulator.traces.normalise import NEEDED
from simulator.workload_models.drawn import CAPACITY, MIXES, NAME, with_demands

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats: TypeAlias = NDArray[np.float64]
HOUR_S = 3600.0
PER_NODE = 4


#: Strategy -> scenario, or changes of EASY with shortest job backfilled first. FF and FC are those
#: of chapter 6; tables 7.1 to 7.7 repeat the numbers of FF. "LCT=1" is LessConsumeThreshold with a
#: factor of 1.
STRATEGIES: Final[dict[str, dict[str, Any]]] = {
    "FF": {"selection": "equi-distribute"},
    "FC": {"selection": "contiguous"},
    "LC": {"selection": "less-consume"},
    "LCT=1": {"selection": "less-consume-threshold", "selection.factor": 1.0},
    "LCT=1.15": {"selection": "less-consume-threshold", "selection.factor": 1.15},
    "LCT=1.25": {"selection": "less-consume-threshold", "selection.factor": 1.25},
    "LCT=1.5": {"selection": "less-consume-threshold", "selection.factor": 1.5},
    "RUA": {"name": "rua"},
}


def run(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Simulate one trace with one mix of demands under one strategy.

    Parameters
    ----------
    parameters : seed, trace, processors, jobs, mix ("none" for run times as in the trace, "high",
        "med" or "low"), strategy (of `STRATEGIES`, or a selection); windows and penalty as of
        `Sharing`; tolerance_s, by which a job may exceed its request before it is killed, s.

    Returns
    -------
    bsld_p95, bsld_mean, wait_p95_s, wait_mean_s, penalised_p95_pct, penalised_mean_pct of the jobs
    that were not killed; killed; cpus_p95, the 95th percentile over the hours of the mean number of
    processors in use.
    """
    ran = simulated(parameters)
    return numbers(ran) | {"cpus_p95": float(np.percentile(processors_by_hour(ran), 95))}


def simulated(parameters: Mapping[str, Any]) -> sim.Simulation:
    """Simulate the run of some parameters; see `run`."""
    mix, strategy = parameters["mix"], parameters["strategy"]
    path = str(trace_path(parameters, parameters["trace"]))
    trace = _trace(path, float(parameters["tolerance_s"]))
    machine: dict[str, Any] = {
        "nodes": int(parameters["processors"]) // PER_NODE,
        "processors_per_node": PER_NODE,
    }
    sharing = None
    if mix != "none":
        trace = with_demands(trace, MIXES[mix], int(parameters["seed"]))
        machine["shared_per_node"] = {NAME: CAPACITY}
        sharing = {"windows": parameters["windows"], "penalty": parameters["penalty"]}
    scenario = STRATEGIES.get(strategy, {"selection": strategy})
    if "name" not in scenario:
        scenario = {"name": "easy", "backfill_order": "sjf", **scenario}
    return sim.simulate(
        sim.Jobs(trace).first(int(parameters["jobs"])),
        machine=machine,
        scenario=scenario,
        sharing=sharing,
    )


def numbers(ran: sim.Simulation) -> dict[str, float]:
    """Metrics of the jobs that ran to their ends, and the number of those that were killed.

    Without sharing a job is killed if its run time is cut at the limit.
    """
    jobs = ran.jobs
    over = jobs["state"] == "completed"
    share = jobs.get("penalised_pct", np.zeros(jobs.rows))
    metrics = {"killed": float((jobs["state"] == "killed").sum())}
    for name, unit, values in (
        ("bsld", "", jobs["bounded_slowdown"]),
        ("wait", "_s", jobs["wait_s"]),
        ("penalised", "_pct", share),
    ):
        metrics[f"{name}_p95{unit}"] = float(np.percentile(values[over], 95))
        metrics[f"{name}_mean{unit}"] = float(values[over].mean())
    return metrics


@lru_cache(maxsize=1)
def _trace(path: str, tolerance_s: float) -> swf.Trace:
    """Trace whose jobs may exceed their requests by so much: the requests include it."""
    trace = swf.read(path, fields=NEEDED)
    requested = trace.columns["requested_time"]
    limit = np.where(requested > 0, requested + tolerance_s, requested)
    return msgspec.structs.replace(trace, columns=trace.columns | {"requested_time": limit})


#: Key of a run: trace, mix and strategy.
KEY: Final = itemgetter("name", "mix", "strategy")
PAPER: Final = paper("sharing")
#: (centre, mix, selection) -> the paper's numbers.
P95: Final = keyed(PAPER.p95)
MEAN: Final = keyed(PAPER.mean)
#: Title of a table, the paper's numbers, and our metrics in their order.
TABLES: Final = (
    ("Tables 6.1 and 6.3, 95th percentiles", P95,
     ("bsld_p95", "wait_p95_s", "penalised_mean_pct", "killed")),
    ("Tables 6.2 and 6.4, means", MEAN,
     ("bsld_mean", "wait_mean_s", "penalised_mean_pct", "killed")),
)  # fmt: skip


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables with the paper's numbers in brackets, the trace that fits them, and the claims."""
    results = StudyResults(rows, KEY)
    fits = {
        of: {trace: _distance(results, trace) for trace in results.parts() if centre(trace) == of}
        for of in ("CTC", "SDSC")
    }
    lines = [
        f"{of}: " + ", ".join(f"{trace} {distance:.2f}" for trace, distance in each.items())
        for of, each in fits.items()
    ]
    title = "Mean |ln(ours / paper)| over the cells of both tables, smaller is nearer:"
    parts = [*(_table(results, *table) for table in TABLES), "\n".join([title, *lines])]
    metrics = dict.fromkeys(metric for _, _, names in TABLES for metric in names)
    data = results.data(("trace", "mix", "selection"), metrics)
    return reported(parts, {"tables": data, "distances": fits}, judge(results))


def centre(trace: str) -> str:
    """Centre of the paper's tables that a trace stands for."""
    return "CTC" if trace.startswith("CTC") else "SDSC"


def _distance(results: StudyResults, trace: str) -> float:
    """Mean absolute logarithm of our slowdowns and waits over the paper's; nan without runs."""
    distances = []
    for _, table, metrics in TABLES:
        for (of, *key), numbers in table.items():
            for metric, value in zip(metrics[:2], numbers[:2], strict=True):
                ours = mean(results.values((trace, *key), metric))
                if of == centre(trace) and ours > 0:
                    distances.append(abs(log(ours / value)))
    return mean(distances)


def _table(results: StudyResults, title: str, table: Any, metrics: Sequence[str]) -> str:
    def cell(key: Key, column: int) -> str:
        theirs = table.get((centre(key[0]), *key[1:]))
        return beside(results.interval(key, metrics[column]), theirs and theirs[column])

    columns = {"BSLD": 0, "WAIT, S": 1, "% PRT": 2, "KILLED": 3}
    title = f"{title}; the paper's in brackets"
    return crossed(title, ["TRACE", "MIX", "SELECTION"], results, columns, cell)


def judge(results: StudyResults) -> list[Claim]:
    """Judge the sentences of GUIM 6.4, for each trace; differences are taken seed by seed."""
    claims: list[Claim] = []
    for trace in sorted(results.parts(), key=centre):
        groups = [
            group for group in PAPER.claims if group.get("only", centre(trace)) == centre(trace)
        ]
        measures = {"larger": partial(_larger, results, trace)}
        published = {"larger": partial(_larger_in_tables, centre(trace))}
        claims += declared(groups, measures, published, trace=trace)
    return claims


def _larger(results: StudyResults, trace: str, metric: str, more: str, less: str) -> Interval:
    return results.difference(metric, (trace, *more.split()), (trace, *less.split()))


def _larger_in_tables(of: str, metric: str, more: str, less: str) -> float:
    table, index = next((t, m.index(metric)) for _, t, m in TABLES if metric in m)
    first, last = (table[(of, *each.split())][index] for each in (more, less))
    difference: float = first - last
    return difference


def processors_by_hour(simulated: sim.Simulation) -> Floats:
    """Mean number of processors in use in each hour from the first start on, (hours,) float64.

    The last hour, which is not complete, is left out unless it is the only one.
    """
    used = simulated.schedule.in_use()
    hours = max(1, int((used.times[-1] - used.times[0]) // HOUR_S))
    return used.between(used.times[0] + HOUR_S * np.arange(hours + 1))[0]


CHAPTER_7: Final = paper("rua")
#: Our metric -> `number` of the thesis' table, its `title` and its `rows`.
STRATEGY_TABLES: Final = CHAPTER_7.tables
#: (metric, centre, mix) -> numbers that the text gives of figure 7.12, by strategy.
TEXT: Final = keyed(CHAPTER_7.text)


def printed(metric: str, key: Key) -> float | None:
    """Number of the thesis' table for a trace, mix and strategy; None if it has none."""
    trace, mix, strategy = key
    row = STRATEGY_TABLES[metric]["rows"].get(f"{centre(trace)} {mix}", ())
    return dict(zip(CHAPTER_7.columns, row, strict=False)).get(strategy)


def _judge_strategies(results: StudyResults) -> list[Claim]:
    """Judge the sentences of 7.6 for each trace and mix that they speak of."""
    return [
        _statement_claim(results, statement, metric, trace, mix)
        for statement in CHAPTER_7.statements
        for metric in statement["metrics"]
        for trace in results.parts()
        for mix in results.parts(trace)
        if f"{centre(trace)} {mix}" in statement.get("only", [f"{centre(trace)} {mix}"])
    ]


def _statement_claim(
    results: StudyResults, statement: Mapping[str, Any], metric: str, trace: str, mix: str
) -> Claim:
    """Claim of a sentence; its remark is the verdict on the thesis' own numbers."""
    words = statement["text"].format(metric=STRATEGY_TABLES[metric]["title"])
    with_rua = "RUA" in words  # figure 7.12 is lost; the text of 7.6.2 has some of its numbers
    text = TEXT.get((metric, centre(trace), mix), {}) if with_rua else {}

    def amount(more: float, less: float) -> float:
        """Number that is above 0 if the sentence is right."""
        if "within" in statement:
            within: float = statement["within"]
            return within - abs(100 * (more / less - 1)) if less else -inf
        # sums of one value differ by rounding
        ratio: float = statement.get("ratio", 1.0)
        return round(more - ratio * less, 6)

    def amounts(of: Callable[[str], list[float]]) -> list[float]:
        more, less = map(of, statement["pair"])
        return [amount(*both) for both in zip(more, less, strict=False)]

    def thesis(strategy: str) -> list[float]:
        number = text.get(strategy) if text else printed(metric, (trace, mix, strategy))
        return [] if number is None else [number]

    ours = mean_interval(amounts(lambda strategy: results.values((trace, mix, strategy), metric)))
    theirs = next(iter(amounts(thesis)), None)
    return Claim(
        words,
        ours,
        None if theirs is None else round(theirs, 3),
        by_sign(ours),
        "GUIM figure 7.12" if with_rua else f"GUIM table {STRATEGY_TABLES[metric]['number']}",
        f"{trace}, {mix}",
        f"tables: {by_sign(exactly(theirs)) if theirs else OPEN}",
    )


def report_strategies(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables with the thesis' numbers in brackets, the claims, and the figures."""
    results = StudyResults(rows, KEY)
    tables = [_strategy_table(results, metric) for metric in STRATEGY_TABLES]

    def with_paper(key: Key) -> dict[str, Any]:
        return {
            metric: plain(results.interval(key, metric)) | {"paper": printed(metric, key)}
            for metric in STRATEGY_TABLES
        }

    data = {"tables": results.data(("trace", "mix", "strategy"), (), with_paper)}
    return reported(tables, data, _judge_strategies(results), pictures(results))


def _strategy_table(results: StudyResults, metric: str) -> str:
    form = ".0f" if metric in ("wait_p95_s", "wait_mean_s", "killed", "cpus_p95") else ".1f"

    def cell(group: Key, strategy: str) -> str:
        key = (*group, strategy)
        return beside(results.interval(key, metric), printed(metric, key), form)

    own = STRATEGY_TABLES[metric]
    title = f"Table {own['number']}: {own['title']}; the thesis' in brackets"
    groups = [(trace, mix) for trace in results.parts() for mix in results.parts(trace)]
    strategies = {strategy: strategy for _, _, strategy in results}
    return crossed(title, ["TRACE", "MIX"], groups, strategies, cell)


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
    return encode_all(figures)


def _scatter(results: StudyResults, traces: Sequence[str], metric: str) -> Figure:
    """Draw figures 7.8 to 7.11: slowdown against a further metric, one panel for each trace."""
    title = STRATEGY_TABLES[metric]["title"]

    def panel(axes: Axes, trace: str) -> None:
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

    panels = [[partial(panel, trace=trace) for trace in traces]]
    return chart(f"Bounded slowdown and {title}", 4.6, panels)


def _bars(results: StudyResults) -> Figure:
    """Draw figure 7.12: RUA-Backfilling beside first fit and LessConsume."""
    groups = [(trace, mix) for trace in results.parts() for mix in results.parts(trace)]
    labels = [f"{trace}\n{mix}" for trace, mix in groups]

    def panel(axes: Axes, metric: str) -> None:
        series = {
            strategy: [exactly(results.interval((*g, strategy), metric).mean) for g in groups]
            for strategy in BARS
        }
        title = STRATEGY_TABLES[metric]["title"]
        bars(axes, labels, series, None, BARS, title=title, label_size=7)
        if metric == RUA_METRICS[0]:
            axes.legend(loc="best", frameon=False)

    panels = [partial(panel, metric=metric) for metric in RUA_METRICS]
    title = "RUA-Backfilling, shortest job first with FF and with LC"
    return chart(title, 7.5, [panels[:2], panels[2:]])
