"""The claims of KRES 3.3 and 4, judged by intervals of the gains over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from simulator.results.statistics import Interval, mean, mean_interval
from simulator.studies.claims import NOT_RUN, Claim, by_range, by_sign
from simulator.studies.results import mean_difference
from simulator.study.study import SEED, Row

AVERAGE, WEIGHTED = "response_s", "weighted_response_s"
FIGURE_2 = "KRES figure 2"
#: Claims that a gain lies in a range, per cent; "up to 50 %" is read as a maximum of 40 to 60 %.
RANGES = {
    "average": (10, 50),
    "weighted": (10, 30),
    "most": (40, 60),
    "most-weighted": (30, 50),
}

#: Selects points of the grid: axis -> value.
Points: TypeAlias = Mapping[str, Any]
EVERYWHERE: Points = {}


def gain_pct(row: Row, algorithm: str, metric: str) -> float:
    """How much shorter than under First-Fit a response is, per cent."""
    return 100.0 * (1.0 - float(row.result[algorithm][metric]) / float(row.result["FF"][metric]))


class KresGains:
    """Gains over First-Fit, 1 - other / First-Fit, in per cent, from runs of the same seeds.

    Parameters
    ----------
    names : algorithm of the paper -> name of its results.
    """

    def __init__(self, names: Mapping[str, str], rows: Sequence[Row]) -> None:
        self._names = names
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
                    gain_pct(row, own, metric)
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
        return NOT_RUN if first == last else mean_difference(first, last)


def judge(gains: KresGains) -> list[Claim]:
    """Judge the claims of KRES 3.3 and 4."""
    return [*judge_balanced(gains), *_judge_lowest(gains)]


def judge_balanced(gains: KresGains, name: str = "BB") -> Iterator[Claim]:
    """Claims about BB.

    Parameters
    ----------
    name : what texts and ids call it.
    """
    key = name.lower()
    few, many = {"queue": gains.queues[0]}, {"queue": gains.queues[-1]}
    laws = {"law": "uniform"}, {"law": "exponential"}
    average, weighted = gains.gain("BB"), gains.gain("BB", WEIGHTED)
    yield _range(average, "3.3.4", f"{key}-average", f"{name} gains 10 to 50 %")
    yield _range(weighted, "3.3.4", f"{key}-weighted", f"{name} gains 10 to 30 % weighted")
    most, most_weighted = (gains.gain("BB", m, over=max) for m in (AVERAGE, WEIGHTED))
    yield _range(most, "3.3", f"{key}-most", f"{name} gains up to 50 %", "50")
    yield _range(
        most_weighted, "4", f"{key}-most-weighted", f"{name} gains up to 40 % weighted", "40"
    )
    least = gains.gain("BB", over=min)
    yield _sign(
        least, "3.3", f"{key}-everywhere", f"{name} is better than FF everywhere (least gain)"
    )
    hard = gains.gain("BB", points={"k": gains.ks[-1]})
    yield _sign(hard, "3.3.1", f"{key}-large-k", f"{name} gains at the largest K")
    text = f"{name} gains more for uniform requirements (points)"
    yield _sign(gains.apart("BB", *laws), "3.3.2", f"{key}-uniform", text, "10")
    text = f"{name} gains more as the load grows (points)"
    yield _sign(gains.apart("BB", many, few), "3.3.3", f"{key}-load", text)
    text = f"{name} gains more in average than weighted (points)"
    by_seed = (gains.of_seeds("BB", metric, EVERYWHERE, mean) for metric in (AVERAGE, WEIGHTED))
    yield _sign(mean_difference(*by_seed), "3.3.4", f"{key}-small-jobs", text)


def _judge_lowest(gains: KresGains) -> Iterator[Claim]:
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
    what = name.partition("-")[2]
    low, high = RANGES[what]
    part = "KRES figure 3" if what.endswith("weighted") else FIGURE_2
    verdict = by_range(ours, low, high)
    return Claim(text, ours, paper or f"{low} to {high}", verdict, part, where, id=name)


def _sign(ours: Interval, where: str, name: str, text: str, paper: str | None = None) -> Claim:
    return Claim(text, ours, paper, by_sign(ours), FIGURE_2, where, id=name)


def _minus(gain: Interval) -> Interval:
    return Interval(-gain.mean, -gain.high, -gain.low, gain.n)
