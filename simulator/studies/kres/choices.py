"""The readings of KRES that its text leaves open, and which of them explain its claims.

A run is one workload under every algorithm and reading of section 2.2, for one reading of the
requirements and of the load. A reading of the whole paper has four parts: how the fullness modifier
acts on the scores (`Backfill.modifier`), whether BL takes other jobs, what the requirements are
scaled with (`simulator.workloads.requirements.Scale`), and over which jobs is averaged: all jobs of
a run in which the queue grows, or those in the steady part of a longer one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from scheduler.policies.scenarios import scenario
from scheduler.text.tables import Table, render
from simulator.results.statistics import Interval
from simulator.studies.claims import (
    HELD,
    OPPOSITE,
    Claim,
    as_records,
    as_table,
    by_range,
    by_sign,
    exactly,
    plus_minus,
)
from simulator.studies.kres.claims import RANGES, WEIGHTED, KresGains, judge
from simulator.studies.kres.runs import compare
from simulator.study.study import SEED, Report, Row

MODIFIERS = ("product", "exponent", "tolerance", "none")
BL_TAKES = ("only", "first")  #: the jobs that it looks for, or those before the others
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
            reading = BalanceReading(modifier, takes, scale, load)
            names = {"BB": f"BB {modifier}", "BL": f"BL {modifier} {takes}", "CONS": "CONS"}
            gains = KresGains(names, group)
            claims = [
                msgspec.structs.replace(claim, id=f"{reading}/{claim.id}")
                for claim in judge(gains)
                if not isnan(claim.ours.mean)
            ]
            shown = {name: gains.gain(name) for name in ("BB", "BL", "CONS")}
            shown["BB weighted"] = gains.gain("BB", WEIGHTED)
            verdicts = [claim.verdict for claim in claims]
            found.append(
                JudgedBalanceReading(
                    reading,
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
    exact = exactly(claim.ours.mean)
    name = claim.id.rpartition("/")[2].partition("-")[2]
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
        f"Claims in the reading {best.reading}\n{as_table(best.claims)}",
    ]
    if default is not None and default is not best:
        parts.append(
            f"Claims in the reading of `reshape study kres`, {default.reading}\n"
            f"{as_table(default.claims)}"
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
