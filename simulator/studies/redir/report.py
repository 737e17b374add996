"""The report of the REDIR study: ratios to EASY, claims with their verdicts, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from scheduler.text.tables import Table, render
from simulator.results.statistics import mean_interval, quantiles
from simulator.studies.claims import (
    HELD,
    OPEN,
    OPPOSITE,
    Claim,
    as_records,
    as_table,
    by_ratio,
    numbered,
)
from simulator.studies.redir.ratios import MAX, MEAN, GridPoint, TraceRatios, price, ratios
from simulator.study.report import shown
from simulator.study.study import Report, Row


class PaperValues(NamedTuple):
    """Values that the paper gives for a trace (section V).

    Parameters
    ----------
    best : ratio of the mean bounded slowdown with the best parameters.
    thetas : range of the best threshold.
    both : point at which mean and maximum improve, and the ratio of each.
    """

    best: float
    thetas: tuple[int, int]
    both: tuple[GridPoint, float] | None = None


#: Columns of the table of claims -> attribute of `Claim`.
CLAIM_COLUMNS = {
    "trace": "where",
    "claim": "text",
    "paper": "paper",
    "ours": "ours",
    "geometric": "remark",
    "verdict": "verdict",
}
#: Further keys of their data -> attribute of `Claim`.
CLAIM_KEYS = {"trace": "where", "claim": "text", "found": "ours", "geometric": "remark"}
#: Values by a part of the name of the trace.
PAPER = {
    "Curie": PaperValues(0.9, (10, 50), ((0.15, 10), 0.9)),
    "Intrepid": PaperValues(0.8, (5, 15)),
    "RICC": PaperValues(0.6, (5, 25)),
}


def as_report(rows: Sequence[Row]) -> Report:
    """Tables, claims and pictures of all runs.

    Raises
    ------
    ReshapeError : there are no runs to compare.
    """
    from simulator.studies.redir.pictures import (
        pictures,
    )  # imported here: matplotlib is slow to load

    found = [ratios(name, part) for name, part in _by_trace(rows).items()]
    claims = [claim for trace in found for claim in judged(trace)]
    parts = [text for trace in found for text in tables(trace)]
    parts.append(f"The paper's claims\n{as_table(claims, CLAIM_COLUMNS)}")
    data = {
        "traces": [_as_data(trace) for trace in found],
        "claims": as_records(numbered(claims), CLAIM_KEYS),
    }
    return Report("\n\n".join(parts), data, pictures(found))


def tables(trace: TraceRatios) -> list[str]:
    """Mean ratio with its interval, and the median, by theta (rows) and alpha (columns)."""
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
    return [*texts, _price_text(trace)]


def _price_text(trace: TraceRatios) -> str:
    alpha, theta = point = trace.best(MEAN)
    cost = price(trace, point)
    ratio = cost["wait_ratio"]
    times = "" if ratio is None else f"; the mean wait of all jobs is {ratio:.2f} times EASY's"
    return (
        f"{trace.name}: the price at alpha {alpha:g}, theta {theta}: {cost['redirected']:.2%} of"
        f" the jobs are redirected, and their first runs held {cost['lost']:.1%} of the capacity of"
        f" the principal group{times}"
    )


def judged(trace: TraceRatios) -> list[Claim]:
    """Judge the paper's claims about a trace; none if the paper does not use it."""
    paper = next((values for name, values in PAPER.items() if name in trace.name), None)
    if paper is None:
        return []
    best = trace.best(MEAN)
    ours = f"{shown(trace.interval(MEAN, best))} (alpha {best[0]:g}, theta {best[1]})"
    claims = [
        _ratio_claim(trace, MEAN, best, paper.best, "mean BSLD, best parameters", ours),
        _theta_claim(trace, paper.thetas),
    ]
    if paper.both is not None and paper.both[0] in trace.ratios[MEAN]:
        point, claimed = paper.both
        for metric, name in ((MEAN, "mean"), (MAX, "largest")):
            text = f"{name} BSLD at alpha {point[0]:g}, theta {point[1]}"
            ours = shown(trace.interval(metric, point))
            claims.append(_ratio_claim(trace, metric, point, claimed, text, ours))
    return claims


def _ratio_claim(
    trace: TraceRatios, metric: str, point: GridPoint, claimed: float, text: str, ours: str
) -> Claim:
    """Judge the claim that a metric at a point is this ratio of EASY's."""
    geometric = trace.geometric(metric, point)
    return Claim(
        text,
        ours,
        paper=f"{claimed:.2f}",
        verdict=by_ratio(trace.interval(metric, point), claimed),
        where=trace.name,
        remark=f"{geometric.mean:.2f} ({geometric.low:.2f} to {geometric.high:.2f})",
        number=trace.interval(metric, point).mean,
    )


def _theta_claim(trace: TraceRatios, thetas: tuple[int, int]) -> Claim:
    """Judge the claim that the best threshold lies in a range, for each alpha."""
    low, high = thetas
    best = {alpha: trace.best(MEAN, alpha)[1] for alpha in trace.alphas}
    inside = sum(low <= theta <= high for theta in best.values())
    return Claim(
        "best theta",
        ", ".join(f"{theta} (alpha {alpha:g})" for alpha, theta in best.items()),
        paper=f"{low} to {high}",
        verdict=HELD if inside == len(best) else f"{inside} of {len(best)} alphas",
        where=trace.name,
        number=trace.best(MEAN)[1],
        outcome=HELD if inside == len(best) else OPEN if inside else OPPOSITE,
    )


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
