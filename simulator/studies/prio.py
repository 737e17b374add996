"""The experiments of PRIO section 4, the gain of resizing on the paper's job mixes, and its claims.

A run is one job mix under one scenario. A mix is a seed; all scenarios, shares of resizable jobs
and classes of users are compared on the same mixes. Each claim has a verdict by its 95 % interval:
an order ("A improves more than B") is a number that must be above 0
(`simulator.studies.claims.by_sign`), a value ("by about 15 %") holds if our interval contains it
(`simulator.studies.claims.by_coverage`). Values are per cent unless the claim names another unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import nan, sqrt
from typing import Any, TypeAlias

import numpy as np

import simulator as sim
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from simulator.experiment.tables import Columns
from simulator.results.statistics import CONFIDENCE, Interval, mean, mean_interval
from simulator.studies.claims import Claim, by_coverage, by_range, by_sign, mean_difference, of_part
from simulator.studies.claims import paper as paper_of
from simulator.study.study import Row
from simulator.workload_models.generate import prio as workload_of

paper = paper_of("prio")
Result: TypeAlias = Mapping[str, Any]
#: Selects a number of a run.
Pick: TypeAlias = Callable[[Result], float]
SIZES = ("small", "medium", "large")
USERS = ("gold", "platinum")


def run(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate one mix under one scenario.

    Parameters
    ----------
    parameters : `seed`, `scenario`; `resizable`, `user_priorities` and `workload` (other fields of
        `PrioWorkload`, with those of `Prio` as `speedup`); `set` (fields of the scenario to change;
        fields that only another scenario has are ignored); `start_s`, `resize_s` (start time of a
        job and of a joining group, seconds; the job computes meanwhile); `pause_s` (time that an
        expansion stops the job, seconds).

    Returns
    -------
    Means over the jobs, seconds; `utilization_pct`; `expansions`, `contractions`, `killed`; and
    under `groups` the means by size and priority class.
    """
    name = parameters["scenario"]
    fields = dict(parameters["workload"])
    fields |= {name: parameters[name] for name in ("resizable", "user_priorities", "start_s")}
    fields["cost"] = {"start_s": parameters["resize_s"], "join_s": parameters["pause_s"]}
    _, mix = workload_of(fields, parameters["seed"])
    chosen = {"name": name, **own_changes(name, parameters["set"])}
    ran = sim.simulate(sim.Jobs(mix), scenario=chosen)
    specs = [job.spec for job in sorted(mix.jobs, key=lambda job: job.at)]
    ended = np.flatnonzero(~np.isnan(ran.jobs["end_s"])).tolist()
    kinds: dict[tuple[str, str], list[int]] = {}
    for index in ended:
        kinds.setdefault((specs[index].name, specs[index].user), []).append(index)
    return {
        **_means(ran.jobs, ended),
        "utilization_pct": 100 * ran.metrics["utilization"],
        **{name: ran.metrics[name] for name in ("expansions", "contractions", "killed")},
        "groups": {
            f"{size} {user}": _means(ran.jobs, kinds.get((size, user), []))
            for size in SIZES
            for user in USERS
        },
    }


def own_changes(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes without fields that only other scenarios have; fields that none has are kept."""
    of_others = {field for other in paper.names for field in _resizing_fields(scenario(other))}
    left_out = of_others - _resizing_fields(scenario(name))
    return {field: changes[field] for field in changes if field not in left_out}


def _resizing_fields(chosen: Scenario) -> set[str]:
    return {f"resizing.{name}" for name in getattr(chosen.resizing, "__struct_fields__", ())}


def _means(jobs: Columns, rows: Sequence[int]) -> dict[str, float]:
    """Means over the jobs of some rows, seconds; the paper calls the turnaround completion time."""
    chosen = list(rows)
    return {
        "jobs": len(chosen),
        "mean_completion_s": mean(jobs["turnaround_s"][chosen].tolist()),
        "mean_execution_s": mean(jobs["run_s"][chosen].tolist()),
        "mean_wait_s": mean(jobs["wait_s"][chosen].tolist()),
    }


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
        return mean_difference(self.values(name, pick), self.values(base, pick))

    def spread(self, name: str, pick: Pick) -> tuple[float, float, float, float, float]:
        """Mean, standard deviation, maximum, minimum and range over the mixes (tables 2 and 4)."""
        values = self.values(name, pick)
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        low, high = min(values), max(values)
        return sum(values) / len(values), deviation, high, low, high - low


COMPLETION, EXECUTION, WAIT = of("mean_completion_s"), of("mean_execution_s"), of("mean_wait_s")
UTILIZATION = of("utilization_pct")
RESIZED = ("fcfs-pr", "pba-pr", "max-b-pr")
#: Percentage of resizable jobs -> its case.
SHARES = {25: "pba-pr 25 %", 50: "pba-pr 50 %", 75: "pba-pr 75 %", 100: "pba-pr"}
ALIKE = 2.0  #: improvements at most so far apart are "almost identical", points


def claims(mixes: Mixes) -> list[Claim]:
    """All claims whose cases were run, with their verdicts."""
    judged: list[Claim] = []
    if all(name in mixes for name in ("static", *RESIZED)):
        judged += of_part("PRIO table 1", _table_1(mixes, "completion", COMPLETION, 2))
        judged += of_part("PRIO table 1", _table_1(mixes, "execution", EXECUTION, 4))
        judged += of_part("PRIO table 1", _utilization(mixes))
        judged += of_part("PRIO table 2", _spread_of_waits(mixes))
        judged += of_part("PRIO figures 5, 7, 8", [*_waits(mixes), *_of_sizes(mixes)])
    if all(f"pba-pr {share} %" in mixes for share in (25, 50, 75)) and "static" in mixes:
        judged += of_part("PRIO figures 9 to 11", [*_shares(mixes), *_of_shares(mixes)])
        judged += of_part("PRIO table 4", _of_spreads(mixes))
    if "pba-pr with priority" in mixes and "static with priority" in mixes:
        judged += of_part("PRIO figures 12 to 14", [*_classes(mixes), *_of_classes(mixes)])
        judged += of_part("PRIO table 5", _of_priorities(mixes))
    return judged


def _table_1(mixes: Mixes, what: str, pick: Pick, column: int) -> Iterator[Claim]:
    """Improvement of a mean time over static (a column of the table), and the order by it."""
    values = {case: paper.table_1[case][column] for case in RESIZED}
    for case, value in values.items():
        text = f"{paper.names[case]} improves the mean {what} over static"
        yield from improves(text, value, mixes.improvement(case, pick))
    for better, worse in pairwise(sorted(RESIZED, key=values.__getitem__, reverse=True)):
        value = values[better] - values[worse]
        yield improves_more(mixes, pick, better, worse, what, value)


def _utilization(mixes: Mixes) -> Iterator[Claim]:
    name = paper.names
    static = paper.table_1["static"][0]
    for case in RESIZED:
        value = paper.table_1[case][0] - static
        ours = mixes.gain(case, UTILIZATION)
        yield above(f"{name[case]} raises the utilisation (points)", value, ours)
    for more, less in (("max-b-pr", "pba-pr"), ("pba-pr", "fcfs-pr")):
        value = paper.table_1[more][0] - paper.table_1[less][0]
        text = f"{name[more]} raises it more than {name[less]} (points)"
        yield above(text, value, mixes.gain(more, UTILIZATION, less))


def _waits(mixes: Mixes) -> Iterator[Claim]:
    small = of("mean_wait_s", "small")
    value = paper.wait_by_size["fcfs-pr"][0]
    ours = mixes.improvement("fcfs-pr", small)
    yield above("FCFS-PR shortens the wait of small jobs", value, ours)
    for case in ("pba-pr", "max-b-pr"):
        value = paper.wait_by_size["fcfs-pr"][0] - paper.wait_by_size[case][0]
        yield improves_more(mixes, small, "fcfs-pr", case, "wait of small jobs", value)


def _spread_of_waits(mixes: Mixes) -> Iterator[Claim]:
    name = paper.names
    for case in RESIZED:
        value = round(paper.table_2[case][1] / paper.table_2["static"][1], 2)
        ratio = deviation_ratio(mixes.values(case, WAIT), mixes.values("static", WAIT))
        text = f"{name[case]} makes waits vary less between mixes (ratio of deviations below 1)"
        yield varies_less(text, value, ratio)


def _shares(mixes: Mixes) -> Iterator[Claim]:
    case = {0: "static", **SHARES}
    values = {0: 0.0, **paper.completion_by_share}
    for less, more in ((0, 25), (25, 50), (50, 75), (75, 100)):
        text = f"PBA-PR: {more} % resizable jobs improve completion more than {less} %"
        ours = difference(mixes, COMPLETION, case[more], case[less])
        yield above(text, values[more] - values[less], ours)
    small = of("mean_completion_s", "small")
    text = "PBA-PR, all resizable: small jobs gain more than the average"
    gains = (mixes.improvements("pba-pr", pick) for pick in (small, COMPLETION))
    ours = mean_difference(*gains)
    yield above(text, paper.small_at_100 - paper.completion_by_share[100], ours)


def _classes(mixes: Mixes) -> Iterator[Claim]:
    case, base = "pba-pr with priority", "static with priority"
    for user in ("platinum", "gold"):
        pick = of("mean_completion_s", user=user)
        text = f"PBA-PR with priority improves {user} jobs over static with priority"
        yield above(text, paper.by_class[user], mixes.improvement(case, pick, base))
    pick = of("mean_wait_s", "small", "gold")
    text = "... and most the wait of small gold jobs"
    yield above(text, paper.gold_wait[0], mixes.improvement(case, pick, base))


def _of_sizes(mixes: Mixes) -> Iterator[Claim]:
    """4.2: mean waits, and waits and execution times by the size of jobs (figures 5, 7 and 8)."""
    name, wait = paper.names, of("mean_wait_s")
    for case, value in paper.wait_improvement.items():
        text = f"{name[case]} shortens the mean wait"
        yield from improves(text, value, mixes.improvement(case, wait))
    for i, size in enumerate(SIZES[1:], 1):
        pick = of("mean_wait_s", size)
        for case, values in paper.wait_by_size.items():
            text = f"{name[case]} shortens the wait of {size} jobs"
            yield above(text, values[i], mixes.improvement(case, pick))
    large, waits = of("mean_wait_s", "large"), paper.wait_by_size
    for better, worse in (("fcfs-pr", "pba-pr"), ("pba-pr", "max-b-pr")):
        value = waits[better][2] - waits[worse][2]
        yield improves_more(mixes, large, better, worse, "wait of large jobs", value)
    ours = difference(mixes, of("mean_wait_s", "medium"), "max-b-pr", "fcfs-pr")
    value = waits["max-b-pr"][1] - waits["fcfs-pr"][1]
    text = "waits of medium jobs improve alike: Max-B-PR minus FCFS-PR (points)"
    yield Claim(text, ours, value, by_range(ours, -ALIKE, ALIKE))
    for i, size in enumerate(SIZES):
        pick = of("mean_execution_s", size)
        for case, values in paper.execution_by_size.items():
            text = f"{name[case]} shortens the execution of {size} jobs"
            yield above(text, values[i], mixes.improvement(case, pick))
        for better, worse in (("max-b-pr", "pba-pr"), ("pba-pr", "fcfs-pr")):
            value = paper.execution_by_size[better][i] - paper.execution_by_size[worse][i]
            yield improves_more(mixes, pick, better, worse, f"execution of {size} jobs", value)


def _of_shares(mixes: Mixes) -> Iterator[Claim]:
    """4.3: utilisation and large jobs by the share of resizable jobs (figures 9 to 11)."""
    case, used = SHARES, of("utilization_pct")
    for share, own in case.items():
        value = round(paper.utilization_by_share[share] - paper.utilization_by_share[0], 1)
        text = f"PBA-PR, {share} % resizable: raises the utilisation (points)"
        yield from improves(text, value, mixes.gain(own, used), "by the paper's {:g} points")
    completion = of("mean_completion_s")
    gains = [mixes.improvements(own, completion) for own in (case[50], case[100])]
    ours = mean_interval([half - all_ * 2 / 3 for half, all_ in zip(*gains, strict=True)])
    value = paper.completion_by_share[50] - paper.completion_by_share[100] * 2 / 3
    text = "gain at 50 % resizable jobs minus two thirds of that at 100 % (0: points)"
    yield Claim(text, ours, round(value, 2), by_coverage(ours, 0.0))
    for size, value in (("large", paper.large_from_25), ("medium", paper.medium_from_25)):
        ours = difference(mixes, of("mean_completion_s", size), case[100], case[25])
        text = f"100 instead of 25 % resizable jobs improve completion of {size} jobs (points)"
        yield from improves(text, value, ours, "by only the paper's {:g} points")


def _of_spreads(mixes: Mixes) -> Iterator[Claim]:
    """4.3: spread of the waits by the share of resizable jobs (table 4)."""
    wait = of("mean_wait_s")
    for share, own in SHARES.items():
        value = paper.table_4[share][1] / paper.table_4[0][1]
        ratio = deviation_ratio(mixes.values(own, wait), mixes.values("static", wait))
        text = f"PBA-PR, {share} % resizable: waits vary less between mixes (ratio of deviations)"
        yield varies_less(text, value, ratio)


def _of_classes(mixes: Mixes) -> Iterator[Claim]:
    """4.4: gold jobs by size (figures 13 and 14)."""
    case, base = "pba-pr with priority", "static with priority"
    for i, size in enumerate(SIZES):
        if i:
            ours = mixes.improvement(case, of("mean_wait_s", size, "gold"), base)
            text = f"PBA-PR with priority shortens the wait of {size} gold jobs"
            yield above(text, paper.gold_wait[i], ours)
    for i, size in enumerate(SIZES):
        ours = mixes.improvement(case, of("mean_execution_s", size, "gold"), base)
        text = f"PBA-PR with priority shortens the execution of {size} gold jobs"
        yield above(text, paper.gold_execution[i], ours)


def _of_priorities(mixes: Mixes) -> Iterator[Claim]:
    """4.4: platinum and gold jobs (table 5)."""
    case, base = "pba-pr with priority", "static with priority"
    values = (mixes.values(case, of("mean_completion_s", user=u)) for u in paper.by_class)
    ours = mean_difference(*values)
    value = paper.table_5[case][1] - paper.table_5[case][2]
    yield above("PBA-PR serves platinum jobs better than gold ones (s)", value, ours)
    if "static" not in mixes:
        return
    platinum, gold = (of("mean_completion_s", user=user) for user in ("platinum", "gold"))
    for own, words in ((case, "PBA-PR"), (base, "static")):
        text = f"{words} with priority improves platinum jobs over static without priority"
        value = paper.platinum_over_static[own]
        yield from improves(text, value, mixes.improvement(own, platinum))
    value = paper.platinum_over_static[case] - paper.platinum_over_static[base]
    ours = difference(mixes, platinum, case, base)
    yield above("... PBA-PR more than static (points)", value, ours)
    ours = difference(mixes, gold, case, base)
    text = "PBA-PR with priority improves gold jobs more than static with priority (points)"
    yield above(text, paper.gold_more_than_static, ours)


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
    text = f"{paper.names[better]} improves the {what} more than {paper.names[worse]} (points)"
    return above(text, value, difference(mixes, pick, better, worse))


def difference(mixes: Mixes, pick: Pick, better: str, worse: str, base: str = "static") -> Interval:
    """Improvement of one case over the base minus that of another, in points."""
    return mean_difference(*(mixes.improvements(case, pick, base) for case in (better, worse)))


def above(text: str, value: float | None, ours: Interval) -> Claim:
    """Claim that a number is above 0."""
    return Claim(text, ours, None if value is None else round(value, 2), by_sign(ours))


def improves(
    text: str, value: float, ours: Interval, by: str = "by the paper's {:g} %"
) -> Iterator[Claim]:
    """Claims that a number is above 0, and that it has the paper's value."""
    yield above(text, value, ours)
    yield Claim(f"... {by.format(value)}", ours, value, by_coverage(ours, value))


def varies_less(text: str, value: float, ratio: Interval) -> Claim:
    """Claim that a ratio of deviations is below 1."""
    less = Interval(1 - ratio.mean, 1 - ratio.high, 1 - ratio.low, ratio.n)
    return Claim(text, ratio, round(value, 2), by_sign(less))
