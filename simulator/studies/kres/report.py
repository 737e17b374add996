"""Tables, claims and pictures of the KRES study: gains over First-Fit, figures 2 and 3."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from simulator.results.statistics import Interval, mean, mean_interval
from simulator.studies.claims import (
    Claim,
    as_records,
    as_table,
    by_condition,
    numbered,
    plus_minus,
)
from simulator.study.study import Report, Row

COMPARED = ("BL", "BB", "BB0", "CONS")
METRICS = {
    "response_s": "average response time",
    "weighted_response_s": "weighted average response",
}
TICKS = (-500, -200, -100, -50, -25, 0, 25, 50)
AVERAGE, WEIGHTED = METRICS
FIGURES = {"response_s": 2, "weighted_response_s": 3}
#: Columns of the table of claims -> attribute of `Claim`, and keys of their data.
CLAIM_COLUMNS = {"KRES": "where", "claim": "text", "ours": "ours", "verdict": "verdict"}
CLAIM_KEYS = {"where": "where", "found": "ours", "held": "held"}

#: Selects points of a figure.
Filter: TypeAlias = Callable[["GainPoint"], bool]


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
    claims = judge(points)
    text = "\n\n".join(
        [_table(points, metric) for metric in METRICS] + [as_table(claims, CLAIM_COLUMNS)]
    )
    data = {
        "points": msgspec.to_builtins(points),
        "claims": as_records(numbered(claims), CLAIM_KEYS),
    }
    return Report(text, data, {} if out is None else _pictures(points))


def gains(rows: Sequence[Row]) -> list[GainPoint]:
    """Gains over First-Fit with their 95 % intervals over the seeds, from paired runs.

    The gain is 1 - other / First-Fit, in percent: how much shorter the response is.
    """
    groups: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        where = row.parameters
        groups.setdefault((where["law"], where["k"], where["queue"]), []).append(row)
    return [
        GainPoint(
            metric, law, k, queue, name, mean_interval([_gain(row, name, metric) for row in group])
        )
        for metric in METRICS
        for (law, k, queue), group in groups.items()
        for name in COMPARED
    ]


def _gain(row: Row, algorithm: str, metric: str) -> float:
    first_fit = float(row.result["FF"][metric])
    return 100.0 * (1.0 - float(row.result[algorithm][metric]) / first_fit)


def judge(points: Sequence[GainPoint]) -> list[Claim]:
    """Judge the claims of KRES sections 3.3 and 4 by the means of our gains.

    The claims about BB are judged twice: for BB with the fullness modifier and for BB0 without it.
    """
    gains = _Gains(points)
    cons, bl = gains.means("CONS"), gains.means("BL")
    hard = gains.means("BL", lambda p: p.k == max(gains.ks) and p.queue == max(gains.queues))
    few, many = (gains.mean("BL", lambda p, k=k: p.k == k) for k in gains.ends("ks"))  # type: ignore[misc]
    one_k = len(gains.ks) == 1
    return [
        *_judge_balanced(gains, "BB"),
        *_judge_balanced(gains, "BB0"),
        _claim("3.3", "CONS is much worse than FF", _range(cons), max(cons), max(cons) < -10),
        _claim(
            "3.3",
            "FF is generally better than BL",
            _range(bl),
            gains.mean("BL"),
            gains.mean("BL") < 0,
        ),
        _claim(
            "3.3.1",
            "BL gains less as K grows",
            _both(few, many),
            many - few,
            None if one_k else many < few,
        ),
        _claim("3.3.3", "BL loses at large K and load", _range(hard), max(hard), max(hard) < 0),
    ]


def _claim(section: str, text: str, ours: str, number: float, holds: bool | None) -> Claim:
    """Judge a claim by a condition on a number, which `ours` shows with its context."""
    return Claim(text, ours, verdict=by_condition(holds), where=section, number=number)


def _judge_balanced(gains: _Gains, name: str) -> list[Claim]:
    """Judge the claims about BB for one variant of it."""
    plain, weighted = gains.means(name), gains.means(name, metric=WEIGHTED)
    low, high = (gains.mean(name, lambda p, q=q: p.queue == q) for q in gains.ends("queues"))  # type: ignore[misc]
    uniform, exponential = (
        gains.mean(name, lambda p, law=law: p.law == law)  # type: ignore[misc]
        for law in ("uniform", "exponential")
    )
    mean, mean_weighted = gains.mean(name), gains.mean(name, metric=WEIGHTED)
    one_law = isnan(uniform) or isnan(exponential)
    one_queue = len(gains.queues) == 1
    beats = sum(gain > 0 for gain in plain)
    return [
        _claim(
            "3.3, 4",
            f"{name} gains up to 50 %",
            _range(plain),
            max(plain),
            40 <= max(plain) <= 65,
        ),
        _claim(
            "4",
            f"{name} gains up to 40 % weighted",
            _range(weighted),
            max(weighted),
            max(weighted) >= 30,
        ),
        _claim("3.3.4", f"{name} gains 10 to 50 %", _range(plain), min(plain), min(plain) >= 10),
        _claim(
            "3.3.4",
            f"{name} gains 10 to 30 % weighted",
            _range(weighted),
            min(weighted),
            min(weighted) >= 10,
        ),
        _claim(
            "3.3",
            f"{name} is better than FF everywhere",
            f"{beats} of {len(plain)}",
            beats,
            beats == len(plain),
        ),
        _claim(
            "3.3.3",
            f"{name} gains more as the load grows",
            _both(low, high),
            high - low,
            None if one_queue else high > low,
        ),
        _claim(
            "3.3.2",
            f"{name} gains about 10 points more for uniform",
            f"{uniform:.0f} against {exponential:.0f} %",
            uniform - exponential,
            None if one_law else uniform >= exponential + 5,
        ),
        _claim(
            "3.3.4",
            f"{name} gains more in average than weighted",
            f"{mean:.0f} against {mean_weighted:.0f} %",
            mean - mean_weighted,
            mean > mean_weighted,
        ),
    ]


class _Gains:
    """Means over subsets of the points."""

    def __init__(self, points: Sequence[GainPoint]) -> None:
        self._points = points
        self.ks = {p.k for p in points}
        self.queues = {p.queue for p in points}

    def ends(self, axis: str) -> tuple[int, int]:
        """Smallest and largest value on the axis "ks" or "queues"."""
        values: set[int] = getattr(self, axis)
        return min(values), max(values)

    def means(self, name: str, keep: Filter | None = None, metric: str = AVERAGE) -> list[float]:
        """Mean gain of an algorithm at each point, or at those that `keep` selects."""
        chosen = (p for p in self._points if p.metric == metric and p.algorithm == name)
        return [p.gain.mean for p in chosen if keep is None or keep(p)]

    def mean(self, name: str, keep: Filter | None = None, metric: str = AVERAGE) -> float:
        """Mean of `means`."""
        return mean(self.means(name, keep, metric))


def _both(first: float, last: float) -> str:
    return f"{first:.0f} to {last:.0f} %"


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.0f} to {max(values):.0f} %"


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
    from scheduler.pictures.style import (
        FORMATS,
        encode,
    )  # imported here: matplotlib is slow to load

    return {
        f"figure{FIGURES[metric]}.{form}": encode(_picture(points, metric), form)
        for metric in METRICS
        for form in FORMATS
    }


def _picture(points: Sequence[GainPoint], metric: str) -> Any:
    from scheduler.pictures.style import INK, new_figure, reduce_frame

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
                places = [queues.index(q) + 0.2 * (i - 1.5) for q in line]
                axes.bar(
                    places,
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
