"""The experiments of PRIO section 4: the gain of resizing on the paper's job mixes.

A run is one job mix under one scenario. A mix is a seed; all scenarios, shares of resizable jobs
and classes of users are compared on the same mixes. The report has tables 1 to 5, figures 2 to 14
and the claims that `papers/prio.yaml` declares. Values are per cent unless they name another unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from math import nan, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

import simulator as sim
from reshape.speedup import Prio
from scheduler.pictures import INK, encode
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from simulator.experiment.tables import Columns
from simulator.results.statistics import CONFIDENCE, Interval, mean, mean_interval
from simulator.studies.charts import Panel, bars, chart
from simulator.studies.claims import (
    Claim,
    StudyResults,
    declared,
    mean_difference,
    paper,
    reported,
    titled,
)
from simulator.study.study import Report, Row, shown
from simulator.workload_models.generate import prio as workload_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER = paper("prio")
SIZES = ("small", "medium", "large")
USERS = ("gold", "platinum")
COMPLETION, EXECUTION, WAIT = "mean_completion_s", "mean_execution_s", "mean_wait_s"
UTILIZATION = "utilization_pct"
#: Percentage of resizable jobs -> its case.
SHARES = {0: "static", 25: "pba-pr 25 %", 50: "pba-pr 50 %", 75: "pba-pr 75 %", 100: "pba-pr"}
PRIORITY, STATIC_PRIORITY = "pba-pr with priority", "static with priority"
#: Rows of table 5 -> the case of each.
TABLE_5 = {
    "static": "static",
    STATIC_PRIORITY: STATIC_PRIORITY,
    "pba-pr": "pba-pr 50 %",
    PRIORITY: PRIORITY,
}


def run(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate one mix under one scenario.

    Parameters
    ----------
    parameters : `seed`, `scenario`; `resizable`, `user_priorities` and `workload` (other fields of
        `PrioWorkload`, with those of `Prio` as `speedup`); `set` (fields of the scenario to change;
        fields that only another scenario has are ignored); `start_s`, `resize_s` (start time of a
        job and of a joining group, seconds; the job computes meanwhile); `pause_s` (time that an
        expansion stops the job, seconds).

    Returns
    -------
    Means over the jobs, seconds; `utilization_pct`; `expansions`, `contractions`, `killed`; and
    under `groups` the means by size and priority class.
    """
    name = parameters["scenario"]
    fields = dict(parameters["workload"])
    fields |= {name: parameters[name] for name in ("resizable", "user_priorities", "start_s")}
    fields["cost"] = {"start_s": parameters["resize_s"], "join_s": parameters["pause_s"]}
    _, mix = workload_of(fields, parameters["seed"])
    own_scenario = {"name": name, **own_changes(name, parameters["set"])}
    ran = sim.simulate(sim.Jobs(mix), scenario=own_scenario)
    specs = [job.spec for job in sorted(mix.jobs, key=lambda job: job.at)]
    ended = np.flatnonzero(~np.isnan(ran.jobs["end_s"])).tolist()
    kinds: dict[tuple[str, str], list[int]] = {}
    for index in ended:
        kinds.setdefault((specs[index].name, specs[index].user), []).append(index)
    return {
        **_means(ran.jobs, ended),
        "utilization_pct": 100 * ran.metrics["utilization"],
        **{name: ran.metrics[name] for name in ("expansions", "contractions", "killed")},
        "groups": {
            f"{size} {user}": _means(ran.jobs, kinds.get((size, user), []))
            for size in SIZES
            for user in USERS
        },
    }


def own_changes(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes without fields that only other scenarios have; fields that none has are kept."""
    of_others = {field for other in PAPER.names for field in _resizing_fields(scenario(other))}
    left_out = of_others - _resizing_fields(scenario(name))
    return {field: changes[field] for field in changes if field not in left_out}


def _resizing_fields(own_scenario: Scenario) -> set[str]:
    return {f"resizing.{name}" for name in getattr(own_scenario.resizing, "__struct_fields__", ())}


def _means(jobs: Columns, rows: Sequence[int]) -> dict[str, float]:
    """Means over the jobs of some rows, seconds; the paper calls the turnaround completion time."""
    names = list(rows)
    return {
        "jobs": len(names),
        "mean_completion_s": mean(jobs["turnaround_s"][names].tolist()),
        "mean_execution_s": mean(jobs["run_s"][names].tolist()),
        "mean_wait_s": mean(jobs["wait_s"][names].tolist()),
    }


def name_of(parameters: Mapping[str, Any]) -> str:
    """Name of a case: "pba-pr", "pba-pr 50 %", "static with priority"."""
    name = str(parameters["scenario"])
    if parameters["user_priorities"]:
        return f"{name} with priority"
    share = parameters["resizable"]
    return name if share in (0, 1) else f"{name} {100 * share:g} %"


def results_of(rows: Sequence[Row]) -> StudyResults:
    """Results by case, on the mixes (seeds) that all cases have in common.

    A metric is a number of a run, or a mean over the jobs of a size, a class of users, or both:
    "mean_wait_s", "mean_wait_s small", "mean_wait_s gold", "mean_wait_s small gold".
    """
    seeds: dict[str, set[int]] = {}
    for row in rows:
        seeds.setdefault(name_of(row.parameters), set()).add(row.parameters["seed"])
    common = set.intersection(*seeds.values()) if seeds else set()
    kept = [row for row in rows if row.parameters["seed"] in common]
    flat = [Row(row.parameters, {**row.result, **_of_groups(row.result)}) for row in kept]
    return StudyResults(flat, name_of)


def _of_groups(result: Mapping[str, Any]) -> dict[str, float]:
    means: dict[str, float] = {}
    for size, user in product((None, *SIZES), (None, *USERS)):
        groups = [
            group
            for name, group in result["groups"].items()
            if group["jobs"] and size in (None, name.split()[0]) and user in (None, name.split()[1])
        ]
        jobs = sum(group["jobs"] for group in groups)
        for field in (COMPLETION, EXECUTION, WAIT) if jobs and (size or user) else ():
            name = " ".join(filter(None, (field, size, user)))
            means[name] = float(sum(group["jobs"] * group[field] for group in groups) / jobs)
    return means


def claims(results: StudyResults) -> list[Claim]:
    """All claims whose cases were run, with their verdicts."""

    def improvements(case: str, metric: str, base: str = "static") -> list[float]:
        return results.reductions(metric, case.lower(), base)

    def apart(case: str, other: str, metric: str) -> Interval:
        return mean_difference(improvements(case, metric), improvements(other, metric))

    def beyond_two_thirds(case: str, other: str, metric: str) -> Interval:
        pairs = zip(improvements(case, metric), improvements(other, metric), strict=True)
        return mean_interval([gain - most * 2 / 3 for gain, most in pairs])

    measures: dict[str, Callable[..., Interval]] = {
        "improvement": lambda case, metric: mean_interval(improvements(case, metric)),
        "apart": apart,
        "gain": lambda more, less, metric: results.difference(metric, more.lower(), less.lower()),
        "deviations": lambda case, metric: deviation_ratio(
            results.values(case.lower(), metric), results.values("static", metric)
        ),
        "beyond": lambda case, metric, other: mean_difference(
            improvements(case, metric), improvements(case, other)
        ),
        "beyond_two_thirds": beyond_two_thirds,
        "of_classes": lambda metric: mean_interval(improvements(PRIORITY, metric, STATIC_PRIORITY)),
        "gold_behind_platinum": lambda case: mean_difference(
            *(results.values(case, f"{COMPLETION} {user}") for user in USERS)
        ),
    }
    groups = [group for group in PAPER.claims if all(case in results for case in group["needs"])]
    return declared(groups, measures)


def deviation_ratio(values: Sequence[float], reference: Sequence[float]) -> Interval:
    """Ratio of the standard deviations of paired values, with the interval of Pitman and Morgan.

    Returns
    -------
    The ratio and its interval; the limits are nan for fewer than three pairs.
    """
    n = len(values)
    if n < 3:
        return Interval(nan, nan, nan, n)
    from scipy.special import stdtrit  # imported here: it makes commands slow to start

    ratio = float(np.var(values, ddof=1) / np.var(reference, ddof=1))
    correlation = float(np.corrcoef(values, reference)[0, 1])
    t = float(stdtrit(n - 2, (1 + CONFIDENCE) / 2))
    k = 1 + 2 * max(0.0, 1 - correlation**2) * t**2 / (n - 2)
    root = sqrt(k * k - 1)
    return Interval(sqrt(ratio), sqrt(ratio * (k - root)), sqrt(ratio * (k + root)), n)


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables with ours and the paper's values, claims with their verdicts, and figures."""
    results = results_of(rows)
    n = len(next(iter(results.rows.values())))
    parts = [
        f"{n} job mixes; ours as mean ± half of the 95 % interval; improvements over static are"
        " means over the mixes; the paper's values are in brackets",
        *_tables(results),
    ]
    cases = {name: _numbers(results, name) | _by_user(results, name) for name in results}
    data = {"mixes": n, "cases": msgspec.to_builtins(cases)}
    files = {} if out is None else pictures(results)
    title = "Claims of section 4"
    return reported(parts, data, claims(results), files, title)


def _cases(results: StudyResults, names: Iterable[str]) -> list[str]:
    """Those of some cases that were run, if the static one was."""
    return [name for name in names if name in results and "static" in results]


def _numbers(results: StudyResults, case: str) -> dict[str, Interval]:
    """Numbers of a case with their intervals."""
    return {
        COMPLETION: results.interval(case, COMPLETION),
        "completion_improvement_pct": _improvement(results, case, COMPLETION),
        EXECUTION: results.interval(case, EXECUTION),
        "execution_improvement_pct": _improvement(results, case, EXECUTION),
        WAIT: results.interval(case, WAIT),
        UTILIZATION: results.interval(case, UTILIZATION),
    }


def _by_user(results: StudyResults, case: str) -> dict[str, Interval]:
    """Completions of a case by class of user."""
    metrics = [f"{COMPLETION} {user}" for user in USERS]
    return {metric: results.interval(case, metric) for metric in metrics}


def _improvement(results: StudyResults, case: str, metric: str, base: str = "static") -> Interval:
    return mean_interval(results.reductions(metric, case, base))


def _tables(results: StudyResults) -> list[str]:
    """Tables 1 to 5, as far as their cases were run."""
    spread = ("AVERAGE s", "STD. DEV.", "MAX", "MIN", "RANGE")
    names = _cases(results, PAPER.names)
    shares = [share for share, name in SHARES.items() if name in results]
    classes = [label for label, name in TABLE_5.items() if name in results]
    head = ("UTILISATION %", "COMPLETION s", "IMPROV. %", "EXECUTION s", "IMPROV. %")
    first = []
    for name in names:
        numbers = _numbers(results, name)
        ours = [numbers.pop(UTILIZATION), *numbers.values()]
        first.append([PAPER.names[name], *map(_beside, ours, PAPER.table_1[name])])
    waits = [[PAPER.names[n], *_spreads(results, n, WAIT, PAPER.table_2[n])] for n in names]
    by_share = [
        [
            f"{share} %" if share else "Static",
            *_spreads(results, SHARES[share], WAIT, PAPER.table_4[share]),
        ]
        for share in shares
    ]
    by_class = []
    for label in classes:
        case = TABLE_5[label]
        ours = [results.interval(case, COMPLETION), *_by_user(results, case).values()]
        by_class.append([label, *map(_beside, ours, PAPER.table_5[label])])
    title_4 = "Table 4: queue wait by share of resizable jobs, PBA-PR"
    title_5 = "Table 5: completion by class of user, half of the jobs resizable"
    return [
        titled("Table 1: completion and execution", ["SCENARIO", *head], first),
        titled("Table 2: queue wait over the mixes", ["SCENARIO", *spread], waits),
        _table_3(results, names),
        titled(title_4, ["RESIZABLE", *spread], by_share),
        titled(title_5, ["SCENARIO", "ALL s", "GOLD s", "PLATINUM s"], by_class),
    ]


def _table_3(results: StudyResults, names: Sequence[str]) -> str:
    rows = []
    mixes = next(iter(results.rows.values()))
    for i, mix in enumerate(mixes[: len(PAPER.table_3["static"])]):
        values = [(results.values(name, COMPLETION)[i], PAPER.table_3[name][i]) for name in names]
        rows.append([f"mix {mix.parameters['seed']}", *(f"{a:.1f} ({b:.1f})" for a, b in values)])
    for i, label in enumerate(("mean", "st. dev.")):
        cells = [
            _spreads(results, name, COMPLETION, _spread(PAPER.table_3[name]))[i] for name in names
        ]
        rows.append([label, *cells])
    title = "Table 3: mean completion of each mix, s (mixes are not the paper's)"
    return titled(title, ["MIX", *(PAPER.names[name] for name in names)], rows)


def _spread(values: Sequence[float]) -> tuple[float, float, float, float, float]:
    """Mean, standard deviation, maximum, minimum and range."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    low, high = min(values), max(values)
    return sum(values) / len(values), deviation, high, low, high - low


def _spreads(results: StudyResults, case: str, metric: str, paper: Sequence[float]) -> list[str]:
    """Cells with the spread of a metric over the mixes, and the paper's in brackets."""
    pairs = zip(_spread(results.values(case, metric)), paper, strict=True)
    return [f"{ours:.1f} ({theirs:.1f})" for ours, theirs in pairs]


def _beside(ours: Interval, theirs: float | None) -> str:
    if theirs is None:
        return ""
    same = ours.half < 1e-9 * abs(ours.mean)  # all mixes are equal but for rounding
    return f"{f'{ours.mean:g}' if same else shown(ours)} ({theirs:g})"


#: One colour per scenario, light to dark in the order of the paper's tables.
COLOURS = {"Static": "#b9bdc2", "FCFS-PR": "#5f9ea0", "Max-B-PR": "#c98a4b", "PBA-PR": "#4a6fa5"}
COLOURS |= {f"{name} with priority": COLOURS[name] for name in ("Static", "PBA-PR")}


def pictures(results: StudyResults) -> dict[str, bytes]:
    """Draw the figures whose cases were run, as PNG files by name.

    Some of the paper's figures show seconds while its text gives per cent. Ours show both.
    """
    drawn = {"figure-02": _speedup()}
    for number, figure in enumerate(PAPER.figures, 3):
        if all(case in results for case in figure["needs"]):
            panels = [_panel(results, **panel) for panel in figure["panels"]]
            drawn[f"figure-{number:02}"] = chart(figure["title"], 4.2, [panels])
    return {f"{name}.png": encode(figure, "png") for name, figure in drawn.items()}


def _panel(
    results: StudyResults,
    series: Mapping[str, Mapping[str, Any]],
    labels: Sequence[str] = (),
    base: str = "",
    **style: Any,
) -> Panel:
    """Bars of a figure as the paper's file describes it: seconds, or improvements over a base."""
    words: dict[str, Any] = {"title": "seconds", "unit": "s"}
    if base:
        words = {"title": f"improvement over {base} on the same mixes", "unit": "%"}
    colours: Mapping[str, Any] = COLOURS
    if "ours" in series:
        labels = [PAPER.names[case] for case in series["ours"]["cases"]]
        colours = {"ours": [COLOURS[label] for label in labels]}
    values = {
        name: [
            _improvement(results, case, metric, base) if base else results.interval(case, metric)
            for case, metric in product(own["cases"], own["metrics"])
        ]
        for name, own in series.items()
    }
    theirs = {name: _printed(**own) for name, own in series.items() if "paper" in own}
    style = words | {"colours": colours, "legend": True} | style
    return partial(bars, labels=labels, series=values, paper=theirs, **style)


def _printed(cases: Sequence[str], paper: Any, **_: Any) -> Sequence[float | None]:
    """Values of the paper for the bars of a series; see its file."""
    if not isinstance(paper, Mapping):
        return paper  # type: ignore[no-any-return]
    column = {case: row[paper["column"]] for case, row in getattr(PAPER, paper["table"]).items()}
    if "over" not in paper:
        return [column[case] for case in cases]
    return [100 * (1 - column[case] / column[paper["over"]]) for case in cases]


def _speedup() -> Figure:
    """Draw figure 2: the speedup model in both readings, which differ by orders of magnitude."""
    sizes = np.arange(400, 2001, 20)

    def drawn(axes: Axes, reading: str, title: str) -> None:
        model = Prio(0.75, reading)  # type: ignore[arg-type]
        axes.plot(sizes, [model.factor(400, int(size)) for size in sizes], color=INK)
        axes.plot(sizes, sizes / 400, color=INK, lw=0.8, ls=":", label="linear")
        axes.set_yscale("log" if reading == "printed" else "linear")
        axes.set_title(title, fontsize=10, color=INK)
        axes.set_ylabel("speedup")
        axes.set_xlabel("processors")
        axes.legend(loc="best", frameon=False)

    titles = {"sweet-spot": "read as (x)^(alpha^(x-1))", "printed": "as printed, x^(alpha (x-1))"}
    panels = [partial(drawn, reading=each, title=title) for each, title in titles.items()]
    return chart("Figure 2: speedup from 400 processors on, alpha 0.75", 4.0, [panels])
