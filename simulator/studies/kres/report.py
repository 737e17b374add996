"""Tables, claims and pictures of the KRES study: gains over First-Fit, figures 2 and 3."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from simulator.results.statistics import Interval, mean_interval
from simulator.studies.claims import Claim, plus_minus
from simulator.studies.kres.claims import KresGains, gain_pct, judge, judge_balanced
from simulator.studies.results import StudyResults, reported
from simulator.study.study import Report, Row

COMPARED = ("BL", "BB", "BB0", "CONS")
METRICS = {
    "response_s": "average response time",
    "weighted_response_s": "weighted average response",
}
TICKS = (-500, -200, -100, -50, -25, 0, 25, 50)
FIGURES = {"response_s": 2, "weighted_response_s": 3}


class GainPoint(msgspec.Struct, frozen=True):
    """A point of a figure: the parameters of its runs, and the gain over First-Fit in per cent."""

    metric: str
    law: str
    k: int
    queue: int
    algorithm: str
    gain: Interval


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables of the gains, and the verdicts on the paper's claims."""
    points = gains(rows)
    tables = [_table(points, metric) for metric in METRICS]
    files = {} if out is None else _pictures(points)
    return reported(tables, {"points": msgspec.to_builtins(points)}, judged(rows), files)


def gains(rows: Sequence[Row]) -> list[GainPoint]:
    """Gains over First-Fit with their 95 % intervals over the seeds, from paired runs.

    The gain is 1 - other / First-Fit, in percent: how much shorter the response is.
    """
    groups = StudyResults(rows, lambda p: (p["law"], p["k"], p["queue"])).rows
    return [
        GainPoint(
            metric,
            law,
            k,
            queue,
            name,
            mean_interval([gain_pct(row, name, metric) for row in group]),
        )
        for metric in METRICS
        for (law, k, queue), group in groups.items()
        for name in COMPARED
    ]


def judged(rows: Sequence[Row]) -> list[Claim]:
    """Judge the claims, those about BB also for BB0, which leaves the fullness modifier out."""
    names = {name: name for name in COMPARED}
    bb0 = KresGains(names | {"BB": "BB0"}, rows)
    return [*judge(KresGains(names, rows)), *judge_balanced(bb0, "BB0")]


def _table(points: Sequence[GainPoint], metric: str) -> str:
    cells = {(p.law, p.k, p.queue, p.algorithm): p.gain for p in points if p.metric == metric}
    lines = [
        f"Gain over FF-EASY in {METRICS[metric]}, % (KRES figure {FIGURES[metric]})",
        "",
        "| requirements | K | queue | " + " | ".join(COMPARED) + " |",
        "|---|---|---|" + "---|" * len(COMPARED),
    ]
    for law, k, queue in dict.fromkeys(key[:3] for key in cells):
        gains_text = " | ".join(plus_minus(cells[law, k, queue, name], "+.0f") for name in COMPARED)
        lines.append(f"| {law} | {k} | {queue} | {gains_text} |")
    return "\n".join(lines)


def _pictures(points: Sequence[GainPoint]) -> dict[str, bytes]:
    """Figures 2 and 3, as PNG and SVG."""
    from scheduler.pictures import encode_all  # imported here: matplotlib is slow to load

    return encode_all({f"figure{FIGURES[metric]}": _picture(points, metric) for metric in METRICS})


def _picture(points: Sequence[GainPoint], metric: str) -> Any:
    from scheduler.pictures import INK, new_figure, reduce_frame

    laws, ks = (list(dict.fromkeys(getattr(p, name) for p in points)) for name in ("law", "k"))
    queues = sorted({p.queue for p in points})
    title = f"Gain over FF-EASY: {METRICS[metric]} (KRES figure {FIGURES[metric]})"
    figure = new_figure(1.0 + 2.7 * len(laws), title)
    grid = figure.subplots(len(laws), len(ks), sharex=True, sharey=True, squeeze=False)
    colours = dict(zip(COMPARED, ("#c98a1b", "#2a6fb0", "#7fb2dd", "#a23b3b"), strict=True))
    lowest = min(p.gain.mean for p in points if p.metric == metric)
    ticks = [tick for tick in TICKS if tick >= 1.5 * lowest or tick >= -50]
    for axes_row, law in zip(grid, laws, strict=True):
        for axes, k in zip(axes_row, ks, strict=True):
            for i, name in enumerate(COMPARED):
                line = {
                    p.queue: p.gain
                    for p in points
                    if (p.metric, p.law, p.k, p.algorithm) == (metric, law, k, name)
                }
                positions = [queues.index(q) + 0.2 * (i - 1.5) for q in line]
                axes.bar(
                    positions,
                    [gain.mean for gain in line.values()],
                    0.18,
                    yerr=[gain.half for gain in line.values()],
                    color=colours[name],
                    error_kw={"ecolor": INK, "elinewidth": 0.8, "capsize": 2},
                    label=name,
                )
            axes.axhline(0, color=INK, linewidth=0.8)
            axes.set_title(f"K = {k}, {law}", fontsize=10)
            axes.set_xticks(range(len(queues)), [str(queue) for queue in queues])
            axes.set_yscale("symlog", linthresh=50)
            axes.set_yticks(ticks, [str(tick) for tick in ticks])
            axes.minorticks_off()
            reduce_frame(axes)
    for axes in grid[-1]:
        axes.set_xlabel("mean ready queue of FF-EASY")
    for axes_row in grid:
        axes_row[0].set_ylabel("gain, %")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(COMPARED), frameon=False)
    return figure
