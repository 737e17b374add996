"""The claims of PRIO section 4 and their verdicts, each with its 95 % interval.

An order ("A improves more than B") is a number that must be above 0
(`simulator.studies.claims.by_sign`). A value ("by about 15 %") holds if our interval contains it
(`simulator.studies.claims.by_coverage`). Values are per cent unless the claim names another unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan, sqrt

import numpy as np

from simulator.results.statistics import CONFIDENCE, Interval, mean_interval
from simulator.studies.claims import Claim, by_coverage, by_sign
from simulator.studies.prio import paper
from simulator.studies.prio.mixes import Mixes, Pick, of

COMPLETION, EXECUTION, WAIT = of("mean_completion_s"), of("mean_execution_s"), of("mean_wait_s")
UTILIZATION = of("utilization_pct")
RESIZED = ("fcfs-pr", "pba-pr", "max-b-pr")


def claims(mixes: Mixes) -> list[Claim]:
    """All claims whose cases were run, with their verdicts."""
    found: list[Claim] = []
    if all(name in mixes for name in ("static", *RESIZED)):
        found += [*_completion(mixes), *_execution(mixes), *_utilization(mixes), *_waits(mixes)]
    if all(f"pba-pr {share} %" in mixes for share in (25, 50, 75)) and "static" in mixes:
        found += _shares(mixes)
    if "pba-pr with priority" in mixes and "static with priority" in mixes:
        found += _classes(mixes)
    return found


def _completion(mixes: Mixes) -> Iterator[Claim]:
    name = paper.NAMES
    for case in RESIZED:
        value = paper.TABLE_1[case][2]
        ours = mixes.improvement(case, COMPLETION)
        yield _above(f"{name[case]} improves the mean completion over static", value, ours)
        yield _within(f"... by the paper's {value:g} %", value, ours)
    yield _more(mixes, COMPLETION, "fcfs-pr", "pba-pr", "completion", 15.6 - 11.2)
    yield _more(mixes, COMPLETION, "pba-pr", "max-b-pr", "completion", 11.2 - 6.4)


def _execution(mixes: Mixes) -> Iterator[Claim]:
    name = paper.NAMES
    for case in RESIZED:
        value = paper.TABLE_1[case][4]
        ours = mixes.improvement(case, EXECUTION)
        yield _above(f"{name[case]} improves the mean execution over static", value, ours)
        yield _within(f"... by the paper's {value:g} %", value, ours)
    yield _more(mixes, EXECUTION, "max-b-pr", "pba-pr", "execution", 9.3 - 7.2)
    yield _more(mixes, EXECUTION, "pba-pr", "fcfs-pr", "execution", 7.2 - 2.1)


def _utilization(mixes: Mixes) -> Iterator[Claim]:
    name = paper.NAMES
    static = paper.TABLE_1["static"][0]
    for case in RESIZED:
        value = paper.TABLE_1[case][0] - static
        ours = mixes.gain(case, UTILIZATION)
        yield _above(f"{name[case]} raises the utilisation (points)", value, ours)
    for more, less in (("max-b-pr", "pba-pr"), ("pba-pr", "fcfs-pr")):
        value = paper.TABLE_1[more][0] - paper.TABLE_1[less][0]
        text = f"{name[more]} raises it more than {name[less]} (points)"
        yield _above(text, value, mixes.gain(more, UTILIZATION, less))


def _waits(mixes: Mixes) -> Iterator[Claim]:
    name, small = paper.NAMES, of("mean_wait_s", "small")
    value = paper.WAIT_BY_SIZE["fcfs-pr"][0]
    ours = mixes.improvement("fcfs-pr", small)
    yield _above("FCFS-PR shortens the wait of small jobs", value, ours)
    for case in ("pba-pr", "max-b-pr"):
        value = paper.WAIT_BY_SIZE["fcfs-pr"][0] - paper.WAIT_BY_SIZE[case][0]
        yield _more(mixes, small, "fcfs-pr", case, "wait of small jobs", value)
    for case in RESIZED:
        value = round(paper.TABLE_2[case][1] / paper.TABLE_2["static"][1], 2)
        ratio = deviation_ratio(mixes.values(case, WAIT), mixes.values("static", WAIT))
        text = f"{name[case]} makes waits vary less between mixes (ratio of deviations below 1)"
        less = Interval(1 - ratio.mean, 1 - ratio.high, 1 - ratio.low, ratio.n)
        yield Claim(text, ratio, value, by_sign(less))


def _shares(mixes: Mixes) -> Iterator[Claim]:
    case = {0: "static", 25: "pba-pr 25 %", 50: "pba-pr 50 %", 75: "pba-pr 75 %", 100: "pba-pr"}
    values = {0: 0.0, **paper.COMPLETION_BY_SHARE}
    for less, more in ((0, 25), (25, 50), (50, 75), (75, 100)):
        text = f"PBA-PR: {more} % resizable jobs improve completion more than {less} %"
        ours = _difference(mixes, COMPLETION, case[more], case[less])
        yield _above(text, values[more] - values[less], ours)
    small = of("mean_completion_s", "small")
    text = "PBA-PR, all resizable: small jobs gain more than the average"
    gains = zip(
        mixes.improvements("pba-pr", small), mixes.improvements("pba-pr", COMPLETION), strict=True
    )
    ours = mean_interval([a - b for a, b in gains])
    yield _above(text, paper.SMALL_AT_100 - paper.COMPLETION_BY_SHARE[100], ours)


def _classes(mixes: Mixes) -> Iterator[Claim]:
    case, base = "pba-pr with priority", "static with priority"
    for user in ("platinum", "gold"):
        pick = of("mean_completion_s", user=user)
        text = f"PBA-PR with priority improves {user} jobs over static with priority"
        yield _above(text, paper.BY_CLASS[user], mixes.improvement(case, pick, base))
    pick = of("mean_wait_s", "small", "gold")
    text = "... and most the wait of small gold jobs"
    yield _above(text, paper.GOLD_WAIT[0], mixes.improvement(case, pick, base))
    gold, platinum = (mixes.values(case, of("mean_completion_s", user=u)) for u in paper.BY_CLASS)
    ours = mean_interval([a - b for a, b in zip(gold, platinum, strict=True)])
    value = paper.TABLE_5[case][1] - paper.TABLE_5[case][2]
    yield _above("PBA-PR serves platinum jobs better than gold ones (s)", value, ours)


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


def _more(mixes: Mixes, pick: Pick, more: str, less: str, what: str, value: float) -> Claim:
    """Claim that one scenario improves something more than another, in points of improvement."""
    text = f"{paper.NAMES[more]} improves the {what} more than {paper.NAMES[less]} (points)"
    return _above(text, value, _difference(mixes, pick, more, less))


def _difference(mixes: Mixes, pick: Pick, more: str, less: str) -> Interval:
    pairs = zip(mixes.improvements(more, pick), mixes.improvements(less, pick), strict=True)
    return mean_interval([a - b for a, b in pairs])


def _above(text: str, value: float | None, ours: Interval) -> Claim:
    return Claim(text, ours, None if value is None else round(value, 2), by_sign(ours))


def _within(text: str, value: float | None, ours: Interval) -> Claim:
    return Claim(text, ours, value, by_coverage(ours, value))
