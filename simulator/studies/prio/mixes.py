"""Runs of the PRIO study by scenario and mix, comparisons on the same mixes, and their claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import nan, sqrt
from typing import Any, TypeAlias

import numpy as np

from simulator.results.statistics import CONFIDENCE, Interval, mean_interval
from simulator.studies.claims import Claim, by_coverage, by_sign
from simulator.studies.prio import paper
from simulator.study.study import Row

Result: TypeAlias = Mapping[str, Any]
#: Selects a number of a run.
Pick: TypeAlias = Callable[[Result], float]


def name_of(parameters: Mapping[str, Any]) -> str:
    """Name of a case: "pba-pr", "pba-pr 50 %", "static with priority"."""
    name = str(parameters["scenario"])
    if parameters["user_priorities"]:
        return f"{name} with priority"
    share = parameters["resizable"]
    return name if share in (0, 1) else f"{name} {100 * share:g} %"


def of(field: str, size: str | None = None, user: str | None = None) -> Pick:
    """Select the mean of a field over all jobs, those of a size, or those of a priority class."""
    if size is None and user is None:
        return lambda result: float(result[field])

    def pick(result: Result) -> float:
        groups = [
            group
            for name, group in result["groups"].items()
            if size in (None, name.split()[0]) and user in (None, name.split()[1])
        ]
        jobs = sum(group["jobs"] for group in groups)
        return float(sum(group["jobs"] * group[field] for group in groups if group["jobs"]) / jobs)

    return pick


class Mixes:
    """Results of all cases on the mixes (seeds) that they have in common.

    Parameters
    ----------
    cases : name -> seed -> result.
    seeds : in ascending order.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.cases: dict[str, dict[int, Result]] = {}
        for row in rows:
            runs = self.cases.setdefault(name_of(row.parameters), {})
            runs[row.parameters["seed"]] = row.result
        common = [set(runs) for runs in self.cases.values()]
        self.seeds = sorted(set.intersection(*common)) if common else []

    def __contains__(self, name: str) -> bool:
        """Whether this case was run."""
        return name in self.cases

    def values(self, name: str, pick: Pick) -> list[float]:
        """Number of each mix under a case, in the order of the seeds."""
        return [pick(self.cases[name][seed]) for seed in self.seeds]

    def mean(self, name: str, pick: Pick) -> Interval:
        """Mean over the mixes."""
        return mean_interval(self.values(name, pick))

    def improvement(self, name: str, pick: Pick, base: str = "static") -> Interval:
        """Reduction against another case in per cent, mean over the mixes."""
        return mean_interval(self.improvements(name, pick, base))

    def improvements(self, name: str, pick: Pick, base: str = "static") -> list[float]:
        """Reduction against another case in per cent, for each mix."""
        pairs = zip(self.values(name, pick), self.values(base, pick), strict=True)
        return [100 * (1 - value / reference) if reference else 0.0 for value, reference in pairs]

    def gain(self, name: str, pick: Pick, base: str = "static") -> Interval:
        """Difference from another case, mean over the mixes."""
        pairs = zip(self.values(name, pick), self.values(base, pick), strict=True)
        return mean_interval([value - reference for value, reference in pairs])

    def spread(self, name: str, pick: Pick) -> tuple[float, float, float, float, float]:
        """Mean, standard deviation, maximum, minimum and range over the mixes (tables 2 and 4)."""
        values = self.values(name, pick)
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        low, high = min(values), max(values)
        return sum(values) / len(values), deviation, high, low, high - low


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


def improves_more(
    mixes: Mixes, pick: Pick, better: str, worse: str, what: str, value: float
) -> Claim:
    """Claim that one scenario improves something more than another, in points of improvement."""
    text = f"{paper.NAMES[better]} improves the {what} more than {paper.NAMES[worse]} (points)"
    return above(text, value, difference(mixes, pick, better, worse))


def difference(mixes: Mixes, pick: Pick, better: str, worse: str, base: str = "static") -> Interval:
    """Improvement of one case over the base minus that of another, in points."""
    pairs = zip(
        mixes.improvements(better, pick, base),
        mixes.improvements(worse, pick, base),
        strict=True,
    )
    return mean_interval([a - b for a, b in pairs])


def above(text: str, value: float | None, ours: Interval) -> Claim:
    """Claim that a number is above 0."""
    return Claim(text, ours, None if value is None else round(value, 2), by_sign(ours))


def within(text: str, value: float | None, ours: Interval) -> Claim:
    """Claim that a number has the paper's value."""
    return Claim(text, ours, value, by_coverage(ours, value))


def varies_less(text: str, value: float, ratio: Interval) -> Claim:
    """Claim that a ratio of deviations is below 1."""
    less = Interval(1 - ratio.mean, 1 - ratio.high, 1 - ratio.low, ratio.n)
    return Claim(text, ratio, round(value, 2), by_sign(less))
