"""The readings of KRES that its text leaves open, and which of them explain its claims.

A run is one workload under every algorithm and reading of section 2.2, for one reading of the
requirements and of the load. A reading of the whole paper has four parts: how the fullness modifier
acts on the scores (`Backfill.modifier`), whether BL takes other jobs, what the requirements are
scaled with (`simulator.workloads.requirements.Scale`), and over which jobs is averaged: all jobs of
a run in which the queue grows, or those in the steady part of a longer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from scheduler.policies.scenarios import scenario
from scheduler.text.tables import Table, render
from simulator.results.statistics import Interval, mean, mean_interval
from simulator.studies.claims import (
    HELD,
    OPPOSITE,
    Claim,
    as_records,
    as_table,
    by_range,
    by_sign,
    plus_minus,
)
from simulator.studies.kres.runs import compare
from simulator.study.study import SEED, Report, Row

MODIFIERS = ("product", "exponent", "tolerance", "none")
BL_TAKES = ("only", "first")  #: the jobs that it looks for, or those before the others
AVERAGE, WEIGHTED = "response_s", "weighted_response_s"
#: Columns of the table of claims -> attribute of `Claim`.
CLAIM_COLUMNS = {
    "KRES": "where",
    "claim": "text",
    "paper": "paper",
    "ours": "ours",
    "verdict": "verdict",
}
#: Claims that a gain lies in a range, per cent; "up to 50 %" is read as a maximum of 40 to 60 %.
RANGES = {
    "bb-average": (10, 50),
    "bb-weighted": (10, 30),
    "bb-most": (40, 60),
    "bb-most-weighted": (30, 50),
}
SHOWN = 10  # readings in the table of the text


def _algorithms() -> dict[str, Any]:
    found = {"FF": scenario("easy"), "CONS": scenario("conservative")}
    for modifier in MODIFIERS:
        fields: dict[str, Any] = {"backfill.fullness": modifier != "none"}
        if modifier != "none":
            fields["backfill.modifier"] = modifier
        found[f"BB {modifier}"] = scenario("easy", fields | {"backfill.pick": "bb"})
        for takes in BL_TAKES:
            bl = {"backfill.pick": "bl", "backfill.bl_excludes": takes == "only"}
            found[f"BL {modifier} {takes}"] = scenario("easy", fields | bl)
    return found


ALGORITHMS = _algorithms()


def run(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Simulate one workload under all algorithms and readings of section 2.2.

    Parameters
    ----------
    parameters : those of `simulator.studies.kres.runs.run`; `scale` (of the requirements); `load`:
        "growing" (all jobs count) or "steady" (three times as many jobs, of which the middle third
        counts, for the length of the queue and for the response).
    """
    scale, jobs = parameters["scale"], int(parameters["jobs"])
    if parameters["load"] == "growing":
        return compare(parameters, ALGORITHMS, scale)
    return compare({**parameters, "jobs": 3 * jobs}, ALGORITHMS, scale, slice(jobs, 2 * jobs))


class BalanceReading(NamedTuple):
    """A reading of the paper; the module docstring describes its parts."""

    modifier: str
    bl_takes: str
    scale: str
    load: str

    def __str__(self) -> str:
        """Short text, part of the ids of claims."""
        return "/".join(self).replace(" ", "-")

    @property
    def is_default(self) -> bool:
        """Whether it is that of the KRES study."""
        return self == ("product", "only", "size", "growing")


#: Selects points of the grid: axis -> value.
Points: TypeAlias = Mapping[str, Any]
EVERYWHERE: Points = {}


class ReadingGains:
    """Gains over First-Fit in one reading, in per cent.

    Parameters
    ----------
    rows : the runs of its scale and load.
    """

    def __init__(self, reading: BalanceReading, rows: Sequence[Row]) -> None:
        self.reading = reading
        self._names = {
            "BB": f"BB {reading.modifier}",
            "BL": f"BL {reading.modifier} {reading.bl_takes}",
            "CONS": "CONS",
        }
        self._by_seed: dict[int, list[Row]] = {}
        for row in rows:
            self._by_seed.setdefault(row.parameters[SEED], []).append(row)
        self.ks = sorted({row.parameters["k"] for row in rows})
        self.queues = sorted({row.parameters["queue"] for row in rows})

    def of_seeds(
        self, name: str, metric: str, points: Points, over: Callable[[list[float]], float]
    ) -> list[float]:
        """For each seed the mean (or maximum) gain of an algorithm over points."""
        own = self._names[name]
        return [
            over(
                [
                    100 * (1 - row.result[own][metric] / row.result["FF"][metric])
                    for row in rows
                    if all(row.parameters[axis] == value for axis, value in points.items())
                ]
            )
            for rows in self._by_seed.values()
        ]

    def gain(
        self,
        name: str,
        metric: str = AVERAGE,
        points: Points = EVERYWHERE,
        over: Callable[[list[float]], float] = mean,
    ) -> Interval:
        """Mean over the seeds."""
        return mean_interval(self.of_seeds(name, metric, points, over))

    def apart(self, name: str, more: Points, less: Points) -> Interval:
        """Gain at some points minus that at others, from the same seeds; nan if they are equal."""
        first, last = (self.of_seeds(name, AVERAGE, points, mean) for points in (more, less))
        apart = [more - less for more, less in zip(first, last, strict=True)]
        return mean_interval([] if first == last else apart)


def judge(gains: ReadingGains) -> list[Claim]:
    """Judge the claims of KRES 3.3 and 4 in one reading."""
    return [
        msgspec.structs.replace(claim, id=f"{gains.reading}/{claim.id}")
        for claim in (*_judge_balanced(gains), *_judge_lowest(gains))
        if isinstance(claim.ours, Interval) and not isnan(claim.ours.mean)
    ]


def _judge_balanced(gains: ReadingGains) -> Iterator[Claim]:
    """Claims about BB."""
    few, many = {"queue": gains.queues[0]}, {"queue": gains.queues[-1]}
    laws = {"law": "uniform"}, {"law": "exponential"}
    average, weighted = gains.gain("BB"), gains.gain("BB", WEIGHTED)
    yield _range(average, "3.3.4", "bb-average", "BB gains 10 to 50 %")
    yield _range(weighted, "3.3.4", "bb-weighted", "BB gains 10 to 30 % weighted")
    most, most_weighted = (gains.gain("BB", m, over=max) for m in (AVERAGE, WEIGHTED))
    yield _range(most, "3.3", "bb-most", "BB gains up to 50 %", "50")
    yield _range(most_weighted, "4", "bb-most-weighted", "BB gains up to 40 % weighted", "40")
    hard = gains.gain("BB", points={"k": gains.ks[-1]})
    yield _sign(hard, "3.3.1", "bb-large-k", "BB gains at the largest K")
    text = "BB gains more for uniform requirements (points)"
    yield _sign(gains.apart("BB", *laws), "3.3.2", "bb-uniform", text, "10")
    text = "BB gains more as the load grows (points)"
    yield _sign(gains.apart("BB", many, few), "3.3.3", "bb-load", text)
    text = "BB gains more in average than weighted (points)"
    by_seed = (gains.of_seeds("BB", metric, EVERYWHERE, mean) for metric in (AVERAGE, WEIGHTED))
    apart = [more - less for more, less in zip(*by_seed, strict=True)]
    yield _sign(mean_interval(apart), "3.3.4", "bb-small-jobs", text)


def _judge_lowest(gains: ReadingGains) -> Iterator[Claim]:
    """Claims about BL and CONS."""
    few, many = {"queue": gains.queues[0]}, {"queue": gains.queues[-1]}
    low_k, high_k = {"k": gains.ks[0]}, {"k": gains.ks[-1]}
    yield _sign(_minus(gains.gain("BL")), "3.3", "bl-worse", "BL is worse than FF (loss)")
    text = "BL gains less as K grows (points)"
    yield _sign(gains.apart("BL", low_k, high_k), "3.3.1", "bl-k", text)
    text = "BL gains less as the load grows (points)"
    yield _sign(gains.apart("BL", few, many), "3.3.3", "bl-load", text)
    hard = _minus(gains.gain("BL", points=high_k | many))
    yield _sign(hard, "3.3.3", "bl-hard", "BL loses at the largest K and load")
    yield _sign(_minus(gains.gain("CONS")), "3.3", "cons", "CONS is much worse than FF (loss)")


def _range(ours: Interval, where: str, name: str, text: str, paper: str = "") -> Claim:
    low, high = RANGES[name]
    return Claim(text, ours, paper or f"{low} to {high}", by_range(ours, low, high), where, id=name)


def _sign(ours: Interval, where: str, name: str, text: str, paper: str | None = None) -> Claim:
    return Claim(text, ours, paper, by_sign(ours), where, id=name)


def _minus(gain: Interval) -> Interval:
    return Interval(-gain.mean, -gain.high, -gain.low, gain.n)


class JudgedBalanceReading(msgspec.Struct, frozen=True):
    """A reading with its gains and verdicts.

    Parameters
    ----------
    gains : algorithm -> mean gain over the points in average response, per cent; "BB weighted": in
        weighted response.
    held, opposite, means : number of claims that held, that did not, and whose means are on the
        claimed side.
    """

    reading: BalanceReading
    gains: Mapping[str, Interval]
    held: int
    opposite: int
    means: int
    claims: list[Claim]


def judged(rows: Sequence[Row]) -> list[JudgedBalanceReading]:
    """All readings by the number of claims that held minus those that did not, largest first.

    Of equals that with more agreeing means comes first, then that of the KRES study.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.parameters["scale"], row.parameters["load"]), []).append(row)
    found = []
    for (scale, load), group in groups.items():
        for modifier, takes in product(MODIFIERS, BL_TAKES):
            gains = ReadingGains(BalanceReading(modifier, takes, scale, load), group)
            claims = judge(gains)
            shown = {name: gains.gain(name) for name in ("BB", "BL", "CONS")}
            shown["BB weighted"] = gains.gain("BB", WEIGHTED)
            verdicts = [claim.verdict for claim in claims]
            found.append(
                JudgedBalanceReading(
                    gains.reading,
                    shown,
                    verdicts.count(HELD),
                    verdicts.count(OPPOSITE),
                    sum(_mean_agrees(claim) for claim in claims),
                    claims,
                )
            )
    found.sort(key=lambda j: (j.opposite - j.held, -j.means, not j.reading.is_default))
    return found


def _mean_agrees(claim: Claim) -> bool:
    """Whether the mean is on the claimed side, or in the claimed range."""
    assert isinstance(claim.ours, Interval)
    exact = Interval(claim.ours.mean, claim.ours.mean, claim.ours.mean, claim.ours.n)
    name = claim.id.rpartition("/")[2]
    return (by_range(exact, *RANGES[name]) if name in RANGES else by_sign(exact)) == HELD


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Readings by the number of claims that they explain, and the claims in the first of them."""
    found = judged(rows)
    best = found[0]
    default = next((j for j in found if j.reading.is_default), None)
    seeds = len({row.parameters[SEED] for row in rows})
    parts = [
        f"{len(found)} readings, {seeds} seeds; {len(best.claims)} claims. Gains over FF in average"
        " response, %. MEANS: claims with which\nthe mean agrees; HELD: with the whole interval."
        f"\n{_table(found[:SHOWN])}",
        f"Claims in the reading {best.reading}\n{as_table(best.claims, CLAIM_COLUMNS)}",
    ]
    if default is not None and default is not best:
        parts.append(
            f"Claims in the reading of `reshape study kres`, {default.reading}\n"
            f"{as_table(default.claims, CLAIM_COLUMNS)}"
        )
    data = {
        "readings": [
            {**j.reading._asdict(), "gains": msgspec.to_builtins(j.gains)}
            | {"claims": len(j.claims), "held": j.held, "opposite": j.opposite, "means": j.means}
            for j in found
        ],
        "claims": as_records([claim for j in found for claim in j.claims]),
    }
    return Report("\n\n".join(parts), data)


def _table(found: Sequence[JudgedBalanceReading]) -> str:
    head = ["MODIFIER", "BL TAKES", "SCALE", "LOAD", "BB", "BB WEIGHTED", "BL", "CONS"]
    lines = [
        [
            *j.reading,
            *(plus_minus(j.gains[name], "+.0f") for name in ("BB", "BB weighted", "BL", "CONS")),
            str(j.held),
            str(j.opposite),
            str(j.means),
        ]
        for j in found
    ]
    return render(Table([*head, "HELD", "OPPOSITE", "MEANS"], lines, left=frozenset(head[:4])))
