"""The readings of REDIR that its text leaves open, and which of them explain its claims.

A run is one week of a trace with one threshold, or without redirection. What varies besides: which
weeks are drawn (the seed), the processors of Curie, whether a week begins with an empty machine or
with the jobs of the time before it, and the direction of the ratio. The text on figure 2 divides
the slowdown without redirection by that with it and says that a ratio below 1 is an improvement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

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
    with_limits,
)
from simulator.studies.redir import runs as redir
from simulator.studies.redir.ratios import MAX, MEAN
from simulator.studies.redir.report import PAPER
from simulator.study.study import SEED, Report, Row

DIRECTIONS = ("with/without", "without/with")
WITHIN = 0.05  #: a ratio equals the paper's if it is at most so far from it


def run(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate one week.

    Parameters
    ----------
    parameters : those of `simulator.studies.redir.runs.run`; `seed` is the draw of the weeks.
    """
    return redir.run({**parameters, "draw": parameters[SEED]})


class RedirectionReading(NamedTuple):
    """A reading of the paper for one trace; see the module docstring."""

    trace: str
    processors: int
    warm_h: int
    direction: str

    def __str__(self) -> str:
        """Short text, part of the ids of claims."""
        start = f"warm {self.warm_h} h" if self.warm_h else "empty"
        return f"{self.trace}, {self.processors}, {start}, {self.direction}"

    @property
    def is_default(self) -> bool:
        """Whether it is that of the REDIR study."""
        return not self.warm_h and self.direction == DIRECTIONS[0] and self.processors != 93312


class WeekRatios:
    """Ratios of a reading by threshold and week; a week that several draws have counts once.

    Parameters
    ----------
    rows : the runs of its trace, processors, start and one alpha.
    """

    def __init__(self, reading: RedirectionReading, rows: Sequence[Row]) -> None:
        self.reading = reading
        results: dict[int | None, dict[int, Mapping[str, Any]]] = {}
        for row in rows:
            by_week = results.setdefault(row.parameters["theta"], {})
            by_week[row.result["number"]] = row.result
        self._without = results.pop(None, {})
        self._with = dict(sorted(results.items(), key=lambda item: item[0] or 0))
        self.draws: dict[int, set[int]] = {}
        for row in rows:
            self.draws.setdefault(row.parameters[SEED], set()).add(row.result["number"])

    @property
    def thetas(self) -> list[int]:
        """Thresholds, ascending."""
        return [theta for theta in self._with if theta is not None]

    @property
    def weeks(self) -> list[int]:
        """Numbers of the weeks."""
        return sorted(self._without)

    def values(self, metric: str, theta: int, weeks: Sequence[int] | None = None) -> list[float]:
        """Ratio of each week, in the direction of the reading."""
        pairs = [
            (self._with[theta][week][metric], self._without[week][metric])
            for week in (self.weeks if weeks is None else weeks)
        ]
        if self.reading.direction == DIRECTIONS[0]:
            return [redirected / easy for redirected, easy in pairs]
        return [easy / redirected for redirected, easy in pairs]

    def ratio(self, metric: str, theta: int) -> Interval:
        """Mean over the weeks."""
        return mean_interval(self.values(metric, theta))

    def best(self, thetas: Sequence[int] | None = None) -> int:
        """Threshold, of these or of all, with the smallest mean ratio of the mean slowdown."""
        found = self.thetas if thetas is None else thetas
        return min(found, key=lambda theta: (mean(self.values(MEAN, theta)), theta))


def judge(ratios: WeekRatios) -> list[Claim]:
    """Judge the claims of REDIR section V in one reading."""
    paper = next((values for name, values in PAPER.items() if name in ratios.reading.trace), None)
    if paper is None:
        return []
    best = ratios.best()
    ratio = ratios.ratio(MEAN, best)
    gain = Interval(1 - ratio.mean, 1 - ratio.high, 1 - ratio.low, ratio.n)
    found = [
        Claim(
            "gain of the mean slowdown, best theta",
            gain,
            round(1 - paper.best, 2),
            by_sign(gain),
            id="gain",
        ),
        _equals(ratio, paper.best, "best", "mean slowdown, best theta (ratio)"),
    ]
    low, high = paper.thetas
    inside = [theta for theta in ratios.thetas if low <= theta <= high]
    outside = [theta for theta in ratios.thetas if theta not in inside]
    if inside and outside:
        others, own = (ratios.values(MEAN, ratios.best(part)) for part in (outside, inside))
        ours = mean_interval([other - one for other, one in zip(others, own, strict=True)])
        text = f"the best theta is in {low} to {high} (ratio outside minus inside)"
        found.append(Claim(text, ours, None, by_sign(ours), id="theta"))
    if paper.both is not None and paper.both[0][1] in ratios.thetas:
        (_, theta), claimed = paper.both
        for metric, word in ((MEAN, "mean"), (MAX, "largest")):
            text = f"{word} slowdown at theta {theta} (ratio)"
            found.append(_equals(ratios.ratio(metric, theta), claimed, f"{word}-{theta}", text))
    where = str(ratios.reading)
    return [
        msgspec.structs.replace(claim, id=f"{where}/{claim.id}".replace(", ", "/"), where=where)
        for claim in found
    ]


def _equals(ratio: Interval, paper: float, name: str, text: str) -> Claim:
    return Claim(text, ratio, paper, by_range(ratio, paper - WITHIN, paper + WITHIN), id=name)


def judged(rows: Sequence[Row]) -> list[tuple[WeekRatios, list[Claim]]]:
    """Ratios and verdicts of all readings, in the order of the runs."""
    groups: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        parameters = row.parameters
        name = str(parameters["trace"]).removesuffix(".gz").removesuffix(".swf")
        key = name, int(parameters["processors"]), int(parameters["warm_h"])
        groups.setdefault(key, []).append(row)
    found = []
    for key, group in groups.items():
        for direction in DIRECTIONS:
            ratios = WeekRatios(RedirectionReading(*key, direction), group)
            found.append((ratios, judge(ratios)))
    return found


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Ratios of each reading, the verdicts, and the effect of drawing other weeks."""
    found = judged(rows)
    claims = [claim for _, own in found for claim in own]
    parts = [
        f"Ratio of the mean and of the largest bounded slowdown at the best theta; claims that held"
        f"\n{_readings_text(found)}",
        f"Ratio of the mean bounded slowdown by theta, with/without\n{_thetas_text(found)}",
        f"Ratio at the best theta by draw of the weeks, with/without\n{_draws_text(found)}",
        f"The paper's claims in each reading\n{as_table(claims)}",
    ]
    data = {
        "readings": [_reading_data(ratios, own) for ratios, own in found],
        "claims": as_records(claims),
    }
    return Report("\n\n".join(parts), data)


def _readings_text(found: Sequence[tuple[WeekRatios, list[Claim]]]) -> str:
    lines = []
    for ratios, claims in found:
        best, verdicts = ratios.best(), [claim.verdict for claim in claims]
        lines.append(
            [
                str(ratios.reading),
                str(len(ratios.weeks)),
                str(best),
                with_limits(ratios.ratio(MEAN, best)),
                with_limits(ratios.ratio(MAX, best)),
                f"{verdicts.count(HELD)} of {len(verdicts)}",
                str(verdicts.count(OPPOSITE)),
            ]
        )
    head = ["READING", "WEEKS", "THETA", "MEAN", "LARGEST", "HELD", "OPPOSITE"]
    return render(Table(head, lines, left=frozenset({"READING"})))


def _thetas_text(found: Sequence[tuple[WeekRatios, list[Claim]]]) -> str:
    shown = [ratios for ratios, _ in found if ratios.reading.direction == DIRECTIONS[0]]
    thetas = sorted({theta for ratios in shown for theta in ratios.thetas})
    lines = [
        [str(ratios.reading), *(f"{mean(ratios.values(MEAN, theta)):.2f}" for theta in thetas)]
        for ratios in shown
    ]
    return render(Table(["READING", *map(str, thetas)], lines, left=frozenset({"READING"})))


def _draws_text(found: Sequence[tuple[WeekRatios, list[Claim]]]) -> str:
    lines = [
        [
            str(ratios.reading),
            str(draw),
            with_limits(mean_interval(ratios.values(MEAN, ratios.best(), sorted(weeks)))),
        ]
        for ratios, _ in found
        if ratios.reading.direction == DIRECTIONS[0]
        for draw, weeks in sorted(ratios.draws.items())
    ]
    return render(Table(["READING", "DRAW", "RATIO"], lines, left=frozenset({"READING"})))


def _reading_data(ratios: WeekRatios, claims: Sequence[Claim]) -> dict[str, Any]:
    verdicts = [claim.verdict for claim in claims]
    return {
        **ratios.reading._asdict(),
        "default": ratios.reading.is_default,
        "weeks": len(ratios.weeks),
        "best_theta": ratios.best(),
        "points": [
            {
                "theta": theta,
                "mean_ratio": _plain(ratios.ratio(MEAN, theta)),
                "max_ratio": _plain(ratios.ratio(MAX, theta)),
            }
            for theta in ratios.thetas
        ],
        "held": verdicts.count(HELD),
        "opposite": verdicts.count(OPPOSITE),
    }


def _plain(interval: Interval) -> dict[str, float | None]:
    numbers = {"mean": interval.mean, "low": interval.low, "high": interval.high}
    return {name: None if isnan(value) else value for name, value in numbers.items()}
