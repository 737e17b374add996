"""The report of the REDIR study: ratios to EASY, claims with their verdicts, pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from simulator.results.statistics import mean_interval, quantiles
from simulator.studies.claims import Claim, below_one, by_sign, with_limits
from simulator.studies.redir.ratios import MAX, MEAN, GridPoint, TraceRatios, price, ratios
from simulator.studies.results import mean_difference, reported, titled
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

    traces = [ratios(name, part) for name, part in _by_trace(rows).items()]
    claims = [claim for trace in traces for claim in judged(trace)]
    parts = [text for trace in traces for text in tables(trace)]
    data = {"traces": [_as_data(trace) for trace in traces]}
    return reported(parts, data, claims, pictures(traces), "The paper's claims")


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
        title = (
            f"{trace.name}: ratio of the {words} bounded slowdown to EASY's on as many processors,"
            f" mean of {trace.weeks} weeks"
        )
        texts.append(titled(title, head, lines, 0))
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
    alpha, theta = best = trace.best(MEAN)
    text = f"mean BSLD, best parameters (alpha {alpha:g}, theta {theta})"
    claims = [
        _ratio_claim(trace, MEAN, best, paper.best, text, "REDIR figure 1"),
        *_theta_claims(trace, paper.thetas),
    ]
    if paper.both is not None and paper.both[0] in trace.ratios[MEAN]:
        point, claimed = paper.both
        for metric, name in ((MEAN, "mean"), (MAX, "largest")):
            text = f"{name} BSLD at alpha {point[0]:g}, theta {point[1]}"
            claims.append(_ratio_claim(trace, metric, point, claimed, text, "REDIR figure 2"))
    return claims


def _ratio_claim(
    trace: TraceRatios, metric: str, point: GridPoint, claimed: float, text: str, part: str
) -> Claim:
    """Judge the claim that a metric at a point is below EASY's."""
    ours = trace.interval(metric, point)
    geometric = f"geometric mean {with_limits(trace.geometric(metric, point))}"
    return Claim(
        f"{text}: ratio to EASY", ours, claimed, below_one(ours), part, trace.name, geometric
    )


def _theta_claims(trace: TraceRatios, thetas: tuple[int, int]) -> Iterator[Claim]:
    """Judge the claim that the best threshold lies in a range, for each alpha.

    The best one outside, among those that were run, has a larger ratio than the best one inside.
    """
    low, high = thetas
    inside = [theta for theta in trace.thetas if low <= theta <= high]
    outside = [theta for theta in trace.thetas if theta not in inside]
    for alpha in trace.alphas if inside and outside else ():
        one, other = (trace.best(MEAN, alpha, part) for part in (inside, outside))
        ours = mean_difference(trace.ratios[MEAN][other], trace.ratios[MEAN][one])
        text = f"best theta in {low} to {high}, alpha {alpha:g}: ratio outside minus inside"
        best = f"best: {trace.best(MEAN, alpha)[1]}"
        yield Claim(text, ours, None, by_sign(ours), "REDIR figure 1", trace.name, best)


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
