"""The claims of PRIO section 4 and their verdicts, each with its 95 % interval.

An order ("A improves more than B") is a number that must be above 0
(`simulator.studies.claims.by_sign`). A value ("by about 15 %") holds if our interval contains it
(`simulator.studies.claims.by_coverage`). Values are per cent unless the claim names another unit.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulator.results.statistics import mean_interval
from simulator.studies.claims import Claim, of_part
from simulator.studies.prio import paper
from simulator.studies.prio.comparisons import (
    above,
    deviation_ratio,
    difference,
    improves_more,
    varies_less,
    within,
)
from simulator.studies.prio.group_claims import (
    of_classes,
    of_priorities,
    of_shares,
    of_sizes,
    of_spreads,
)
from simulator.studies.prio.mixes import Mixes, of

COMPLETION, EXECUTION, WAIT = of("mean_completion_s"), of("mean_execution_s"), of("mean_wait_s")
UTILIZATION = of("utilization_pct")
RESIZED = ("fcfs-pr", "pba-pr", "max-b-pr")


def claims(mixes: Mixes) -> list[Claim]:
    """All claims whose cases were run, with their verdicts."""
    found: list[Claim] = []
    if all(name in mixes for name in ("static", *RESIZED)):
        for figures in (_completion, _execution, _utilization):
            found += of_part("PRIO table 1", figures(mixes))
        found += of_part("PRIO table 2", _spread_of_waits(mixes))
        found += of_part("PRIO figures 5, 7, 8", [*_waits(mixes), *of_sizes(mixes)])
    if all(f"pba-pr {share} %" in mixes for share in (25, 50, 75)) and "static" in mixes:
        found += of_part("PRIO figures 9 to 11", [*_shares(mixes), *of_shares(mixes)])
        found += of_part("PRIO table 4", of_spreads(mixes))
    if "pba-pr with priority" in mixes and "static with priority" in mixes:
        found += of_part("PRIO figures 12 to 14", [*_classes(mixes), *of_classes(mixes)])
        found += of_part("PRIO table 5", of_priorities(mixes))
    return found


def _completion(mixes: Mixes) -> Iterator[Claim]:
    name = paper.NAMES
    for case in RESIZED:
        value = paper.TABLE_1[case][2]
        ours = mixes.improvement(case, COMPLETION)
        yield above(f"{name[case]} improves the mean completion over static", value, ours)
        yield within(f"... by the paper's {value:g} %", value, ours)
    yield improves_more(mixes, COMPLETION, "fcfs-pr", "pba-pr", "completion", 15.6 - 11.2)
    yield improves_more(mixes, COMPLETION, "pba-pr", "max-b-pr", "completion", 11.2 - 6.4)


def _execution(mixes: Mixes) -> Iterator[Claim]:
    name = paper.NAMES
    for case in RESIZED:
        value = paper.TABLE_1[case][4]
        ours = mixes.improvement(case, EXECUTION)
        yield above(f"{name[case]} improves the mean execution over static", value, ours)
        yield within(f"... by the paper's {value:g} %", value, ours)
    yield improves_more(mixes, EXECUTION, "max-b-pr", "pba-pr", "execution", 9.3 - 7.2)
    yield improves_more(mixes, EXECUTION, "pba-pr", "fcfs-pr", "execution", 7.2 - 2.1)


def _utilization(mixes: Mixes) -> Iterator[Claim]:
    name = paper.NAMES
    static = paper.TABLE_1["static"][0]
    for case in RESIZED:
        value = paper.TABLE_1[case][0] - static
        ours = mixes.gain(case, UTILIZATION)
        yield above(f"{name[case]} raises the utilisation (points)", value, ours)
    for more, less in (("max-b-pr", "pba-pr"), ("pba-pr", "fcfs-pr")):
        value = paper.TABLE_1[more][0] - paper.TABLE_1[less][0]
        text = f"{name[more]} raises it more than {name[less]} (points)"
        yield above(text, value, mixes.gain(more, UTILIZATION, less))


def _waits(mixes: Mixes) -> Iterator[Claim]:
    small = of("mean_wait_s", "small")
    value = paper.WAIT_BY_SIZE["fcfs-pr"][0]
    ours = mixes.improvement("fcfs-pr", small)
    yield above("FCFS-PR shortens the wait of small jobs", value, ours)
    for case in ("pba-pr", "max-b-pr"):
        value = paper.WAIT_BY_SIZE["fcfs-pr"][0] - paper.WAIT_BY_SIZE[case][0]
        yield improves_more(mixes, small, "fcfs-pr", case, "wait of small jobs", value)


def _spread_of_waits(mixes: Mixes) -> Iterator[Claim]:
    name = paper.NAMES
    for case in RESIZED:
        value = round(paper.TABLE_2[case][1] / paper.TABLE_2["static"][1], 2)
        ratio = deviation_ratio(mixes.values(case, WAIT), mixes.values("static", WAIT))
        text = f"{name[case]} makes waits vary less between mixes (ratio of deviations below 1)"
        yield varies_less(text, value, ratio)


def _shares(mixes: Mixes) -> Iterator[Claim]:
    case = {0: "static", 25: "pba-pr 25 %", 50: "pba-pr 50 %", 75: "pba-pr 75 %", 100: "pba-pr"}
    values = {0: 0.0, **paper.COMPLETION_BY_SHARE}
    for less, more in ((0, 25), (25, 50), (50, 75), (75, 100)):
        text = f"PBA-PR: {more} % resizable jobs improve completion more than {less} %"
        ours = difference(mixes, COMPLETION, case[more], case[less])
        yield above(text, values[more] - values[less], ours)
    small = of("mean_completion_s", "small")
    text = "PBA-PR, all resizable: small jobs gain more than the average"
    gains = zip(
        mixes.improvements("pba-pr", small), mixes.improvements("pba-pr", COMPLETION), strict=True
    )
    ours = mean_interval([a - b for a, b in gains])
    yield above(text, paper.SMALL_AT_100 - paper.COMPLETION_BY_SHARE[100], ours)


def _classes(mixes: Mixes) -> Iterator[Claim]:
    case, base = "pba-pr with priority", "static with priority"
    for user in ("platinum", "gold"):
        pick = of("mean_completion_s", user=user)
        text = f"PBA-PR with priority improves {user} jobs over static with priority"
        yield above(text, paper.BY_CLASS[user], mixes.improvement(case, pick, base))
    pick = of("mean_wait_s", "small", "gold")
    text = "... and most the wait of small gold jobs"
    yield above(text, paper.GOLD_WAIT[0], mixes.improvement(case, pick, base))
