"""The report of the PRIO study: tables 1 to 5 and figures 2 to 14 with the paper's values, claims.

Ours have 95 % intervals, and the paper's values are marks. Some of the paper's figures show seconds
while its text gives per cent. Ours show both: seconds, and the improvement over the static run of
the same mixes, which can be compared with the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np

from reshape.speedup import Prio
from scheduler.pictures import INK, encode, new_figure, reduce_frame
from simulator.results.statistics import Interval
from simulator.studies.claims import reported, titled
from simulator.studies.prio import (
    COMPLETION,
    EXECUTION,
    RESIZED,
    SHARES,
    SIZES,
    UTILIZATION,
    WAIT,
    Mixes,
    Pick,
    claims,
    of,
    paper,
)
from simulator.study.study import Report, Row, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WITH_STATIC = {0: "static", **SHARES}
#: Rows of table 5 -> the case of each.
TABLE_5 = {
    "static": "static",
    "static with priority": "static with priority",
    "pba-pr": "pba-pr 50 %",
    "pba-pr with priority": "pba-pr with priority",
}


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables with ours and the paper's values, claims with their verdicts, and figures."""
    mixes = Mixes(rows)
    n = len(mixes.seeds)
    parts = [
        f"{n} job mixes; ours as mean ± half of the 95 % interval; improvements over static are"
        " means over the mixes; the paper's values are in brackets",
        *_tables(mixes),
    ]
    data = {
        "mixes": n,
        "scenarios": _scenarios(mixes),
        "resizable": _shares(mixes),
        "priorities": _priorities(mixes),
    }
    files: dict[str, bytes] = {}
    if out is not None:
        files = figures(mixes)
    plain_data = msgspec.to_builtins(data)
    return reported(parts, plain_data, claims(mixes), files, "Claims of section 4")


def _tables(mixes: Mixes) -> list[str]:
    """Tables 1 to 5, as far as their cases were run."""
    names = [name for name in paper.names if name in mixes and "static" in mixes]
    tables = [_table_1(mixes, names), _table_2(mixes, names), _table_3(mixes, names)]
    shares = {share: name for share, name in WITH_STATIC.items() if name in mixes}
    return [*tables, _table_4(mixes, shares), _table_5(mixes)]


def _table_1(mixes: Mixes, names: Sequence[str]) -> str:
    rows = []
    for name in names:
        theirs = paper.table_1[name]
        ours = [mixes.mean(name, UTILIZATION)]
        for pick in (COMPLETION, EXECUTION):
            ours += [mixes.mean(name, pick), mixes.improvement(name, pick)]
        cells = [_beside(o, t) if t is not None else "" for o, t in zip(ours, theirs, strict=True)]
        cells[1] = _beside(ours[1], theirs[1])
        rows.append([paper.names[name], *cells])
    head = ["SCENARIO", "UTILISATION %", "COMPLETION s", "IMPROV. %", "EXECUTION s", "IMPROV. %"]
    return titled("Table 1: completion and execution", head, rows)


def _table_2(mixes: Mixes, names: Sequence[str]) -> str:
    rows = []
    for name in names:
        pairs = zip(mixes.spread(name, WAIT), paper.table_2[name], strict=True)
        rows.append([paper.names[name], *(f"{ours:.1f} ({theirs:.1f})" for ours, theirs in pairs)])
    head = ["SCENARIO", "AVERAGE s", "STD. DEV.", "MAX", "MIN", "RANGE"]
    return titled("Table 2: queue wait over the mixes", head, rows)


def _table_3(mixes: Mixes, names: Sequence[str]) -> str:
    values = {name: mixes.values(name, COMPLETION) for name in names}
    rows = []
    for i, seed in enumerate(mixes.seeds[: len(paper.table_3["static"])]):
        row = [f"{values[name][i]:.1f} ({paper.table_3[name][i]:.1f})" for name in names]
        rows.append([f"mix {seed}", *row])
    for label, index in (("mean", 0), ("st. dev.", 1)):
        theirs = {name: _mean_and_deviation(paper.table_3[name])[index] for name in names}
        ours = {name: mixes.spread(name, COMPLETION)[index] for name in names}
        rows.append([label, *(f"{ours[name]:.1f} ({theirs[name]:.1f})" for name in names)])
    title = "Table 3: mean completion of each mix, s (mixes are not the paper's)"
    return titled(title, ["MIX", *(paper.names[name] for name in names)], rows)


def _table_4(mixes: Mixes, shares: dict[int, str]) -> str:
    rows = []
    for share, name in shares.items():
        pairs = zip(mixes.spread(name, WAIT), paper.table_4[share], strict=True)
        label = f"{share} %" if share else "Static"
        rows.append([label, *(f"{ours:.1f} ({theirs:.1f})" for ours, theirs in pairs)])
    head = ["RESIZABLE", "AVERAGE s", "STD. DEV.", "MAX", "MIN", "RANGE"]
    return titled("Table 4: queue wait by share of resizable jobs, PBA-PR", head, rows)


def _table_5(mixes: Mixes) -> str:
    rows = []
    for label, name in TABLE_5.items():
        if name in mixes:
            picks = [COMPLETION, *(of("mean_completion_s", user=user) for user in paper.by_class)]
            pairs = zip(picks, paper.table_5[label], strict=True)
            rows.append([label, *(_beside(mixes.mean(name, p), theirs) for p, theirs in pairs)])
    head = ["SCENARIO", "ALL s", "GOLD s", "PLATINUM s"]
    return titled("Table 5: completion by class of user, half of the jobs resizable", head, rows)


def _beside(ours: Interval, theirs: float) -> str:
    same = ours.half < 1e-9 * abs(ours.mean)  # all mixes are equal but for rounding
    return f"{f'{ours.mean:g}' if same else shown(ours)} ({theirs:g})"


def _mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    middle = sum(values) / len(values)
    return middle, (sum((v - middle) ** 2 for v in values) / (len(values) - 1)) ** 0.5


def _scenarios(mixes: Mixes) -> dict[str, Any]:
    """Numbers of each scenario with their intervals, by our names of the scenarios."""
    return {
        name: {
            "mean_completion_s": mixes.mean(name, COMPLETION),
            "completion_improvement_pct": mixes.improvement(name, COMPLETION),
            "mean_execution_s": mixes.mean(name, EXECUTION),
            "execution_improvement_pct": mixes.improvement(name, EXECUTION),
            "mean_wait_s": mixes.mean(name, WAIT),
            "utilization_pct": mixes.mean(name, UTILIZATION),
        }
        for name in paper.names
        if name in mixes and "static" in mixes
    }


def _shares(mixes: Mixes) -> dict[str, Any]:
    return {
        str(share): {
            "completion_improvement_pct": mixes.improvement(name, COMPLETION),
            "mean_wait_s": mixes.mean(name, WAIT),
            "utilization_pct": mixes.mean(name, UTILIZATION),
        }
        for share, name in WITH_STATIC.items()
        if name in mixes and "static" in mixes
    }


def _priorities(mixes: Mixes) -> dict[str, Any]:
    return {
        label: {
            user: {"mean_completion_s": mixes.mean(name, of("mean_completion_s", user=user))}
            for user in paper.by_class
        }
        for label, name in TABLE_5.items()
        if name in mixes
    }


#: One colour per scenario, light to dark in the order of the paper's tables.
COLOURS = {"static": "#b9bdc2", "fcfs-pr": "#5f9ea0", "max-b-pr": "#c98a4b", "pba-pr": "#4a6fa5"}
#: Values of one colour, one for each label; None where the paper gives none.
Series: TypeAlias = Sequence[Interval]
PaperSeries: TypeAlias = Sequence[float | None]


def figures(mixes: Mixes) -> dict[str, bytes]:
    """Draw the figures whose cases were run, as PNG files by name."""
    drawn = {"figure-02.png": _speedup()}
    if all(name in mixes for name in paper.names):
        drawn |= _figures_of_scenarios(mixes)
    if "static" in mixes and all(name in mixes for name in SHARES.values()):
        drawn |= _figures_of_shares(mixes)
    if "pba-pr with priority" in mixes and "static with priority" in mixes:
        drawn |= _figures_of_classes(mixes)
    return {name: encode(figure, "png") for name, figure in drawn.items()}


def _speedup() -> Figure:
    """Draw figure 2: the speedup model in both readings, which differ by orders of magnitude."""
    figure = new_figure(4.0, "Figure 2: speedup from 400 processors on, alpha 0.75")
    sizes = np.arange(400, 2001, 20)
    titles = {"sweet-spot": "read as (x)^(alpha^(x-1))", "printed": "as printed, x^(alpha (x-1))"}
    for axes, reading in zip(figure.subplots(1, 2), ("sweet-spot", "printed"), strict=True):
        model = Prio(0.75, reading)  # type: ignore[arg-type]
        axes.plot(sizes, [model.factor(400, int(size)) for size in sizes], color=INK)
        if reading == "printed":
            axes.set_yscale("log")
        axes.plot(sizes, sizes / 400, color=INK, lw=0.8, ls=":", label="linear")
        _style(axes, titles[reading], "speedup")
        axes.set_xlabel("processors")
        axes.legend(loc="best", frameon=False)
    return figure


def _figures_of_scenarios(mixes: Mixes) -> dict[str, Figure]:
    """Draw figures 3 to 8."""
    names = tuple(paper.names)
    table = {name: paper.table_1[name] for name in names}
    waits = [paper.table_2[name][0] for name in names]
    gains = [100 * (1 - wait / waits[0]) for wait in waits]
    return {
        "figure-03.png": _absolute_and_gain(
            mixes, "Figure 3: mean completion", COMPLETION,
            [table[n][1] for n in names], [table[n][2] for n in RESIZED],
        ),
        "figure-04.png": _absolute_and_gain(
            mixes, "Figure 4: mean execution", EXECUTION,
            [table[n][3] for n in names], [table[n][4] for n in RESIZED],
        ),
        "figure-05.png": _absolute_and_gain(
            mixes, "Figure 5: mean queue wait", WAIT,
            waits, [gains[names.index(n)] for n in RESIZED],
        ),
        "figure-06.png": _utilization(mixes, names),
        "figure-07.png": _by_size(
            mixes, "Figure 7: queue wait by size of job", "mean_wait_s", paper.wait_by_size
        ),
        "figure-08.png": _by_size(
            mixes, "Figure 8: execution by size of job", "mean_execution_s",
            paper.execution_by_size,
        ),
    }  # fmt: skip


def _absolute_and_gain(
    mixes: Mixes, title: str, pick: Pick, seconds: PaperSeries, gains: PaperSeries
) -> Figure:
    figure = new_figure(4.2, title)
    left, right = figure.subplots(1, 2)
    names = tuple(paper.names)
    labels = [paper.names[name] for name in names]
    _bars(left, labels, {"ours": [mixes.mean(n, pick) for n in names]}, {"ours": seconds}, names)
    _style(left, "seconds", "s")
    labels = [paper.names[name] for name in RESIZED]
    ours = [mixes.improvement(name, pick) for name in RESIZED]
    _bars(right, labels, {"ours": ours}, {"ours": gains}, RESIZED)
    _style(right, "improvement over static on the same mixes", "%")
    return figure


def _utilization(mixes: Mixes, names: Sequence[str]) -> Figure:
    figure = new_figure(4.2, "Figure 6: utilisation of the system")
    axes = figure.subplots()
    labels = [paper.names[name] for name in names]
    theirs = [paper.table_1[name][0] for name in names]
    _bars(axes, labels, {"ours": [mixes.mean(n, UTILIZATION) for n in names]},
          {"ours": theirs}, names)  # fmt: skip
    axes.set_ylim(70, 100)
    _style(axes, "share of processor time held by jobs", "%")
    return figure


def _by_size(
    mixes: Mixes, title: str, field: str, theirs: Mapping[str, tuple[float, ...]]
) -> Figure:
    figure = new_figure(4.2, title)
    left, right = figure.subplots(1, 2)
    picks = [of(field, size) for size in SIZES]
    _bars(left, SIZES, {name: [mixes.mean(name, p) for p in picks] for name in paper.names}, {})
    _style(left, "seconds", "s")
    gains = {n: [mixes.improvement(n, p) for p in picks] for n in paper.names if n in RESIZED}
    _bars(right, SIZES, gains, theirs)
    _style(right, "improvement over static on the same mixes", "%")
    return figure


def _figures_of_shares(mixes: Mixes) -> dict[str, Figure]:
    """Draw figures 9 to 11."""
    labels = [f"{share} %" for share in SHARES]
    completion = new_figure(4.2, "Figure 9: completion by share of resizable jobs, PBA-PR")
    axes = completion.subplots()
    ours = [mixes.improvement(name, COMPLETION) for name in SHARES.values()]
    theirs = [paper.completion_by_share[share] for share in SHARES]
    _bars(axes, labels, {"pba-pr": ours}, {"pba-pr": theirs})
    _style(axes, "improvement over static on the same mixes", "%")

    utilization = new_figure(4.2, "Figure 10: utilisation by share of resizable jobs, PBA-PR")
    axes = utilization.subplots()
    means = [mixes.mean(name, UTILIZATION) for name in ("static", *SHARES.values())]
    _bars(axes, ["static", *labels], {"pba-pr": means},
          {"pba-pr": list(paper.utilization_by_share.values())})  # fmt: skip
    axes.set_ylim(70, 100)
    _style(axes, "share of processor time held by jobs", "%")

    by_size = new_figure(4.2, "Figure 11: completion by share of resizable jobs and size, PBA-PR")
    axes = by_size.subplots()
    gains = {
        size: [mixes.improvement(name, of("mean_completion_s", size)) for name in SHARES.values()]
        for size in SIZES
    }
    _bars(axes, labels, gains, {"small": [None, None, None, paper.small_at_100]})
    _style(axes, "improvement over static on the same mixes", "%")
    return {
        "figure-09.png": completion,
        "figure-10.png": utilization,
        "figure-11.png": by_size,
    }


def _figures_of_classes(mixes: Mixes) -> dict[str, Figure]:
    """Draw figures 12 to 14."""
    case, base = "pba-pr with priority", "static with priority"
    users = tuple(paper.by_class)
    by_user = new_figure(4.2, "Figure 12: completion by class of user")
    left, right = by_user.subplots(1, 2)
    picks = [of("mean_completion_s", user=user) for user in users]
    seconds = {name: [mixes.mean(name, pick) for pick in picks] for name in (base, case)}
    table = {name: paper.table_5[name][1:] for name in (base, case)}
    _bars(left, users, seconds, table)
    _style(left, "seconds", "s")
    gains = [mixes.improvement(case, pick, base) for pick in picks]
    _bars(right, users, {case: gains}, {case: [paper.by_class[user] for user in users]})
    _style(right, "improvement over static with priority on the same mixes", "%")
    drawn = {"figure-12.png": by_user}
    for number, field, what, theirs in (
        (13, "mean_wait_s", "queue wait", paper.gold_wait),
        (14, "mean_execution_s", "execution", paper.gold_execution),
    ):
        figure = new_figure(4.2, f"Figure {number}: {what} of gold jobs by size")
        left, right = figure.subplots(1, 2)
        picks = [of(field, size, "gold") for size in SIZES]
        seconds = {name: [mixes.mean(name, pick) for pick in picks] for name in (base, case)}
        _bars(left, SIZES, seconds, {})
        _style(left, "seconds", "s")
        gains = [mixes.improvement(case, pick, base) for pick in picks]
        _bars(right, SIZES, {case: gains}, {case: theirs})
        _style(right, "improvement over static with priority on the same mixes", "%")
        drawn[f"figure-{number}.png"] = figure
    return drawn


def _bars(
    axes: Axes,
    labels: Sequence[str],
    ours: Mapping[str, Series],
    theirs: Mapping[str, PaperSeries],
    colours: Sequence[str] = (),
) -> None:
    """Draw groups of bars with intervals, and the paper's values as diamonds.

    Parameters
    ----------
    labels : labels of the groups.
    ours, theirs : name of a colour -> a value for each group.
    colours : for groups of one bar, the scenario whose colour each bar has.
    """
    width = 0.8 / len(ours)
    marked = False
    palette = ("#8fb1b3", "#4a6fa5", "#2f3e55")
    for i, (name, series) in enumerate(ours.items()):
        at = np.arange(len(labels)) + (i - (len(ours) - 1) / 2) * width
        key = name.split(" with")[0]
        colour: str | list[str] = COLOURS.get(key, palette[i % len(palette)])
        if colours:
            colour = [COLOURS[each] for each in colours]
        axes.bar(at, [s.mean for s in series], 0.92 * width, color=colour, label=_label(name))
        low_high = [[s.mean - s.low for s in series], [s.high - s.mean for s in series]]
        axes.errorbar(at, [s.mean for s in series], low_high, fmt="none", ecolor=INK, lw=1.1)
        points = [(x, y) for x, y in zip(at, theirs.get(name, ()), strict=False) if y is not None]
        if points:
            xs, ys = zip(*points, strict=True)
            label = None if marked else "paper"
            axes.scatter(xs, ys, marker="D", s=34, fc="white", ec=INK, zorder=3, label=label)
            marked = True
    axes.set_xticks(np.arange(len(labels)), labels)
    axes.axhline(0, color=INK, lw=0.8)
    handles, names = axes.get_legend_handles_labels()
    entries = [(h, n) for h, n in zip(handles, names, strict=True) if len(ours) > 1 or n == "paper"]
    if entries:
        axes.legend(
            [handle for handle, _ in entries],
            [name for _, name in entries],
            frameon=False,
            fontsize=9,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.07),
            ncols=len(entries),
        )


def _label(name: str) -> str:
    key, _, rest = name.partition(" with")
    shown: str = paper.names.get(key, key)
    return f"{shown} with{rest}" if rest else shown


def _style(axes: Axes, title: str, unit: str) -> None:
    reduce_frame(axes)
    axes.set_title(title, fontsize=10, color=INK)
    axes.set_ylabel(unit)
