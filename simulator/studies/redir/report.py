"""The report of the REDIR study: ratios to EASY, the paper's claims beside ours, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from scheduler.text.tables import Table, render
from simulator.results.statistics import Interval, mean_interval, quantiles
from simulator.studies.redir.ratios import MAX, MEAN, Point, TraceRatios, price, ratios
from simulator.study.report import shown
from simulator.study.study import Report, Row


class Claims(NamedTuple):
    """What the paper says of a trace (section V).

    Parameters
    ----------
    best : ratio of the mean bounded slowdown with the best parameters.
    thetas : where the best threshold lies.
    both : point at which mean and maximum improve, and the ratio of both.
    """

    best: float
    thetas: tuple[int, int]
    both: tuple[Point, float] | None = None


#: By what the name of the trace has in it.
PAPER = {
    "Curie": Claims(0.9, (10, 50), ((0.15, 10), 0.9)),
    "Intrepid": Claims(0.8, (5, 15)),
    "RICC": Claims(0.6, (5, 25)),
}


def as_report(rows: Sequence[Row]) -> Report:
    """Make tables, claims and pictures of all runs.

    Raises
    ------
    ReshapeError : there is nothing to compare.
    """
    from simulator.studies.redir.pictures import pictures  # late: matplotlib is slow to load

    found = [ratios(name, part) for name, part in _by_trace(rows).items()]
    claims = [claim for trace in found for claim in judged(trace)]
    parts = [text for trace in found for text in tables(trace)]
    head = ["TRACE", "CLAIM", "PAPER", "OURS", "GEOMETRIC", "VERDICT"]
    parts.append(
        "The paper's claims\n"
        + render(Table(head, [list(claim.values()) for claim in claims], left=frozenset(head)))
    )
    data = {"traces": [_as_data(trace) for trace in found], "claims": claims}
    return Report("\n\n".join(parts), data, pictures(found))


def tables(trace: TraceRatios) -> list[str]:
    """Mean ratio with its interval, and the median, for each theta (down) and alpha."""
    texts = []
    for metric, words in ((MEAN, "mean"), (MAX, "largest")):
        lines = []
        for theta in trace.thetas:
            line = [str(theta)]
            for alpha in trace.alphas:
                values = trace.ratios[metric].get((alpha, theta), [])
                line += [shown(mean_interval(values)), f"{quantiles(values, [0.5])[0]:.3f}"]
            lines.append(line)
        head = ["THETA"]
        head += [word for alpha in trace.alphas for word in (f"ALPHA {alpha:g}", "MEDIAN")]
        texts.append(
            f"{trace.name}: ratio of the {words} bounded slowdown to EASY's on as many processors,"
            f" mean of {trace.weeks} weeks\n{render(Table(head, lines, left=frozenset()))}"
        )
    return [*texts, _price_in_words(trace)]


def _price_in_words(trace: TraceRatios) -> str:
    alpha, theta = point = trace.best(MEAN)
    cost = price(trace, point)
    ratio = cost["wait_ratio"]
    times = "" if ratio is None else f"; the mean wait of all jobs is {ratio:.2f} times EASY's"
    return (
        f"{trace.name}: the price at alpha {alpha:g}, theta {theta}: {cost['redirected']:.2%} of"
        f" the jobs begin anew, and what they held before is {cost['lost']:.1%} of what the"
        f" principal group can give in a week{times}"
    )


def judged(trace: TraceRatios) -> list[dict[str, str]]:
    """The paper's claims about a trace, and what came out here."""
    paper = next((claims for name, claims in PAPER.items() if name in trace.name), None)
    if paper is None:
        return []
    best = trace.best(MEAN)
    lines = [
        _line(
            trace,
            "mean BSLD, best parameters",
            f"{paper.best:.2f}",
            f"{shown(trace.interval(MEAN, best))} (alpha {best[0]:g}, theta {best[1]})",
            _range(trace.geometric(MEAN, best)),
            _verdict(trace.interval(MEAN, best), paper.best),
        )
    ]
    low, high = paper.thetas
    thetas = {alpha: trace.best(MEAN, alpha)[1] for alpha in trace.alphas}
    inside = sum(low <= theta <= high for theta in thetas.values())
    lines.append(
        _line(
            trace,
            "best theta",
            f"{low} to {high}",
            ", ".join(f"{theta} (alpha {alpha:g})" for alpha, theta in thetas.items()),
            "",
            "held" if inside == len(thetas) else f"{inside} of {len(thetas)} alphas",
        )
    )
    if paper.both is not None and paper.both[0] in trace.ratios[MEAN]:
        point, ratio = paper.both
        for metric, words in ((MEAN, "mean"), (MAX, "largest")):
            found = trace.interval(metric, point)
            claim = f"{words} BSLD at alpha {point[0]:g}, theta {point[1]}"
            ours, geometric = shown(found), _range(trace.geometric(metric, point))
            verdict = _verdict(found, ratio)
            lines.append(_line(trace, claim, f"{ratio:.2f}", ours, geometric, verdict))
    return lines


def _line(
    trace: TraceRatios, claim: str, paper: str, ours: str, geometric: str, verdict: str
) -> dict[str, str]:
    return {
        "trace": trace.name,
        "claim": claim,
        "paper": paper,
        "ours": ours,
        "geometric": geometric,
        "verdict": verdict,
    }


def _range(found: Interval) -> str:
    """Write a geometric mean and its interval, which is not symmetric."""
    return f"{found.mean:.2f} ({found.low:.2f} to {found.high:.2f})"


def _verdict(found: Interval, claimed: float) -> str:
    """Whether a ratio below 1 that was claimed came out, as far as the interval tells."""
    if not found.high < 1:
        return "not held: worse" if found.low > 1 else "not held: no clear gain"
    if found.high < claimed:
        return "held: a larger gain"
    return "held" if found.low <= claimed else "a smaller gain"


def _by_trace(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Runs by the name of their trace."""
    parts: dict[str, list[Row]] = {}
    for row in rows:
        name = str(row.parameters["trace"]).removesuffix(".gz").removesuffix(".swf")
        parts.setdefault(name, []).append(row)
    return parts


def _as_data(trace: TraceRatios) -> dict[str, Any]:
    points = [
        {
            "alpha": point[0],
            "theta": point[1],
        }
        | price(trace, point)
        | {
            name: msgspec.to_builtins(trace.interval(metric, point))
            | {"median": quantiles(trace.ratios[metric][point], [0.5])[0]}
            | {"geometric": msgspec.to_builtins(trace.geometric(metric, point))}
            for name, metric in (("mean_ratio", MEAN), ("max_ratio", MAX))
        }
        for point in trace.ratios[MEAN]
    ]
    return {"trace": trace.name, "weeks": trace.weeks, "points": points}
