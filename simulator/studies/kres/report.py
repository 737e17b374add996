"""Tables, claims and pictures of the KRES study: gains over First-Fit, figures 2 and 3."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from simulator.results.statistics import Interval, mean, mean_interval
from simulator.study.study import Report, Row

COMPARED = ("BL", "BB", "BB0", "CONS")
METRICS = {
    "response_s": "average response time",
    "weighted_response_s": "weighted average response",
}
TICKS = (-500, -200, -100, -50, -25, 0, 25, 50)
VERDICTS = {True: "held", False: "not held", None: "not run"}
PLAIN, WEIGHTED = METRICS
FIGURES = {"response_s": 2, "weighted_response_s": 3}


Keep: TypeAlias = Callable[["Point"], bool]


class Point(msgspec.Struct, frozen=True):
    """A place in a figure: what was run, and the gain over First-Fit in percent."""

    metric: str
    law: str
    k: int
    queue: int
    algorithm: str
    gain: Interval


class Claim(msgspec.Struct, frozen=True):
    """A statement of the paper and what became of it here; `held` is None if too little was run."""

    where: str
    paper: str
    ours: str
    held: bool | None


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Set the paper's statements beside ours."""
    points = gains(rows)
    claims = judge(points)
    text = "\n\n".join([_table(points, metric) for metric in METRICS] + [_claims(claims)])
    data = {"points": msgspec.to_builtins(points), "claims": msgspec.to_builtins(claims)}
    return Report(text, data, {} if out is None else _pictures(points))


def gains(rows: Sequence[Row]) -> list[Point]:
    """Gains over First-Fit with their 95 % intervals over the seeds, pair by pair.

    The gain is 1 - other / First-Fit, in percent: how much shorter the response is.
    """
    groups: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        where = row.parameters
        groups.setdefault((where["law"], where["k"], where["queue"]), []).append(row)
    return [
        Point(
            metric, law, k, queue, name, mean_interval([_gain(row, name, metric) for row in group])
        )
        for metric in METRICS
        for (law, k, queue), group in groups.items()
        for name in COMPARED
    ]


def _gain(row: Row, algorithm: str, metric: str) -> float:
    first_fit = float(row.result["FF"][metric])
    return 100.0 * (1.0 - float(row.result[algorithm][metric]) / first_fit)


def judge(points: Sequence[Point]) -> list[Claim]:
    """The statements of KRES sections 3.3 and 4, each held or not by our means.

    Those about BB are judged of BB with the fullness modifier and of BB0 without it.
    """
    about = _About(points)
    cons, bl = about.means("CONS"), about.means("BL")
    hard = about.means("BL", lambda p: p.k == max(about.ks) and p.queue == max(about.queues))
    few, many = (about.mean("BL", lambda p, k=k: p.k == k) for k in about.ends("ks"))  # type: ignore[misc]
    one_k = len(about.ks) == 1
    return [
        *_judge_balanced(about, "BB"),
        *_judge_balanced(about, "BB0"),
        Claim("3.3", "CONS is much worse than FF", _range(cons), max(cons) < -10),
        Claim("3.3", "FF is generally better than BL", _range(bl), about.mean("BL") < 0),
        Claim("3.3.1", "BL gains less as K grows", _both(few, many), None if one_k else many < few),
        Claim("3.3.3", "BL loses at large K and load", _range(hard), max(hard) < 0),
    ]


def _judge_balanced(about: _About, name: str) -> list[Claim]:
    """Statements about BB, of one variant of it."""
    plain, weighted = about.means(name), about.means(name, metric=WEIGHTED)
    low, high = (about.mean(name, lambda p, q=q: p.queue == q) for q in about.ends("queues"))  # type: ignore[misc]
    uniform, exponential = (
        about.mean(name, lambda p, law=law: p.law == law)  # type: ignore[misc]
        for law in ("uniform", "exponential")
    )
    mean, mean_weighted = about.mean(name), about.mean(name, metric=WEIGHTED)
    one_law = isnan(uniform) or isnan(exponential)
    one_queue = len(about.queues) == 1
    beats = sum(gain > 0 for gain in plain)
    return [
        Claim("3.3, 4", f"{name} gains up to 50 %", _range(plain), 40 <= max(plain) <= 65),
        Claim("4", f"{name} gains up to 40 % weighted", _range(weighted), max(weighted) >= 30),
        Claim("3.3.4", f"{name} gains 10 to 50 %", _range(plain), min(plain) >= 10),
        Claim("3.3.4", f"{name} gains 10 to 30 % weighted", _range(weighted), min(weighted) >= 10),
        Claim(
            "3.3",
            f"{name} is better than FF everywhere",
            f"{beats} of {len(plain)}",
            beats == len(plain),
        ),
        Claim(
            "3.3.3",
            f"{name} gains more as the load grows",
            _both(low, high),
            None if one_queue else high > low,
        ),
        Claim(
            "3.3.2",
            f"{name} gains about 10 points more for uniform",
            f"{uniform:.0f} against {exponential:.0f} %",
            None if one_law else uniform >= exponential + 5,
        ),
        Claim(
            "3.3.4",
            f"{name} gains more in average than weighted",
            f"{mean:.0f} against {mean_weighted:.0f} %",
            mean > mean_weighted,
        ),
    ]


class _About:
    """Asks for means over parts of the figures."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._points = points
        self.ks = {p.k for p in points}
        self.queues = {p.queue for p in points}

    def ends(self, axis: str) -> tuple[int, int]:
        """Smallest and largest value on the axis "ks" or "queues"."""
        values: set[int] = getattr(self, axis)
        return min(values), max(values)

    def means(self, name: str, keep: Keep | None = None, metric: str = PLAIN) -> list[float]:
        """Mean gains of an algorithm, of each point or of some."""
        chosen = (p for p in self._points if p.metric == metric and p.algorithm == name)
        return [p.gain.mean for p in chosen if keep is None or keep(p)]

    def mean(self, name: str, keep: Keep | None = None, metric: str = PLAIN) -> float:
        """Mean of those."""
        return mean(self.means(name, keep, metric))


def _both(first: float, last: float) -> str:
    return f"{first:.0f} to {last:.0f} %"


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.0f} to {max(values):.0f} %"


def _told(interval: Interval) -> str:
    half = interval.half
    return f"{interval.mean:+.0f}" if isnan(half) else f"{interval.mean:+.0f} ± {half:.0f}"


def _table(points: Sequence[Point], metric: str) -> str:
    cells = {(p.law, p.k, p.queue, p.algorithm): p.gain for p in points if p.metric == metric}
    lines = [
        f"Gain over FF-EASY in {METRICS[metric]}, % (KRES figure {FIGURES[metric]})",
        "",
        "| requirements | K | queue | " + " | ".join(COMPARED) + " |",
        "|---|---|---|" + "---|" * len(COMPARED),
    ]
    for law, k, queue in dict.fromkeys(key[:3] for key in cells):
        told = " | ".join(_told(cells[law, k, queue, name]) for name in COMPARED)
        lines.append(f"| {law} | {k} | {queue} | {told} |")
    return "\n".join(lines)


def _claims(claims: Sequence[Claim]) -> str:
    lines = ["| KRES | says | here | |", "|---|---|---|---|"]
    lines += [f"| {c.where} | {c.paper} | {c.ours} | {VERDICTS[c.held]} |" for c in claims]
    return "\n".join(lines)


def _pictures(points: Sequence[Point]) -> dict[str, bytes]:
    """Figures 2 and 3, as PNG and SVG."""
    from scheduler.pictures.style import FORMATS, encode  # late: it loads matplotlib

    return {
        f"figure{FIGURES[metric]}.{form}": encode(_picture(points, metric), form)
        for metric in METRICS
        for form in FORMATS
    }


def _picture(points: Sequence[Point], metric: str) -> Any:
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
