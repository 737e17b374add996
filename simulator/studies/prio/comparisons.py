"""Comparisons of cases of the PRIO study, and claims about them."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan, sqrt

import numpy as np

from simulator.results.statistics import CONFIDENCE, Interval, mean_interval
from simulator.studies.claims import Claim, by_coverage, by_sign
from simulator.studies.prio import paper
from simulator.studies.prio.mixes import Mixes, Pick


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
